"""The same tensors in other files: in another order, in shards, or under other metadata."""

import json
import struct
from pathlib import Path

import tiny_models
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

WEIGHTS = "model.safetensors"


def reordered(folder: Path) -> None:
    """Write the tensors in the opposite order; safetensors' own writer always sorts them."""
    tensors = load_file(folder / WEIGHTS)
    header, content = {}, b""
    for name in sorted(tensors, reverse=True):
        some = tensors[name].numpy().tobytes()
        place = [len(content), len(content) + len(some)]
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": place}
        content += some
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + content)


def sharded(folder: Path) -> None:
    """Save the model again in several files."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / WEIGHTS).unlink()
    model.save_pretrained(folder, max_shard_size="20KB")


def described(folder: Path) -> None:
    """Put other metadata into the header."""
    tensors = load_file(folder / WEIGHTS)
    tiny_models.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt", "made": "today"})


WAYS = {"another order": reordered, "in shards": sharded, "other metadata": described}
