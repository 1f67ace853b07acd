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

An adversary may add units that write a lot together with others that take it back, as few as two. So nothing here is
measured against a sum or a maximum over units alone: what is small is small beside the upper quartile of units, or
beside what the MLP adds to the stream once its mean over the text is taken out, which no disguise can change. Where
the model is run, gates are compared by what they give on the text, so that rows which differ where the stream carries
nothing (a padded width) are still seen to be one.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from provlab.arrays import Values, beside, here, squared, sum_of_squares
from provlab.reading.anatomy import Anatomy
from provlab.reading.checkpoint import Checkpoint

Array = NDArray[np.floating[Any]]
Float64 = NDArray[np.float64]

#: a unit writes nothing if it writes less than this share of what a unit of the upper quartile writes, or of its part
#: in the output if that is less. The least of the zoo's units writes 3% of the mean by activations in the tree of 21
#: models, 0.02% in young ones, and 19% by weights. A larger share would leave out more of what hides honest units, and
#: many honest ones of young models with it
LIVE = 1e-4
#: gates are one, or opposite, if they differ by less than this share of the longer. The nearest two in one MLP of 768
#: models of the zoo do by 32%, the nearest two opposite ones by 40%; by what they give on text, by 45%
ONE_GATE = 0.25
#: directions of M that write less than this share of what its first one writes are rounding or noise
NEGLIGIBLE = 0.1
SEEN = 128  # positions of the text at which gates are compared; fewer than `_FEW` say too little
_FEW = 16
_ROUNDING = 1e-6  # of the longest part: units of one gate that write less together write nothing
_NOTHING = 1e-30  # square of an output that is none
_SHADOWS = 32  # dimensions in which gates that are near each other are looked for
_ROWS = 512  # units, or pairs of them, at a time
JUDGED = 512  # positions of the text at which shares are measured
AS_THEY_ARE = np.empty((0, 5))  # of `merged`: no unit is merged or left out


def merged(
    gate: Values | None,
    up: Values,
    down: Values,
    activity: Array | None = None,
    *,
    on_text: Array | None = None,
    output: float | None = None,
) -> Float64:
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
    on_text
        What the gates give on some of these inputs, or the up rows where there is no gate, ``(h, inputs)``: by it gates
        are compared; by their rows without it, or with too few inputs.
    output
        Length of what the MLP writes on the inputs of `activity`, its mean over them taken out.

    Notes
    -----
    Matrices may lie on a device (`provlab.arrays`): it shows which units write nothing, and that no two gates are near,
    as in honest models. Where some are, the block comes here, and its units are merged as those of a model that never
    left the CPU: which of equal parts a merged unit takes the place of is drawn from the lengths to their last bit.

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
    spread = rate
    if on_text is not None and on_text.shape[1] >= _FEW:
        # constants apart, by which alone two gates would be alike
        key, spread = beside(up, on_text), _lengths(on_text - on_text.mean(axis=1, keepdims=True))
    if activity is not None:
        rate = activity if gate is None else np.divide(activity, long_up, out=np.zeros(len(up)), where=long_up > 0)
    writes = strength * rate
    some = np.flatnonzero((writes > 0) & (spread > 0))
    # the lengths stand for the units whatever their order; hashing all weights would take as long as the rest
    stands_for = np.sort(np.stack([long_up, long_down]), axis=1)  # (2, h)
    rng = np.random.default_rng([*hashlib.sha256(stands_for.tobytes()).digest()])
    lines = []
    groups = [(some[group], sides) for group, sides in _of_one_gate(key[some], spread[some], writes[some], rng)]
    if groups and not isinstance(up, np.ndarray):
        gate = None if gate is None else here(gate)
        return merged(gate, here(up), here(down), activity, on_text=on_text, output=output)
    sums = (_one if gate is None else spanned)([units for units, _ in groups], up, down)
    for (units, sides), (written, of_up, of_down) in zip(groups, sums, strict=True):
        places = units[np.lexsort((rng.random(len(units)), -strength[units]))][: len(written)]
        writes[units] = 0
        writes[places] = written * (written > _ROUNDING * strength[units].max()) * rate[units].mean()
        mean = sides / len(units)  # of what decides how much they fire
        for place, *factors in zip(places, of_up, of_down, strict=True):
            line = np.full(len(units), place), units, mean if gate is None else factors[0], mean, factors[1]
            lines.append(np.column_stack(line))
    alive = writes > LIVE * _usual(writes, output)
    lines = [line for line in lines if alive[int(line[0, 0])]]
    lines += [np.array([[-1, unit, 0, 0, 0]]) for unit in np.flatnonzero(~alive)]
    return np.concatenate(lines) if lines else np.empty((0, 5))


