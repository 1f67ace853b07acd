"""Does a model stand in the order that training left, and do some of its blocks stand in one order?

phi_U, phi_H, phi_E and PERMTEST rest on a random order of the units of at least one model. Training leaves them in one
(Theorem 1), but a publisher may sort a model, which changes no output. If both models are sorted, each by a
rule of its own, say by the mean of each unit's row, units of one rank meet and look alike, though neither model knows
of the other. So each model's order is tested against its own keys: a *key* is a number for each unit that does not
change when the units are renumbered, so under a random order the places are a uniform permutation of its ranks, and the
law of Spearman's correlation is exact. A sort may go up, down, or outward from the median: a key enters by its rank,
and by how far that is from the middle.

How much may a sort do that is not found? A key reaches phi_U through both models: it adds at most c z_1 z_2 / sqrt(h)
to the normal score of a block of h units, where z_1 and z_2 are the scores of the two orders, at most sqrt(h), and c is
the correlation of the key between matched units. Two faint sorts, below `LEVEL` both, have scores below 6 in a block,
so they add c 36 / sqrt(h) at most; beside a full sort, a faint one below `BESIDE` adds c 4.5. A rule unlike all keys is
found by what it has in common with one.

Blocks that repeat within a model (layers exported from ALBERT, a model made deeper by copies) stand in one order. If
both models repeat theirs at the same places, their p-values are one and the same, and Fisher's method would count it
many times. Blocks whose units have like rows at like places are found by a *sketch*: the ranks of a few units along one
random direction. Copies that were trained on stay alike; copies that were shuffled are independent again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from provlab.inference import pvalues
from provlab.inference.matching import UnitRows
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.held import once
from provlab.statistics.results import Detail

Numbers = NDArray[np.float64]

#: a model is sorted where a random order would agree with a key as well with at most this probability, over all its
#: keys and blocks: one trained model in a million
LEVEL = 1e-6
#: beside a sorted model, the other one must not look sorted at this level, or there is no p-value: one trained model in
#: a thousand. The level is not that of the first, since a full sort of one brings out the faintest of the other
BESIDE = 1e-3
#: two blocks of a model repeat each other at this level, over all its pairs of blocks
REPEATED = 1e-3
COMPONENTS = 3  # principal components of the unit rows that are keys
SKETCHED = 256  # units of a block that stand in its sketch, at most
KEYS = (
    "mean of the {}",
    "mean of the {} at length one",
    "length of the {}",
    *(f"principal component {k + 1} of the {{}}" for k in range(COMPONENTS)),
)
MLP = {"gate": "gate rows", "up": "up rows", "down": "down columns"}
PRODUCT = "product of the lengths"
_ITERATIONS = 4  # of the subspace in which principal components are looked for; near ones serve as well


@dataclass(frozen=True, eq=False, kw_only=True)
class OrderedRows(UnitRows):
    """Rows of units whose order is read.

    Attributes
    ----------
    called
        What the rows are, in the plural.
    keys
        Numbers ``(h,)`` of each unit beside those of its row, by name.
    direction
        Coordinate of each unit along a direction that all blocks of the model share, ``(h,)``; None for that of
        its row.
    """

    called: str
    keys: Mapping[str, Numbers] = field(default_factory=dict)
    direction: Numbers | None = None

    @classmethod
    def of(cls, rows: UnitRows, **others: Any) -> Self:
        """Take prepared rows, with attributes of this class."""
        return cls(**{**{name: getattr(rows, name) for name in UnitRows.__dataclass_fields__}, **others})

    @cached_property
    def order(self) -> dict[str, Any]:
        """What a record holds of the order of these units: log10 p by key, and the sketch."""
        along = along_direction(self.unit) if self.direction is None else self.direction
        return described({**keys_of(self.unit, self.lengths / self.scales, self.called), **self.keys}, along)


def keys_of(unit: NDArray[Any], lengths: Numbers, of: str) -> dict[str, Numbers]:
    """Return numbers of each unit that know nothing of where it stands, ``(h,)`` each, by name.

    Parameters
    ----------
    unit, lengths
        Rows ``(h, d)`` of length one, and how long they were.
    of
        What these are, in the plural.
    """
    basis = np.asarray(_drawn((unit.shape[1], COMPONENTS), COMPONENTS), unit.dtype)  # (d, components)
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(unit.T @ (unit @ basis))[0]  # (d, h) @ ((h, d) @ (d, components))
    # within the subspace, components in their order
    scores = unit @ basis  # (h, d) @ (d, components)
    scores = scores @ np.linalg.svd(scores, full_matrices=False)[2].T  # (h, components) @ (components, components)
    means = unit.mean(axis=1, dtype=np.float64)
    values = np.column_stack([means * lengths, means, lengths, scores]).T  # (keys, h)
    return {name.format(of): numbers for name, numbers in zip(KEYS, values, strict=False)}


def keys_of_mlp(rows: Mapping[str, NDArray[Any]]) -> dict[str, Numbers]:
    """Return numbers of each hidden unit by the weights of its MLP, ``(h, d)`` each by role: gate, up, down."""
    keys: dict[str, Numbers] = {}
    product = np.ones(1)
    for role, of in MLP.items():
        if role in rows:
            lengths = np.linalg.norm(rows[role], axis=1)
            keys |= keys_of(rows[role] / np.where(lengths > 0, lengths, 1)[:, None], lengths, of)
            product = product * lengths
    return keys | {PRODUCT: product}


def keys_of_block(checkpoint: Checkpoint, block: int, rows: Mapping[str, NDArray[Any]]) -> dict[str, Numbers]:
    """As `keys_of_mlp`, of the weights of one block, for all statistics of a study that ask for them (read-only)."""
    # sums go another way through matrices that lie otherwise in memory: records depend on no other statistic
    lie = tuple((role, rows[role].flags.c_contiguous) for role in MLP if role in rows)
    return once(checkpoint, ("keys of the MLP", block, lie), lambda: keys_of_mlp(rows))


def along_direction(rows: NDArray[Any]) -> Numbers:
    """Coordinates of rows ``(h, d)`` along one random direction, which depends on d alone."""
    d = rows.shape[1]
    return np.asarray(rows @ _drawn((d,), d).astype(rows.dtype), dtype=np.float64)  # (h, d) @ (d,)


def described(keys: Mapping[str, Numbers], along: Numbers) -> dict[str, Any]:
    """Test places against keys, and sketch the order: JSON-able, as `groups` and `findings` take it."""
    ranks = _ranks(*keys.values())  # (keys, h)
    n = ranks.shape[1]
    outward = _ranks(*np.abs(2 * ranks - (n - 1)))  # (keys, h)
    distances = pvalues.distances(np.stack([ranks, outward]))  # (2, keys)
    nearer = np.minimum(distances, (n**3 - n) // 3 - distances)
    # two sides and two forms of each key
    log10_p = np.minimum(0, pvalues.log10_p_spearman(nearer, n).min(axis=0) + np.log10(4))
    chosen = np.linspace(0, n - 1, min(n, SKETCHED)).astype(np.int64)
    return {
        "keys": dict(zip(keys, np.round(log10_p, 2).tolist(), strict=True)),
        "sketch": bytes(_ranks(along[chosen])[0].astype(np.uint8)).hex(),
    }


def of_experts(orders: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Bring the experts of a block together: the smallest p-value of each key times their number."""
    table = np.array([list(order["keys"].values()) for order in orders])
    log10_p = np.minimum(0, table.min(axis=0) + np.log10(len(orders)))
    return {**orders[0], "keys": dict(zip(orders[0]["keys"], np.round(log10_p, 2).tolist(), strict=True))}


