"""Reading a class that the table lacks by the names and shapes of its tensors, where these are a known layout.

Tensors show which matrices a block has, not what is computed between them. So a layout is taken only where nothing in
the file could stand between the two ends of a hidden unit unseen: every tensor of a module that is read has a role,
each holds one role, no axis of it could be another's, and no further tensor is as long as the MLP is wide. A module
without any tensor that the layout names, such as another attention, is left unread. The verdict says that a model was
read in this way (`Anatomy.named`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from provlab import plugins
from provlab.errors import InvalidWeightsError, UnknownArchitectureError
from provlab.reading import tying
from provlab.reading.architectures import Architecture, layouts
from provlab.reading.part import EMBEDDING, PLACE, Part, in_blocks
from provlab.reading.roles import Anatomy, Tensors


def by_tensors(
    checkpoint: Tensors,
    config: Mapping[str, Any],
    compared: Callable[[Tensors, str, Architecture, Mapping[str, Any]], Anatomy],
    unknown: UnknownArchitectureError,
) -> Anatomy:
    """Read a checkpoint in the first layout of the table that its tensors have.

    Parameters
    ----------
    checkpoint, config
        The model, and the config of its language part.
    compared
        Compares a checkpoint with a class, its entry of the table, and a config.
    unknown
        The error for the class, which is raised with the reason added where there is no such layout, or several that
        give a tensor different roles.
    """
    readings: list[Anatomy] = []
    reasons: list[str] = []
    hides = False  # whether a layout fits, but for something that may change how its MLPs compute
    for name, architecture in layouts():
        if not _fits(checkpoint.tensor_names, architecture):
            continue
        if not tying.declared(checkpoint.config).tied:
            architecture = _beheaded(checkpoint.tensor_names, architecture)
        try:
            anatomy = compared(checkpoint, name, architecture, config)
            if why := next(_hidden(checkpoint, anatomy), None):
                hides = True
                raise InvalidWeightsError(f"{checkpoint.name} has {why}")
            readings.append(replace(anatomy, named=checkpoint.architecture))
        except InvalidWeightsError as error:
            # what such an error advises, new copies say, is advice for a model of that class
            why = str(error).removeprefix(checkpoint.name).lstrip(": ").partition(";")[0]
            reasons.append(f"{name}: {why}")
    if not readings:
        instead = "" if hides else part_instead(checkpoint)
        why = f"nor is it read by its tensors as {reasons[0]}" if reasons else "and no known layout has its tensors"
        raise UnknownArchitectureError(f"{unknown}; {why}{instead}")
    best = max(readings, key=lambda anatomy: len(anatomy.parts))
    roles = {part.name: part.segments[0].role for part in best.parts}
    for other in readings:
        for part in other.parts:
            if roles.get(part.name, part.segments[0].role) != part.segments[0].role:
                rivals = f"{best.architecture} or {other.architecture}"
                raise UnknownArchitectureError(f"{unknown}; by its tensors it may be {rivals}: see {part.name}")
    return best


def _fits(names: Iterable[str], architecture: Architecture) -> bool:
    """Whether a file has the tensors that block 0 needs, and an up projection, wherever the base model stands."""
    in_block = [part for part in architecture.parts if part.per_block]
    ends = {part.called(0, 0): part for part in in_block}
    met = {end for name in names for end in _endings(name) if end in ends}
    needed = {end for end, part in ends.items() if not part.optional}
    return needed <= met and "up" in {segment.role for end in met for segment in ends[end].segments}


def _beheaded(names: Iterable[str], architecture: Architecture) -> Architecture:
    """Return a layout without its head where the file, which has one, calls it something else."""
    heads = {part.name for part in architecture.parts if part.segments[0].role == "head"}
    if any(end in heads for name in names for end in _endings(name)):
        return architecture
    return replace(architecture, parts=tuple(part for part in architecture.parts if part.name not in heads))


def part_instead(checkpoint: Tensors) -> str:
    """Name blocks that can be compared alone, or the embedding; no advice where there are none."""
    by_shapes: Callable[[Tensors, Part], Anatomy] = plugins.reader("part", "a part").by_shapes
    fitting: list[str] = []
    for path in sorted({path for path, _, _ in in_blocks(checkpoint.tensor_names)}, key=lambda path: (len(path), path)):
        with suppress(InvalidWeightsError):
            anatomy = by_shapes(checkpoint, Part("blocks", path))
            others = (part for part in anatomy.parts if "mlp" not in part.segments[0].axes)
            if not any(anatomy.mlp_width in part.shape for part in others):  # which may stand between up and down
                fitting.append(path)
    if not fitting:
        with suppress(InvalidWeightsError):
            by_shapes(checkpoint, Part(EMBEDDING))
            return f"; --part {EMBEDDING} compares its embedding alone"
        return ""
    further = f" (or {', '.join(fitting[1:3])})" if fitting[1:] else ""
    return f"; --part blocks={fitting[0]}{further} compares these blocks alone, by the shapes of their tensors"


def _endings(name: str) -> Iterator[str]:
    """Yield a name without its first few words."""
    yield name
    for dot in re.finditer(r"\.", name):
        yield name[dot.end() :]


def _hidden(checkpoint: Tensors, anatomy: Anatomy) -> Iterator[str]:
    """Say what may change how a block computes, though no role of the layout shows it."""
    if anatomy.mlp_width == anatomy.width:
        yield f"an MLP as wide as the stream ({anatomy.width}), so that its matrices may be turned"
    widths = {anatomy.mlp_width}
    read: dict[tuple[str, str], str] = {}  # (path of a block, module in it) -> a tensor with a role
    for part in anatomy.parts:
        if part.block is None:
            continue
        if len(part.segments) > 1:
            yield f"{part.name}, which holds several roles, in which order is not to be seen"
        widths |= {size for s, size in zip(part.segments, part.sizes, strict=True) if s.axes[0].startswith("mlp")}
        read[_place(part.name)] = part.name
    stacks = {_stack(part.name) for part in anatomy.parts if any(s.role.startswith("up") for s in part.segments)}
    for path, inside in map(_stack, anatomy.unnamed):
        if (beside := {path for path, up in stacks if up == inside} - {path}) and inside:
            yield f"blocks in {min(beside)} and in {path}, of which the layout has one"
    matrices = {_place(name) for name in anatomy.unnamed if len(checkpoint.shape(name)) > 1}
    for name in anatomy.unnamed:
        place = _place(name)
        apart = _stack(name)[1] and _stack(name)[0] not in {path for path, _ in stacks}  # as a vision tower's blocks
        if widths & {*checkpoint.shape(name)} and not apart:
            yield f"{name}, which has no role and is as long as the MLP is wide"
        elif place in read:
            yield f"{name} beside {read[place]}, which has no role"
        elif place[0] in {path for path, _ in read} and place not in matrices:
            yield f"{name}, a norm, scale or gate of a block, which has no role"


def _place(name: str) -> tuple[str, str]:
    """Return the path of the block that holds a tensor, and its module in there."""
    path, number, inside = re.match(r"(.*?)(?:\.(\d+)\.|$)(.*)", name).groups()  # type: ignore[union-attr]
    return f"{path}.{number}", inside.partition(".")[0]


def _stack(name: str) -> tuple[str, str]:
    """Return the path of the blocks that hold a tensor, and its place in its block; that is empty outside blocks."""
    match = PLACE.fullmatch(name)
    return (match[1], match[3]) if match else (name, "")