def _usual(writes: Float64, output: float | None) -> float:
    """Output of a unit that is no exception: few loud units do not raise it, and many faint ones can only lower it."""
    some = writes[writes > 0]
    if not len(some):
        return 0.0
    upper = float(np.quantile(some, 0.75))
    return upper if output is None else min(upper, output / len(some) ** 0.5)


def applied(units: Float64, rows: Values, role: str) -> Values:
    """Rows ``(h, columns)`` of the units that there really are; those of the others are zero.

    Parameters
    ----------
    units
        ``(n, 5)``, as `merged` gives it.
    rows
        Weights or activations, which are left as they are; the result lies where they lie.
    role
        ``"up"``, also for what enters the down projection, ``"gate"``, or ``"down"`` for its columns.
    """
    if not len(units):
        return rows
    place, unit = units[:, :2].astype(np.int64).T
    xp = array_api_compat.array_namespace(rows)
    result = xp.asarray(rows, copy=True)
    result[unit] = 0
    enter = place >= 0
    place, unit = place[enter], unit[enter]
    factors = xp.astype(beside(rows, units[enter, 2 + ("up", "gate", "down").index(role)]), rows.dtype)
    order = np.argsort(place, kind="stable")
    _, starts, counts = np.unique(place[order], return_index=True, return_counts=True)
    turn = np.arange(len(order)) - np.repeat(starts, counts)
    for nth in range(counts.max(initial=0)):  # the nth of what enters each place: np.add.at takes many times as long
        some = order[turn == nth]
        result[place[some]] += factors[some, None] * rows[unit[some]]
    return result


def silu(z: Values) -> Values:
    """SiLU, z / (1 + exp(-z))."""
    return z * (array_api_compat.array_namespace(z).tanh(z / 2) + 1) / 2


def shares(
    gate: Array, up: Array | None, down: Values, units: Float64 = AS_THEY_ARE, act: Callable[[Values], Values] = silu
) -> Float64:
    """Say what share of an MLP's output each unit writes, by squares, what is constant over the text taken out.

    An adversary may add units that cancel each other, or of which a bias takes back what they write. So the whole is
    what the MLP writes, or what its units write one by one if that is less; in trained models it is 0.25 to 0.5 of it.

    Parameters
    ----------
    gate, up
        Activations ``(h, tokens)`` of all units, as they stand in the model; of an MLP without gates those of its up
        projection, and None.
    down
        What each of them writes, as rows ``(h, d)``. All is computed where these lie (`provlab.arrays`).
    units
        As `merged` gives it: shares are those of the units that there really are.
    act
        The activation function.

    Returns
    -------
    array
        ``(h,)``, with sum 1, or more where units cancel each other; zero for units that are no more, and for all where
        nothing is written. Tokens count alike, however much is written at them.
    """
    some = np.linspace(0, gate.shape[1] - 1, min(gate.shape[1], JUDGED)).astype(np.int64)
    xp = array_api_compat.array_namespace(down)
    visible = beside(down, np.asarray(gate[:, some], np.float32))
    factor = None if up is None else beside(down, np.asarray(up[:, some], np.float32))
    hidden = act(visible) if factor is None else act(visible) * factor
    output = down.T @ hidden  # (d, h) @ (h, tokens)
    output = output - xp.mean(output, axis=1, keepdims=True)
    squares = sum_of_squares(output, 0)  # (d, tokens) -> (tokens,)
    weights = 1 / np.maximum(squares + np.median(squares), _NOTHING)
    weights /= weights.sum()
    if len(units):
        hidden = act(applied(units, visible, "gate"))
        if factor is not None:
            hidden *= applied(units, factor, "up")
        down = applied(units, down, "down")
    exact = squared(hidden - xp.mean(hidden, axis=1, keepdims=True))
    each = np.square(_lengths(down)) * here(exact @ beside(exact, weights))  # (h, tokens) @ (tokens,)
    whole = min(float(each.sum()), float(squares @ weights))  # (tokens,) @ (tokens,)
    return each / whole if whole > _NOTHING else np.zeros(len(each))


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
        # (h, d + 1) with a bias
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


def _lengths(rows: Values) -> Float64:
    return np.sqrt(sum_of_squares(rows, 1))  # (h, d) -> (h,)


