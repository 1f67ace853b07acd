"""Tiny random models of every architecture in the table, made by transformers itself: to try things on in a second."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

_TABLE = tomllib.loads((Path(__file__).parent / "examples.toml").read_text(encoding="utf-8"))


def _arguments(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's entries and those of the row that it is like."""
    own = {key: value for key, value in row.items() if key not in ("class", "like")}
    return _arguments(_TABLE[row["like"]]) | own if "like" in row else own


#: label -> (model class, keyword arguments of its config class)
TINY: dict[str, tuple[str, Mapping[str, Any]]] = {
    label: (row["class"], _arguments(row)) for label, row in _TABLE["tiny"].items()
}


def build(label: str, *, seed: int = 0) -> PreTrainedModel:
    """Make a random model, every parameter (norms and biases too) away from its initial constant.

    Parameters
    ----------
    label
        A key of `TINY`.
    seed
        Decides the weights; the global generator stays as it is.
    """
    class_name, arguments = TINY[label]
    model_class = getattr(transformers, class_name)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model: PreTrainedModel = model_class(model_class.config_class(**arguments)).eval()
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model
