"""Shapes of published models, as configs: what sizes a study of full size has, before there is any weight."""

import json
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

from provlab.errors import InputError

STANDARD_DEVIATION = 0.02  # of an initialisation, where the config names no initializer_range
_DEPTHS = ("num_hidden_layers", "n_layer")
_TABLE = tomllib.loads((Path(__file__).parent / "shapes.toml").read_text(encoding="utf-8"))
#: name -> the published ``config.json``, as far as it decides shapes; the last are for trying things out
SHAPES: dict[str, dict[str, Any]] = {
    name: {**_TABLE["like"][row["model_type"]], **row} for name, row in _TABLE["shape"].items()
}


def shape(name: str, blocks: int | None = None) -> dict[str, Any]:
    """Return the config of a named shape, or of a ``config.json`` at that path, with `blocks` blocks instead of all.

    Raises
    ------
    InputError
        The name is unknown, the file is no config, or the model has fewer blocks.
    """
    if name in SHAPES:
        return truncated(deepcopy(SHAPES[name]), blocks, name)
    path = Path(name)
    if path.suffix != ".json":
        raise InputError(f"{name} is no known shape; known are {', '.join(SHAPES)}, or give the path of a config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be read as a config ({type(error).__name__}); give a config.json") from error
    if not isinstance(config, dict):
        raise InputError(f"{name} holds no JSON object; give a config.json")
    return truncated(config, blocks, name)


def truncated(config: dict[str, Any], blocks: int | None, name: str = "the model") -> dict[str, Any]:
    """Return a config of the first `blocks` blocks; all if None.

    Raises
    ------
    InputError
        There are not so many.
    """
    if blocks is None:
        return config
    key = next((key for key in _DEPTHS if key in config), _DEPTHS[0])
    if not 1 <= blocks <= config.get(key, 0):
        raise InputError(f"blocks must be 1 to {config.get(key)} for {name}, not {blocks}")
    return config | {key: blocks}
