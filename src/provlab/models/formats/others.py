"""Weights in files that go by any name, as packages and trainers call them: the one such file of a folder is its model."""

from provlab.models.formats.container import Format

_PICKLED = "provlab.models.formats.pickled.PickledFile"
# what trainers keep beside a model, and adapters
_BESIDE = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "random_states", "adapter_", "trainer_")


def format_of(names: frozenset[str]) -> Format | None:
    """Return the format of the one file among these that can be a model; None if there is none, or more."""
    found = [name for name in names if name.endswith((".bin", ".pt", ".ckpt")) and not name.startswith(_BESIDE)]
    return Format(_PICKLED, found[0], pickled=True) if len(found) == 1 else None
