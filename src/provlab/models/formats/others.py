"""Weights in files that go by any name, as packages and trainers call them: the only such file, or one by its path."""

from collections.abc import Iterable

# what trainers keep beside a model, and adapters
_BESIDE = ("training_args", "optimizer", "scheduler", "scaler", "rng_state", "random_states", "adapter_", "trainer_")


def pickles(names: Iterable[str]) -> list[str]:
    """Those among the files that can be a model as torch pickles it, sorted."""
    return sorted(name for name in names if name.endswith((".bin", ".pt", ".ckpt")) and not name.startswith(_BESIDE))


def beside(name: str, names: Iterable[str]) -> frozenset[str]:
    """Those among a folder's files that belong to one given by its path: all but other weights; GGUF is whole alone."""
    others = (".onnx", ".gguf", ".safetensors", ".safetensors.index.json", "pytorch_model.bin", ".bin.index.json")
    kept = [] if name.endswith(".gguf") else [other for other in names if not other.endswith(others)]
    return frozenset({name, *kept})