def _ranks(*rows: NDArray[Any]) -> NDArray[np.int64]:
    """Ranks from 0 of each row of values, ``(rows, n)``.

    Values that are equal up to rounding are in a random order, which the places do not decide.
    """
    first = _first_of_equals(len(rows[0]))
    table = np.stack([np.round(row / max(np.abs(row).max(), np.finfo(float).tiny), 5) for row in rows])
    order = first[np.argsort(table[:, first], axis=1, kind="stable")]  # (rows, n)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(first))[None], axis=1)
    return ranks


@lru_cache(maxsize=64)
def _first_of_equals(n: int) -> NDArray[np.int64]:
    """Which of n places comes first where values are equal, drawn once for each n: ``(n,)``, read-only."""
    places = np.argsort(np.random.default_rng(n).random(n))
    places.setflags(write=False)
    return places


@lru_cache(maxsize=64)
def _drawn(shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """Normal numbers that depend on their shape and the seed alone, drawn once for each (read-only)."""
    drawn = np.random.default_rng(seed).standard_normal(shape)
    drawn.setflags(write=False)
    return drawn


def groups(orders: Sequence[Mapping[str, Any]]) -> NDArray[np.int64]:
    """Say which blocks of one model repeat each other: the first of its group for each, ``(L,)``."""
    sketches = [np.frombuffer(bytes.fromhex(order["sketch"]), np.uint8) for order in orders]
    n, L = min(map(len, sketches)), len(sketches)
    ranks = _ranks(*(sketch[:n] for sketch in sketches))  # (L, n)
    log10_p = pvalues.log10_p_spearman(pvalues.distances(ranks[:, None], ranks[None]), n)
    return _components((log10_p <= np.log10(REPEATED / max(1, L * (L - 1) // 2))) | np.eye(L, dtype=bool))


def _components(alike: NDArray[np.bool_]) -> NDArray[np.int64]:
    """First of those with which each is connected, ``(L,)``, by a symmetric table ``(L, L)`` that is true on itself."""
    labels = np.arange(len(alike))
    while not np.array_equal(labels, least := np.where(alike, labels, len(alike)).min(axis=1)):
        labels = least
    return labels


def findings(orders: Sequence[Mapping[str, Any]], labels: NDArray[np.int64]) -> dict[str, Any]:
    """Say by which key one model seems sorted most.

    p-values of a key are combined over blocks in two ways, of which the smaller counts twice: Fisher, for a sort that
    is weak everywhere, and the smallest, for one that is strong somewhere. Blocks that repeat each other count once.

    Returns
    -------
    dict
        ``by``, the key; ``log10_p``, corrected over keys and blocks; ``sorted``, whether that is below `LEVEL`.
    """
    table = np.array([list(order["keys"].values()) for order in orders])  # (blocks, keys)
    table = np.stack([bonferroni(column, labels) for column in table.T], axis=1)  # (blocks that differ, keys)
    L, n_keys = table.shape
    best = np.minimum(np.minimum(pvalues.fisher(table, axis=0), table.min(axis=0) + np.log10(L)) + np.log10(2), 0)
    key = int(best.argmin())
    log10_p = min(0.0, float(best[key] + np.log10(n_keys)))
    return {
        "by": list(orders[0]["keys"])[key],
        "log10_p": round(log10_p, 2),
        "sorted": bool(log10_p <= np.log10(LEVEL)),
    }


def of_pair(orders: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Detail, str | None, NDArray[np.int64]]:
    """Bring together what the blocks of a pair hold of both orders.

    Parameters
    ----------
    orders
        `described` of the first and of the second model, for each block.

    Returns
    -------
    Detail, str or None, array
        For the outcome's detail: ``order``, the `findings` of either model. If both are sorted, why there is no
        p-value. And `dependent` of the blocks. The order of a sorted model is that of its rule in every block, so all
        its blocks are one group.
    """
    sides = [[order[side] for order in orders] for side in (0, 1)]
    labels = [groups(side) for side in sides]
    results = [findings(*side) for side in zip(sides, labels, strict=True)]
    log10_p = [finding["log10_p"] for finding in results]
    both = min(log10_p) <= np.log10(LEVEL) and max(log10_p) <= np.log10(BESIDE)
    apart = dependent([label * (p > np.log10(BESIDE)) for label, p in zip(labels, log10_p, strict=True)])
    return Detail(order=results), why_withheld(results) if both else None, apart


def why_withheld(results: Sequence[Mapping[str, Any]]) -> str:
    """Say why two sorted models have no p-value, from the `findings` of either."""
    rules = (
        f"the {which} by the {finding['by']} (10^{finding['log10_p']:.0f} for a random order)"
        for which, finding in zip(("first", "second"), results, strict=True)
    )
    return (
        f"both models were sorted after training, {', '.join(rules)}; the p-value needs one of the two in the order "
        "that training left"
    )


def dependent(labels: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Which blocks of a pair may have dependent p-values: a label for each, ``(L,)``.

    Blocks are edges between the groups of one model and those of the other. The order of a group of one model against
    a group of the other is the product of two random orders; these products are independent as long as the edges close
    no circle. Blocks between the same two groups do, so they are together; so are all that hang on a longer circle.
    """
    a, b = labels
    together = _components((a[:, None] == a) | (b[:, None] == b))
    edges = a * len(a) + b
    for first in np.unique(together):
        here = together == first
        nodes = len(np.unique(a[here])) + len(np.unique(b[here]))
        if len(np.unique(edges[here])) >= nodes:
            edges[here] = -1 - first
    return edges


def bonferroni(log10_p: Numbers, labels: NDArray[np.int64]) -> Numbers:
    """One p-value for each group: the smallest in it times their number, valid under any dependence."""
    apart = [log10_p[labels == label] for label in np.unique(labels)]
    return np.array([min(0.0, float(some.min() + np.log10(len(some)))) for some in apart])
