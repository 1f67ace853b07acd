"""Which tensors differ between two models of one shape, and by how much: a description, and no test.

Tensors are paired by role and block, those without a role by name. Where the two models have more numbers than `MOST`,
the beginning, the middle and the end of each tensor are read, in proportion, so that the time is bounded: some 2 CPU
seconds for two models of any size.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InvalidWeightsError
from provlab.reading.roles import Anatomy, Weights

MOST = 2**27  # numbers that are read of a model
_PIECES = 3  # of a tensor that is read in part
_NAMED = 4  # experts, or blocks, that are named one by one


@dataclass
class _Sum:
    """What was found of one role."""

    numbers: int = 0
    read: int = 0
    differing: int = 0
    squares: float = 0.0
    of_changes: float = 0.0
    changed: dict[tuple[int | None, str], None] = field(default_factory=dict)  # (block, expert)
    seen: dict[tuple[int | None, str], None] = field(default_factory=dict)

    def add(self, at: tuple[int | None, str], x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        """Count a piece of a tensor of either model."""
        change = (y - x).ravel()
        self.read += x.size
        self.differing += int(np.count_nonzero(change))
        self.squares += float(x.ravel() @ x.ravel())
        self.of_changes += float(change @ change)
        self.seen[at] = None
        if change.any():
            self.changed[at] = None

    def row(self, role: str, numbers: int) -> dict[str, Any]:
        """Return it as it is reported."""
        relative = math.sqrt(self.of_changes / self.squares) if self.squares else float(self.of_changes > 0)
        return {
            "role": role,
            "share": self.numbers / numbers,
            "differing": self.differing / max(self.read, 1),
            "relative": relative,
            "where": _where(self.changed, self.seen),
        }


def changes(a: Weights, b: Weights, one: Anatomy, other: Anatomy) -> tuple[dict[str, Any], ...]:
    """Compare the tensors of two models that have one shape.

    Parameters
    ----------
    a, b
        The models.
    one, other
        Their anatomies.

    Returns
    -------
    tuple of dict
        One for each role of which any tensor was compared, the largest change first: ``role``; ``share`` of the first
        model's weights; share of numbers ``differing``, of those that were read; ``relative``, the length of the change
        by that of the first model's tensors; ``where`` anything differs, in words, empty where that is everywhere.
        Tensors that hold NaN or Inf are left out.
    """
    total = sum(math.prod(a.shape(name)) for name in a.tensor_names)
    sums: dict[str, _Sum] = {}
    for role, block, stacked, names in _pairs(a, b, one, other):
        kind, _, expert = role.partition(".")
        found = sums.setdefault(kind, _Sum())
        shape = a.shape(names[0])
        found.numbers += math.prod(shape)
        for rows in _rows(shape, total):
            try:
                x, y = (model.array(name, rows) for model, name in zip((a, b), names, strict=True))
            except InvalidWeightsError:
                continue
            for k in range(len(x)) if stacked else (None,):
                at = expert if k is None else str(k + (rows.start if rows else 0))
                found.add((block, at), *((x, y) if k is None else (x[k], y[k])))
    rows_found = [found.row(role, max(total, 1)) for role, found in sums.items() if found.read]
    return tuple(sorted(rows_found, key=lambda row: -row["relative"]))


def _pairs(
    a: Weights, b: Weights, one: Anatomy, other: Anatomy
) -> Iterator[tuple[str, int | None, bool, tuple[str, str]]]:
    """Yield role, block, whether experts are stacked, and the names of tensors of one shape, each in its model."""
    theirs = {(part.segments[0].role, len(part.segments), part.block, part.transposed): part for part in other.parts}
    for part in one.parts:
        key = part.segments[0].role, len(part.segments), part.block, part.transposed
        if key in theirs and a.shape(part.name) == b.shape(theirs[key].name):
            kinds = dict.fromkeys(segment.role.partition(".")[0] for segment in part.segments)
            expert = "" if part.experts else part.segments[0].role.partition(".")[2]
            role = ", ".join(kinds) + (f".{expert}" if expert else "")
            yield role, part.block, bool(part.experts), (part.name, theirs[key].name)
    named = {part.name for part in (*one.parts, *other.parts)}
    for name in sorted({*a.tensor_names} & {*b.tensor_names} - named):
        if a.shape(name) == b.shape(name) and 0 not in a.shape(name):
            yield "no role", None, False, (name, name)


def _rows(shape: tuple[int, ...], total: int) -> Iterator[range | None]:
    """Yield the rows of a tensor that are read, None for all."""
    if total <= MOST or not shape or shape[0] < _PIECES:
        yield None
        return
    n = max(1, shape[0] * MOST // total // _PIECES)
    yield from (range(start, start + n) for start in (0, (shape[0] - n) // 2, shape[0] - n))


def _where(changed: dict[tuple[int | None, str], None], seen: dict[tuple[int | None, str], None]) -> str:
    """Say where anything differs: the blocks, and experts, if these are not all."""
    if len(changed) in (0, len(seen)):
        return ""
    blocks = sorted({block for block, _ in changed if block is not None})
    experts = {expert for _, expert in changed} - {""}
    all_experts = {expert for _, expert in seen} - {""}
    words = []
    if blocks and len(blocks) < len({block for block, _ in seen}):
        words.append(f"block {_listed(blocks)}")
    if experts and experts != all_experts:
        words.append(f"expert {_listed(sorted(experts, key=lambda name: (len(name), name)))}")
    return ", ".join(words) or f"{len(changed)} of {len(seen)}"


def _listed(names: list[Any]) -> str:
    return " ".join(map(str, names)) if len(names) <= _NAMED else f"{names[0]} to {names[-1]}, {len(names)} in all"
