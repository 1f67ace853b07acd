"""How many numbers of a model play which role, and which of those that play none may be hidden units.

A statistic reads roles. What has none is read by no statistic: a verdict says how much that is. Where it may be hidden
units, as many as an MLP of the model has, a copy could hide there (`provlab.report.outcome`).
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from provlab.reading.part import PLACE, below
from provlab.reading.roles import Anatomy, Tensors

#: words in the names of modules that mix tokens, whose matrices look like an MLP's by their shapes
_MIXING = re.compile(
    r"attn|attention|(^|\.)[qkvo]_proj|mamba|ssm|conv|temporal|recurrent|retention|time_mix|delta|lightning|linear_x|_integer$",
    re.IGNORECASE,
)  # fmt: skip
#: roles of MLPs, and of their experts
_UNITS = ("gate", "up", "down")


def coverage(checkpoint: Tensors, anatomy: Anatomy) -> dict[str, Any]:
    """Count the numbers of a model by what they are.

    Returns
    -------
    dict
        ``numbers``: of all tensors, or of those of the part that was asked for. ``roles``: by role, experts together.
        ``unnamed``: of tensors without a role, by place, numbers in it left out. ``hidden``: of those among them, by
        place, which may be hidden units. ``block``: of the MLPs that a token passes at least in a
        block, its dense and shared ones and one expert, on average; 0 without blocks.
    """
    piece = getattr(checkpoint, "piece", None)
    names = below(checkpoint.tensor_names, piece.prefix if piece else "")
    size = {name: math.prod(checkpoint.shape(name)) for name in names}
    roles: Counter[str] = Counter()
    passed, routed = 0, Counter[int | None]()  # by all tokens; and by those that a router sends there, of a block
    for part in anatomy.parts:
        rows = sum(part.sizes)
        for segment, own in zip(part.segments, part.sizes, strict=True):
            kind = segment.role.partition(".")[0].removesuffix("_bias")
            numbers = size.get(part.name, 0) * own // max(rows, 1)
            roles[kind] += numbers
            if kind in _UNITS and segment.role.rpartition(".")[2].isdigit():
                routed[part.block] += numbers
            elif kind in _UNITS:
                passed += numbers
    left = size.keys() - {part.name for part in anatomy.parts}
    unnamed: Counter[str] = Counter()
    for name in sorted(left):
        unnamed[_place(name)] += size[name]
    hidden: Counter[str] = Counter()
    for name in _units(checkpoint, anatomy, sorted(left)):
        hidden[_place(name)] += size[name]
    for block, numbers in routed.items():
        passed += numbers // sum(name.isdigit() for name in anatomy.mlps(block))
    return {
        "numbers": sum(size.values()),
        "roles": dict(roles),
        "unnamed": dict(unnamed),
        "hidden": dict(hidden),
        "block": passed // anatomy.n_blocks if anatomy.n_blocks else 0,
    }


def _place(name: str) -> str:
    """Return the module of a tensor, with stars in place of its numbers."""
    return ".".join("*" if word.isdigit() else word for word in name.removesuffix(".weight").split("."))


def _units(checkpoint: Tensors, anatomy: Anatomy, names: list[str]) -> Iterator[str]:
    """Yield tensors without a role, in blocks that were read, that may be hidden units: matrices in and out of them.

    That is (m, d) beside (d, m) in one block, or (2 m, d) where two projections are fused, and the same of experts.
    """
    stacks = {match[1] for part in anatomy.parts if part.block is not None and (match := PLACE.fullmatch(part.name))}
    blocks: dict[tuple[str, str], list[str]] = {}
    for name in names:
        match = PLACE.fullmatch(name)
        if match and match[1] in stacks and not _MIXING.search(match[3]) and len(checkpoint.shape(name)) in (2, 3):
            blocks.setdefault((match[1], match[2]), []).append(name)
    for inside in blocks.values():
        ends = {name: _lengths(checkpoint.shape(name), anatomy.width) for name in inside}
        for name, length in ends.items():
            others = {other for key, other in ends.items() if key != name and other}
            if length and others & {length, 2 * length, length / 2}:
                yield name


def _lengths(shape: tuple[int, ...], width: int) -> float:
    """Return how many units a matrix between them and the stream may have; 0 for one that has no such end."""
    rows, columns = shape[-2:]
    if (rows == width) == (columns == width):
        return 0.0
    return float(columns if rows == width else rows)
