"""Names of files in which torch pickles models."""

from collections.abc import Iterable

PICKLES = (".bin", ".pt", ".ckpt")
_BESIDE = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "random_states", "adapter_", "trainer_")


def pickles(names: Iterable[str]) -> list[str]:
    """Those among the files that can be a model as torch pickles it, under any name, sorted."""
    return sorted(name for name in names if name.endswith(PICKLES) and not name.startswith(_BESIDE))