def _of_one_gate(
    gates: Values, spread: Array, writes: Float64, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the units of each gate that has several, and the sign of each: those near the one that writes most, first.

    Units whose gate is nearly the opposite have the sign -1. Two are near if they differ by `ONE_GATE` of the longer
    `spread`, which is their length, constants apart.
    """
    near: dict[int, dict[int, int]] = defaultdict(dict)  # unit -> those near it, and whether by their opposite
    for i, j, side in near_pairs(gates, spread, ONE_GATE, rng):
        near[i][j] = near[j][i] = side
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


def near_pairs(rows: Values, spread: Array, within: float, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Pairs i < j of rows ``(h, d)`` that differ by at most `within` of the larger `spread`, and a sign.

    A sign of -1 says that they are nearly opposite. Long rows are looked at if their shadows in `_SHADOWS` random
    directions are near, which are as far apart as the rows are, give or take a half.
    """
    if not len(rows):
        return []
    xp = array_api_compat.array_namespace(rows)
    shadows, slack = rows, 1.001
    if rows.shape[1] > SEEN:
        drawn = xp.astype(beside(rows, rng.normal(size=(rows.shape[1], _SHADOWS))), rows.dtype)
        shadows, slack = rows @ (drawn / float(np.float32(_SHADOWS**0.5))), 2.0  # (h, d) @ (d, shadows)
    squares = here(xp.einsum("ij,ij->i", shadows, shadows))  # (h, shadows) -> (h,)
    bound = np.square(slack * within * spread).astype(squares.dtype)
    # the widest first, so that the bound of a pair is that of its first: memory is passed over as seldom as may be
    widest = np.argsort(-bound, kind="stable")
    shadows = shadows[widest]
    halves, least = beside(rows, squares[widest] / 2), beside(rows, (squares - bound)[widest, None] / 2)
    pairs = []
    for start in range(0, len(rows), _ROWS):
        some = slice(start, start + _ROWS)
        # |x -+ y|^2 <= bound where |x y| - |y|^2 / 2 >= (|x|^2 - bound) / 2; pairs before these have been looked at
        alike = shadows[some] @ shadows[start:].T  # (some h, shadows) @ (shadows, h)
        xp.abs(alike, out=alike)
        alike -= halves[start:]
        numbers = here(xp.nonzero(xp.reshape(alike >= least[some], (-1,)))[0])
        i, j = np.divmod(numbers, alike.shape[1])
        ends = np.sort(widest[np.stack([i, j])[:, i < j] + start], axis=0)  # (2, pairs)
        for some_i, some_j in np.array_split(ends, 1 + len(i) // _ROWS, axis=1):
            first, second = rows[some_i], rows[some_j]
            # (pairs, d) with (pairs, d) -> (pairs,)
            side = np.where(here(xp.einsum("ij,ij->i", first, second)) < 0, -1, 1)
            turned = beside(rows, side[:, None].astype(np.float64)) * second  # float64, in which differences are exact
            close = _lengths(first - turned) <= within * np.maximum(spread[some_i], spread[some_j])
            pairs += np.column_stack([some_i, some_j, side])[close].tolist()
    return sorted((i, j, side) for i, j, side in pairs)


def spanned(groups: list[NDArray[np.int64]], up: Array, down: Array) -> Iterator[tuple[Float64, Float64, Float64]]:
    """Units ``(r,)`` of M = sum d u^T of each group: what they write, the factors of `up` and of `down`, ``(r, k)``.

    A singular vector has two signs: the one that has more of the rows of `up` on its side is chosen. Groups of one
    size are solved together: there are hundreds.
    """
    for _, alike in groupby(groups, key=len):
        units = np.stack(list(alike))  # (groups, k)
        ups, downs = up[units].astype(float), down[units].astype(float)
        long_up, long_down = (np.linalg.norm(rows, axis=2)[:, None] for rows in (ups, downs))  # (groups, 1, k)
        if units.shape[1] == 1 and (long_up * long_down > 0).all():  # M = d u^T has one singular value, |d| |u|
            yield from zip((long_up * long_down)[:, 0], 1 / long_up, long_up, strict=True)
            continue
        (lefts, of_left), (rights, of_right) = np.linalg.qr(downs.mT), np.linalg.qr(ups.mT)
        outer, written, inner = np.linalg.svd(of_left @ of_right.mT)  # (groups, k, k) @ (groups, k, k)
        counts = (written > NEGLIGIBLE * written[:, :1]).sum(axis=1)
        solved: dict[int, tuple[Float64, Float64, Float64]] = {}
        for n in map(int, np.unique(counts)):
            some = np.flatnonzero(counts == n)
            writes = written[some, :n]
            # (groups, k, d) @ (groups, d, k) @ (groups, k, n)
            columns = downs[some] @ lefts[some] @ outer[some][:, :, :n]
            rows = ups[some] @ rights[some] @ inner[some].mT[:, :, :n]
            signs = np.where(rows.sum(axis=1) < 0, -1, 1)[:, None]
            of_up, of_down = (signs * columns / writes[:, None]).mT, (signs * rows).mT
            solved |= zip(some.tolist(), zip(writes, of_up, of_down, strict=True), strict=True)
        yield from (solved[place] for place in range(len(units)))


def _one(groups: list[NDArray[np.int64]], up: Array, down: Array) -> Iterator[tuple[Float64, Float64, Float64]]:
    """As `spanned`, of units without a gate."""
    for units in groups:
        yield (
            _lengths(down[units].astype(float).sum(axis=0)[None]),
            np.full((1, len(units)), 1 / len(units)),
            np.ones((1, len(units))),
        )
