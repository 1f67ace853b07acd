"""Weights in files that go by any name, as packages and trainers call them: the only such file is the model."""

from collections.abc import Iterable

# what trainers keep beside a model, and adapters
_BESIDE = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "random_states", "adapter_", "trainer_")


def pickles(names: Iterable[str]) -> list[str]:
    """Those among the files that can be a model as torch pickles it, sorted."""
    return sorted(name for name in names if name.endswith((".bin", ".pt", ".ckpt")) and not name.startswith(_BESIDE))
