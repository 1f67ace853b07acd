"""Models known by their shapes: opened as far as config and headers go, or by a published shape alone."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from provlab import plugins
from provlab.errors import CheckpointError, InputError, ProvlabError
from provlab.planning.shapes import shape
from provlab.planning.skeleton import Skeleton
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.model import Model

SHAPE = "shape:"  # shape:llama-2-7b is a model of that shape that nobody has, shape:llama-2-7b*21 are so many
_MANY = re.compile(r"(shape:[^*]+)\*(\d+)")


@dataclass(frozen=True)
class Sketch:
    """Models known by their shapes.

    Attributes
    ----------
    models : mapping
        Source -> model; of some only the config is there.
    to_fetch : mapping
        Source -> bytes of files that are not on this machine yet.
    refused : mapping
        Source -> why its shapes cannot be known.
    """

    models: Mapping[str, Model]
    to_fetch: Mapping[str, int]
    refused: Mapping[str, str]


def shapes_of(sources: Sequence[str], *, allow_pickle: bool = False) -> Sketch:
    """Open models as far as their shapes go; nothing is fetched but configs and headers, and nothing is trained.

    Parameters
    ----------
    sources
        Folders, hub ids, ``zoo:NAME``, ``zoo:*``, and ``shape:NAME`` or ``shape:NAME*N`` for models of a known shape.
    allow_pickle
        Count a hub model whose weights are pickles, by its config.

    Raises
    ------
    InputError
        If fewer than two distinct models are named.
    CheckpointError
        If the shapes of fewer than two can be known; the message has the first reason.
    """
    names: list[str] = []
    for source in sources:
        many = _MANY.fullmatch(source)
        names += [f"{many[1]}#{i}" for i in range(1, int(many[2]) + 1)] if many else [source]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"models must be distinct, but given more than once: {', '.join(repeated)}")
    if len(names) < 2:
        raise InputError(f"a plan needs at least two models, not {len(names)}")
    models: dict[str, Model] = {}
    to_fetch: dict[str, int] = {}
    refused: dict[str, str] = {}
    for name in names:
        try:
            models[name], to_fetch[name] = _model(name, allow_pickle)
        except ProvlabError as error:
            refused[name] = str(error)
    if len(models) < 2:
        raise CheckpointError(f"fewer than two models can be planned for; {next(iter(refused.values()))}")
    return Sketch(models, to_fetch, refused)


def _model(source: str, allow_pickle: bool) -> tuple[Model, int]:
    """One model known by its shapes, and the bytes of it that are not on this machine."""
    if source.startswith(SHAPE):
        name = source.removeprefix(SHAPE)
        return model_of(shape(name.partition("#")[0]), name), 0
    scheme, _, name = source.partition(":")
    if (untrained := plugins.hook(scheme, "untrained")) and (why := untrained(name)):
        raise CheckpointError(f"{source} {why}")
    if _is_config_alone(Path(source)):
        return model_of(shape(str(Path(source) / "config.json")), source), 0
    checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
    missing = checkpoint.bytes_to_fetch()
    if missing and checkpoint.pickled:  # a pickle is fetched whole before its tensors are known
        return model_of(checkpoint.config, source), missing
    return Model(checkpoint, anatomy.of(checkpoint)), missing


def _is_config_alone(folder: Path) -> bool:
    """Whether a folder has a config and nothing that could be weights."""
    weights = {".safetensors", ".bin", ".pt", ".pth", *(f".{name}" for name in plugins.named(plugins.CONTAINERS))}
    return (folder / "config.json").is_file() and not any(path.suffix in weights for path in folder.iterdir())


def model_of(config: dict[str, Any], name: str = "tiny") -> Model:
    """A model that is known by its config alone."""
    skeleton = Skeleton(name, config)
    return Model(cast(Checkpoint, skeleton), anatomy.of(skeleton))
