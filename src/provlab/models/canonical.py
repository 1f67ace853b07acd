"""Which hidden units an MLP really has: each once, and none that writes nothing.

A gated MLP adds f(x) = sum_i d_i act(g_i x) (u_i x) to the stream. SiLU, GELU and ReLU have act(z) - act(-z) = z, so
act(z) = z/2 + e(z) with e even, and units whose gates are g or -g are together e(g x) M x with M = sum_i d_i u_i^T,
plus a quadratic form, (g x)/2 times the sum of +-d_i (u_i x). The gates up to sign, the matrices M that are not zero,
and the sum of all quadratic forms say what the MLP computes. Conversely, for SiLU and GELU, f determines them: e(g x)
has poles where g x = i pi, or grows the faster along ix the longer g is, which no sum of other terms undoes (the proof
is in the notebook *Evasion*). So however an MLP is rewritten without a change of outputs, these matrices stay: copies
that share a unit's output, units that cancel, units split over g and -g or over u + w and w, decoys whose quadratic
forms cancel. The original units are hidden among them. Here units of one gate, up to sign, become as many as M has
rank, by its singular vectors, and units that write nothing go; the quadratic form is left out. The gate of a merged
unit has the sign of the part that writes most, which an adversary can choose: statistics that match by the size of the
cosine are indifferent to it. Without gates, sum_i d_i act(u_i x), units of u or -u become one whose column is the sum
of theirs, and a linear map is left out.

The change to a model follows from its own weights and activations alone, and from the numbers of its units through
random draws only: renumber its units, and the same ones are merged and left out. A merged unit stands where the part
that writes most stood, or one of those, drawn at random; the first of its parts would stand too early, in both models.
So the units that are left are in as random an order as all were, and the p-values of phi_U and phi_H remain exact
(Theorem 2 of the paper, which needs a random order of one of the two models only).
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.models.anatomy import Anatomy
from provlab.models.checkpoint import Checkpoint

Array = NDArray[np.floating[Any]]
Float64 = NDArray[np.float64]

#: a unit writes nothing if it writes less than this share of what the others write, in the mean. The least of the
#: zoo's units writes 3% by activations in the tree of 21 models, 0.02% in young ones, and 19% by weights. A larger
#: share would leave out more of what hides honest units, and many honest ones of young models with it
LIVE = 1e-4
#: gates are one, or opposite, if they differ by less than this share of the longer. The nearest two in one MLP of 768
#: models of the zoo do by 32%, the nearest two opposite ones by 40%
ONE_GATE = 0.25
#: directions of M that write less than this share of what its first one writes are rounding or noise
NEGLIGIBLE = 0.1
_NOTHING = 1e-30  # square of an output that is none
_SHADOWS = 16  # dimensions in which gates that are near each other are looked for
_ROWS = 512  # units, or pairs of them, at a time


def merged(gate: Array | None, up: Array, down: Array, activity: Array | None = None) -> Float64:
    """Say how the hidden units of one MLP become those that it really has.

    Parameters
    ----------
    gate, up
        Rows ``(h, d)`` or, with their biases as a last column, ``(h, d + 1)``; `gate` is None where there is none.
    down
        What each unit writes, as rows ``(h, d)``.
    activity
        Length of each unit's activations on some inputs, ``(h,)``: what enters the down projection. Without it, the
        length of the row that decides how much a unit fires stands for it, and units that never fire go unseen.

    Returns
    -------
    array
        float64 ``(n, 5)``, empty where all units stay as they are. A line says that into unit ``[0]`` enters unit
        ``[1]``, with the factor ``[2]`` in its up projection and activations, ``[3]`` in its gate, and ``[4]`` in its
        down projection. Units that stand second, and never first, are no more; -1 stands first where they enter none.
    """
    long_up, long_down = _lengths(up), _lengths(down)
    key, strength = (up, long_down) if gate is None else (gate, long_down * long_up)
    rate: Array = _lengths(key)  # how much a unit fires, for an up row of length one
    if activity is not None:
        rate = activity if gate is None else np.divide(activity, long_up, out=np.zeros(len(up)), where=long_up > 0)
    writes = strength * rate
    some = np.flatnonzero(writes)
    rng = np.random.default_rng([*hashlib.sha256(np.ascontiguousarray(up).tobytes()).digest()])
    lines = []
    groups = [(some[group], sides) for group, sides in _of_one_gate(key[some], writes[some], rng)]
    sums = (_one if gate is None else spanned)([units for units, _ in groups], up, down)
    for (units, sides), (written, of_up, of_down) in zip(groups, sums, strict=True):
        places = units[np.lexsort((rng.random(len(units)), -strength[units]))][: len(written)]
        writes[units] = 0
        writes[places] = written * rate[units].mean()
        mean = sides / len(units)  # of what decides how much they fire
        for place, *factors in zip(places, of_up, of_down, strict=True):
            line = np.full(len(units), place), units, mean if gate is None else factors[0], mean, factors[1]
            lines.append(np.column_stack(line))
    alive = writes > LIVE * (writes @ writes) / max(writes.sum(), np.finfo(float).tiny)
    lines = [line for line in lines if alive[int(line[0, 0])]]
    lines += [np.array([[-1, unit, 0, 0, 0]]) for unit in np.flatnonzero(~alive)]
    return np.concatenate(lines) if lines else np.empty((0, 5))


def applied(units: Float64, rows: NDArray[Any], role: str) -> NDArray[Any]:
    """Rows ``(h, columns)`` of the units that there really are; those of the others are zero.

    Parameters
    ----------
    units
        ``(n, 5)``, as `merged` gives it.
    rows
        Weights or activations, which are left as they are.
    role
        ``"up"``, also for what enters the down projection, ``"gate"``, or ``"down"`` for its columns.
    """
    if not len(units):
        return rows
    place, unit = units[:, :2].astype(np.int64).T
    result = np.array(rows)
    result[unit] = 0
    enter = place >= 0
    place, unit = place[enter], unit[enter]
    factors = units[enter, 2 + ("up", "gate", "down").index(role)].astype(result.dtype)
    order = np.argsort(place, kind="stable")
    _, starts, counts = np.unique(place[order], return_index=True, return_counts=True)
    turn = np.arange(len(order)) - np.repeat(starts, counts)
    for nth in range(counts.max(initial=0)):  # the nth of what enters each place: np.add.at takes many times as long
        some = order[turn == nth]
        result[place[some]] += factors[some, None] * rows[unit[some]]
    return result


def shares(gate: Array, up: Array, down: Array) -> Float64:
    """Say what share of an MLP's output each unit writes, of the part that no rewriting changes: sum d e(g x) (u x).

    Parameters
    ----------
    gate, up
        Activations ``(h, tokens)`` of the units that there really are.
    down
        What each of them writes, as rows ``(h, d)``.

    Returns
    -------
    array
        ``(h,)``, with sum 1: the mean over tokens of <y_i, y> / <y, y>, where unit i adds y_i to y. Units that cancel
        each other have shares of opposite signs. All shares are zero where nothing is written.
    """
    total = np.zeros(len(gate))
    for some in np.array_split(np.arange(gate.shape[1]), 1 + gate.size // 2**24):
        visible = gate[:, some].astype(np.float32)
        hidden = visible * np.tanh(visible / 2) / 2 * up[:, some]  # e of SiLU; of GELU it is nearly as large
        written = down.T @ hidden
        squares = np.einsum("ij,ij->j", written, written)
        total += np.einsum("ij,ij->i", hidden, down @ (written / np.maximum(squares, _NOTHING)))
    return total / gate.shape[1]


def by_weights(
    checkpoint: Checkpoint, anatomy: Anatomy, block: int | None, up: Array, down: Array, gate: Array | None = None
) -> Float64:
    """As `merged`, of one block of a model that is not run.

    Parameters
    ----------
    up, down
        Rows ``(h, d)``, as read or turned alike; the gate and biases are read.
    gate
        Rows of the gate projection, if they were read already.
    """

    def rows(role: str, *known: Array) -> Array:
        roles = [name for name in (role, f"{role}_bias")[len(known) :] if anatomy.has(name)]
        return np.column_stack([*known, *(anatomy.read(checkpoint, name, block) for name in roles)])

    known = [] if gate is None else [gate]
    return merged(rows("gate", *known) if anatomy.has("gate") else None, rows("up", up), down)


def up_rows(
    checkpoint: Checkpoint, anatomy: Anatomy, block: int | None, rows: NDArray[Any], places: NDArray[np.int64]
) -> Array:
    """Up projection of one block after `by_weights`, ``(h, d)``; `rows` are those that are not zero."""
    up = np.zeros((anatomy.mlp_width, rows.shape[1]), rows.dtype)
    up[places] = rows
    return applied(by_weights(checkpoint, anatomy, block, up, anatomy.read(checkpoint, "down", block).T), up, "up")


def _lengths(rows: Array) -> Float64:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


def _of_one_gate(
    gates: Array, writes: Float64, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the units of each gate that has several, and the sign of each: those near the one that writes most, first.

    Units whose gate is nearly the opposite have the sign -1.
    """
    if not len(gates):
        return
    lengths = _lengths(gates)
    # shadows of directions are as far apart as the directions are, give or take a half: few pairs are looked at
    shadows = gates @ rng.normal(size=(gates.shape[1], _SHADOWS)) / lengths[:, None] / _SHADOWS**0.5
    squares = (shadows**2).sum(axis=1)
    near: dict[int, dict[int, int]] = defaultdict(dict)  # unit -> those near it, and whether by their opposite
    for start in range(0, len(gates), _ROWS):
        apart = squares[start : start + _ROWS, None] + squares - 2 * abs(shadows[start : start + _ROWS] @ shadows.T)
        i, j = np.nonzero(apart <= (2 * ONE_GATE) ** 2)
        pairs = np.column_stack([i + start, j])[i + start < j]
        for some in np.array_split(pairs, 1 + len(pairs) // _ROWS):
            i, j = some.T
            sides = np.where(np.einsum("ij,ij->i", gates[i], gates[j]) < 0, -1, 1)
            close = _lengths(gates[i] - sides[:, None] * gates[j]) <= ONE_GATE * np.maximum(lengths[i], lengths[j])
            for unit, other, side in np.column_stack([some, sides])[close].tolist():
                near[unit][other] = near[other][unit] = side
    order = dict(zip(near, rng.random(len(near)).tolist(), strict=True))  # of units that write alike
    left = set(near)
    for first in sorted(near, key=lambda unit: (-writes[unit], order[unit])):
        if first not in left:
            continue
        group = {first: 1} | {unit: side for unit, side in near[first].items() if unit in left}
        if len(group) > 1:
            left.difference_update(group)
            units, sides = np.array(sorted(group.items())).T
            yield units, sides


def spanned(groups: list[NDArray[np.int64]], up: Array, down: Array) -> Iterator[tuple[Float64, Float64, Float64]]:
    """Units ``(r,)`` of M = sum d u^T of each group: what they write, the factors of `up` and of `down`, ``(r, k)``.

    A singular vector has two signs: the one that has more of the rows of `up` on its side is chosen. Groups of one
    size are solved together: there are hundreds.
    """
    for _, alike in groupby(groups, key=len):
        units = np.stack(list(alike))  # (groups, k)
        ups, downs = up[units].astype(float), down[units].astype(float)
        (lefts, of_left), (rights, of_right) = np.linalg.qr(downs.mT), np.linalg.qr(ups.mT)
        solved = np.linalg.svd(of_left @ of_right.mT)
        for d, left, u, right, outer, written, inner in zip(downs, lefts, ups, rights, *solved, strict=True):
            n = int((written > NEGLIGIBLE * written[0]).sum())
            columns, rows = d @ left @ outer[:, :n], u @ right @ inner.T[:, :n]  # (k, r)
            signs = np.where(rows.sum(axis=0) < 0, -1, 1)
            yield written[:n], (signs * columns / written[:n]).T, (signs * rows).T


def _one(groups: list[NDArray[np.int64]], up: Array, down: Array) -> Iterator[tuple[Float64, Float64, Float64]]:
    """As `spanned`, of units without a gate."""
    for units in groups:
        yield (
            _lengths(down[units].astype(float).sum(axis=0)[None]),
            np.full((1, len(units)), 1 / len(units)),
            np.ones((1, len(units))),
        )
