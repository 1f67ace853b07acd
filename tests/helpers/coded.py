"""What libraries wrote as codes, and what they read from it; ``benchmarks/coded_references.py`` made the file."""

import copy
import json
import random
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.formats.codes import coded_weights
from provlab.reading.declared import SIDE_FILES, Declared
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.dtypes import itemsize

MODULE = "model.layers.0.mlp.up_proj"


class Reference(NamedTuple):
    """The tensors of one weight by what stands behind its module's name, the config, and the numbers."""

    config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]]
    numbers: NDArray[np.float32]

    def named(self, module: str = MODULE) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
        """Return dtype, shape and bytes of each tensor, by its whole name."""
        return {f"{module}.{ending}": tensor for ending, tensor in self.tensors.items()}


@cache
def references() -> dict[str, Reference]:
    """All of them, by their labels."""
    with np.load(Path(__file__).parents[1] / "formats" / "references.npz") as file:
        index, data, at = json.loads(str(file["index"])), file["data"].tobytes(), 0
    made = {}
    for label, case in index.items():
        tensors = {}
        for ending, (dtype, shape) in case["tensors"].items():
            size = prod(shape) * itemsize(dtype)
            tensors[ending] = dtype, tuple(shape), data[at : at + size]
            at += size
        _, shape, numbers = tensors.pop("")
        made[label] = Reference(case["config"], tensors, np.frombuffer(numbers, np.float32).reshape(shape))
    return made


def read(
    reference: Reference, config: dict[str, Any], beside: dict[str, Any] | None = None, rows: range | None = None
) -> NDArray[np.float32]:
    """Read its tensors under a config, and files beside it, as `CodedWeights` does."""
    tensors = reference.named()

    def info(name: str) -> TensorInfo:
        return TensorInfo(tensors[name][1], tensors[name][0])

    def content(name: str, rows: range | None) -> NDArray[np.uint8]:
        whole = np.frombuffer(tensors[name][2], np.uint8)
        if rows is None:
            return whole
        width = len(whole) // tensors[name][1][0]
        return whole[rows.start * width : rows.stop * width]

    coded = coded_weights(tensors, Declared(config, beside), info, content)[f"{MODULE}.weight"]
    result = coded.read(rows)
    assert result.shape == (coded.info.shape if rows is None else (len(rows), *coded.info.shape[1:]))
    return result


# Configs that contradict themselves or lack something ----------------------------------------------------------------

_OTHER_TEXTS = {
    "quant_method": ("gptq", "awq", "fp8", "compressed-tensors", "bitsandbytes", "mlx", "modelopt", "hqq", "mxfp4"),
    "format": ("pack-quantized", "float-quantized", "int-quantized", "nvfp4-pack-quantized", "marlin-24"),
    "checkpoint_format": ("marlin", "bitblas"),
    "type": ("int", "float"),
    "strategy": ("tensor", "channel", "group", "block", "token"),
    "mode": ("affine", "mxfp4", "nvfp4", "mxfp8", "ternary"),
    "quant_algo": ("FP8", "NVFP4", "W4A8_AWQ"),
    "bnb_4bit_quant_type": ("nf4", "fp4"),
    "expert_dtype": ("fp8",),
}
#: that alone say what no tensor confirms: of them a second, other value is written, and none changed
_UNCONFIRMED = ("version", "checkpoint_format")


def _leaves(tree: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Every dictionary in a tree with each of its keys."""
    inner = [leaf for value in tree.values() if isinstance(value, dict) for leaf in _leaves(value)]
    return [(tree, key) for key in tree] + inner


def _other(key: str, value: Any, rng: random.Random) -> Any:
    """Return another value of the same kind, which is not what the tensors say."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value * 2, max(value // 2, 1) if value > 1 else 3, -3, 0])
    if isinstance(value, list) and value and isinstance(value[0], int):
        return rng.choice([[n * 2 for n in value], [n // 2 for n in value], value[:1], "x", [0, *value[1:]]])
    if texts := [text for text in _OTHER_TEXTS.get(key, ()) if text != value]:
        return rng.choice(texts)
    return value


def mutated(config: dict[str, Any], rng: random.Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return what was done to a config, the changed one, and files beside it."""
    config, beside = copy.deepcopy(config), {}
    place = next(iter(config))
    what = rng.choice(["lacks", "differs", "is null", "is said twice", "is text", "stands elsewhere"])
    holder, key = rng.choice(_leaves(config))
    if holder[key] in ("gptq_v2", "gptq_p") and what in ("lacks", "is null"):
        what = "is text"  # without it, transformers takes it for "gptq", and so is it read
    if what == "lacks":
        del holder[key]
    elif what == "differs" and key not in _UNCONFIRMED:
        holder[key] = _other(key, holder[key], rng)
    elif what == "is null":
        holder[key] = None
    elif what == "is text" and isinstance(holder[key], int | list):
        texts = [str(holder[key]), "many"]
        if isinstance(holder[key], list) and key != "targets":
            texts[0] = "x".join(map(str, holder[key]))
        holder[key] = rng.choice(texts)
    elif what == "is said twice":
        twice = copy.deepcopy(config[place])
        inner, key = rng.choice(_leaves(twice)) if isinstance(twice, dict) else ({}, "")
        if inner:
            value = inner[key]
            texts = {"version": "0.5", "checkpoint_format": rng.choice(["gptq", "gptq_v2"])}
            inner[key] = texts.get(key) or _other(key, value, rng)
        if rng.random() < 0.5:
            inside = {"text_config": {place: twice}}
            config = inside | config if rng.random() < 0.5 else config | inside
        else:
            beside[rng.choice(SIDE_FILES)] = twice
    elif what == "stands elsewhere" and isinstance(config[place], dict):
        said = config.pop(place)
        where = rng.choice(["compression_config", "text_config", "side", "list", "meta"])
        if where == "side":
            beside[rng.choice(SIDE_FILES)] = said
        elif where == "list":
            groups = said.get("config_groups")
            config[place] = said | ({"config_groups": list(groups.values())} if groups else {})
        elif where == "meta":
            config[place] = {"quant_method": said.pop("quant_method", "mlx"), "meta": said}
        else:
            config[where] = said if where == "compression_config" else {place: said}
    return f"{key} {what}", config, beside
