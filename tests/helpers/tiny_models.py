"""The library's tiny random models as folders, and ways to spoil them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from provlab.models.examples import BLOCKS, MLP_WIDTH, TINY, VOCABULARY, WIDTH, build

__all__ = ["BLOCKS", "MLP_WIDTH", "TINY", "VOCABULARY", "WIDTH", "build", "copy", "edit_json", "rewrite", "save"]


def save(label: str, folder: Path, *, seed: int = 0) -> Path:
    """Save `build(label)` as transformers writes it, and return the folder."""
    build(label, seed=seed).save_pretrained(folder)
    return folder


def copy(folder: Path, to: Path) -> Path:
    """Copy a checkpoint folder."""
    return Path(shutil.copytree(folder, to))


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Let `change` alter the table of tensors in ``model.safetensors``."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Let `change` alter a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
