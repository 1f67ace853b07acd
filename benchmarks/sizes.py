"""How often independent models are rejected: rates at 0.05, 0.01 and 0.001 over synthetic pairs, case by case.

``python benchmarks/sizes.py`` prints each statistic with the cases that bear on it (`EVERY`, `MEANT`), ``python
benchmarks/sizes.py sorted common-5`` some cases, and ``--pairs``, ``--units`` and ``--blocks`` set how many. ``--csv
src/provlab_study/attack_lab/sizes.csv`` keeps the rows where the book's appendix reads them, each as soon as it is
measured. It measures those alone that the file lacks, that are of another version of the statistic or of fewer pairs,
or that are named. A case makes both models of a pair out of random numbers; a statistic reads them without a
checkpoint. Those of the zoo are trained models, which the zoo trains where they are not there yet. Cases of common and
swapped units say how far phi_MATCH's assumption reaches, and its size above them is no fault.
"""

import argparse
import csv
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from provlab import provenance, studying
from provlab.attest import fingerprint, kin
from provlab.errors import NotComparableError, NoUnitsError
from provlab.inference import pvalues
from provlab.reading import anatomy
from provlab.reading.canonical import SEEN, applied, merged, shares
from provlab.reading.checkpoint import Checkpoint
from provlab.report.decide import ORDER, REJECTED, Test, decide
from provlab.report.family import LEVEL
from provlab.statistics import get, order
from provlab.statistics.alive import living_rows
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.order import OrderedRows
from provlab.statistics.phi_anchor import BlockUnits
from provlab.statistics.phi_h import HiddenActivations
from provlab.statistics.phi_l2 import BlockWeights
from provlab.statistics.phi_match import GateAndUp
from provlab.statistics.phi_u import correlation_with_identity
from provlab.statistics.results import BlockResult, Outcome

Array = NDArray[np.float64]
LEVELS = (0.05, 0.01, 0.001)
TOKENS = 256
NONE = np.empty((0, 5))  # no unit is merged or left out


@dataclass
class Mlps:
    """The MLPs of a model: gate, up and down rows, ``(blocks, units, width)`` each.

    Its embedding, where that is not made of the units, and rows of tokens that were added to it.
    """

    gate: Array
    up: Array
    down: Array
    table: NDArray[np.float32] | None = None
    added: Array | None = None

    def ordered(self, order: Callable[[Array], NDArray[np.int64]]) -> "Mlps":
        """Units of each block in the order that `order` makes of their (gate, up, down) rows ``(3, units, width)``."""
        stacked = np.stack([self.gate, self.up, self.down], axis=1)
        return Mlps(*np.stack([rows[:, order(rows)] for rows in stacked]).swapaxes(0, 1))


def drawn(shape: tuple[int, int, int], rng: np.random.Generator) -> Mlps:
    """Independent normal rows; units differ in size, as trained ones do."""
    return Mlps(*(rng.normal(size=shape) * rng.gamma(4, size=(*shape[:2], 1)) for _ in range(3)))


def two(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """Two independent models."""
    return drawn(shape, rng), drawn(shape, rng)


def by_size(rows: Array) -> NDArray[np.int64]:
    """Order of units by what they write."""
    return np.argsort(np.linalg.norm(rows, axis=2).prod(axis=0))


def by_mean(rows: Array) -> NDArray[np.int64]:
    """Order of units by the means of their up rows."""
    return np.argsort(rows[1].mean(axis=1))


def by_length(rows: Array) -> NDArray[np.int64]:
    """Order of units by the lengths of their up rows."""
    return np.argsort(np.linalg.norm(rows[1], axis=1))


def by_component(rows: Array) -> NDArray[np.int64]:
    """Order of units by the first principal component of their up rows."""
    unit = rows[1] / np.linalg.norm(rows[1], axis=1, keepdims=True)
    return np.argsort(unit @ np.linalg.svd(unit, full_matrices=False)[2][0])


def by_activity(rows: Array) -> NDArray[np.int64]:
    """Order of units by their mean squared activation on inputs of the model's own."""
    inputs = np.random.default_rng(0).normal(size=(rows.shape[2], TOKENS)) + 0.3
    gate, up = rows[0] @ inputs, rows[1] @ inputs
    return np.argsort(np.square(gate / (1 + np.exp(-gate)) * up).mean(axis=1))


#: rules that are none of the keys of `provlab.statistics.order`, each a number for each unit of (gate, up, down) rows
UNKNOWN: dict[str, Callable[[Array], Array]] = {
    "first": lambda rows: rows[1][:, 0],
    "even-odd": lambda rows: rows[1][:, ::2].sum(axis=1) - rows[1][:, 1::2].sum(axis=1),
    "direction": lambda rows: rows[1] @ np.random.default_rng(9).normal(size=rows.shape[2]),
    "argmax": lambda rows: np.abs(rows[1]).argmax(axis=1) + 0.01 * np.abs(rows[1]).max(axis=1),
    "third": lambda rows: rows[1][:, : rows.shape[2] // 3].mean(axis=1),
    "gate-first": lambda rows: rows[0][:, 0],
    "down-first": lambda rows: rows[2][:, 0],
    "product": lambda rows: rows[0][:, 0] * rows[1][:, 1],
    "kurtosis": lambda rows: np.power(rows[1], 4).mean(axis=1) / np.square(rows[1]).mean(axis=1) ** 2,
    "positive": lambda rows: (rows[1] > 0).sum(axis=1) + 1e-3 * rows[1][:, 0],
}


def of_other_means(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """Two independent models whose rows differ in their means, each sorted by these."""
    models = two(shape, rng)
    for model in models:
        model.up += 2 * rng.normal(size=(*shape[:2], 1))
    return tuple(model.ordered(by_mean) for model in models)  # type: ignore[return-value]


def tied(cosine: float, shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """Each unit's gate and up have this cosine, up to a sign of each."""
    a, b = two(shape, rng)
    for model in (a, b):
        sign = rng.choice([-1, 1], size=(*shape[:2], 1))
        model.up = sign * (cosine * model.gate + np.sqrt(1 - cosine**2) * model.up)
    return a, b


def planted(share: float, shape: tuple[int, int, int], rng: np.random.Generator, *, swapped: bool) -> tuple[Mlps, Mlps]:
    """A share of the units stands in both models, as they are or with the up rows of two exchanged."""
    a, b = two(shape, rng)
    for block in range(shape[0]):
        which = rng.permutation(shape[1])[: rng.binomial(shape[1] // 2, share) * 2 if swapped else None]
        which = which if swapped else which[: rng.binomial(shape[1], share)]
        there = rng.permutation(shape[1])[: len(which)]
        b.gate[block, there] = a.gate[block, which]
        half = len(which) // 2
        b.up[block, there] = a.up[block, np.roll(which, half) if swapped else which]
    return a, b


def masked(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """Both are pruned by one public mask that leaves a tenth."""
    a, b = two(shape, rng)
    mask = rng.random((3, *shape)) < 0.1
    return tuple(Mlps(m.gate * mask[0], m.up * mask[1], m.down * mask[2]) for m in (a, b))  # type: ignore[return-value]


def repeated(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """Each model has one block, stored many times."""
    alike = [drawn((1, *shape[1:]), rng) for _ in range(2)]
    return tuple(Mlps(*(np.repeat(x, shape[0], axis=0) for x in (m.gate, m.up, m.down))) for m in alike)  # type: ignore[return-value]


def dead(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """Each model's MLPs write nothing in a block of its own, drawn at random, and in the last one in half of them."""
    a, b = two(shape, rng)
    for model in (a, b):
        model.down[rng.integers(shape[0] - 1) if rng.random() < 0.5 else -1] = 0
    return a, b


def bridging(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """A model, and the mean of two others: a bridge between families of which the first is in neither."""
    a, b = two(shape, rng)
    c = drawn(shape, rng)
    return a, Mlps(*((x + y) / 2 for x, y in ((b.gate, c.gate), (b.up, c.up), (b.down, c.down))))


def with_added(shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """Each has 32 more tokens after training, drawn from one seed."""
    models = two(shape, rng)
    rows = rng.normal(size=(32, shape[2])) / shape[2] ** 0.5
    for model in models:
        model.added = rows
    return models


#: tiny models that were trained or distilled: 45 of a kind, in 990 pairs
STUDENTS = ("trained", "trained-tied", "distilled", "distilled-tied")
MOST = 990
_pairs: dict[str, Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]] = {}


def students(name: str, shape: tuple[int, int, int], rng: np.random.Generator) -> tuple[Mlps, Mlps]:
    """The next pair of tiny models that were trained so: all pairs, and no other one after them."""
    from tiny_students import Way, embeddings  # torch, and minutes of training

    if name not in _pairs:
        made = embeddings(Way(tied="tied" in name, soft="distilled" in name, bytes="bytes" in name))
        _pairs[name] = combinations(made.reshape(-1, *made.shape[2:]), 2)
    models = two(shape, rng)
    for model, rows in zip(models, next(_pairs[name]), strict=True):
        model.table = rows
    return models


CASES: dict[str, Callable[[tuple[int, int, int], np.random.Generator], tuple[Mlps, Mlps]]] = {
    "plain": two,
    "sorted": lambda shape, rng: tuple(model.ordered(by_size) for model in two(shape, rng)),  # type: ignore[dict-item,return-value]
    "sorted-mean": of_other_means,
    **{
        f"sorted-{rule.__name__.removeprefix('by_')}": lambda shape, rng, rule=rule: tuple(  # type: ignore[misc]
            model.ordered(rule) for model in two(shape, rng)
        )
        for rule in (by_length, by_component, by_activity)
    },
    "dead": dead,
    "bridge": bridging,
    "one-block": lambda shape, rng: two((1, *shape[1:]), rng),
    "one-block-sorted": lambda shape, rng: tuple(model.ordered(by_size) for model in two((1, *shape[1:]), rng)),  # type: ignore[dict-item,return-value]
    **{
        f"sorted-{name}": lambda shape, rng, rule=rule: tuple(  # type: ignore[misc]
            model.ordered(lambda rows: np.argsort(rule(rows))) for model in two(shape, rng)
        )
        for name, rule in UNKNOWN.items()
    },
    "added": with_added,
    **{
        name: lambda shape, rng, name=name: students(name, shape, rng)  # type: ignore[misc]
        for name in STUDENTS
    },
    "masked": masked,
    "repeated": repeated,
    **{f"tied-{c:g}": lambda shape, rng, c=c: tied(c, shape, rng) for c in (0.5, 0.7, 0.8, 0.9, 1.0)},  # type: ignore[misc]
    **{
        f"common-{share:g}": lambda shape, rng, share=share: planted(share / 100, shape, rng, swapped=False)  # type: ignore[misc]
        for share in (2.7, 5, 5.5, 6, 7)
    },
    "swapped-50": lambda shape, rng: planted(0.5, shape, rng, swapped=True),
}


def matched(names: Iterable[str], a: Mlps, b: Mlps, rng: np.random.Generator) -> dict[str, list[BlockResult]]:
    """phi_MATCH, its unsigned form or phi_ANCHOR of each block, on inputs that both models see."""
    blocks, _, width = a.gate.shape
    inputs = rng.normal(size=(width, TOKENS)) + 0.3 * rng.normal(size=(width, 1))

    def features(model: Mlps) -> GateAndUp:
        gates, ups, units, written = [], [], [], []
        for gate, up, down in zip(model.gate, model.up, model.down, strict=True):
            g, u = gate @ inputs, up @ inputs
            hidden = g / (1 + np.exp(-g)) * u
            output = down.T @ hidden
            length = float(np.linalg.norm(output - output.mean(axis=1, keepdims=True)))
            units.append(merged(gate, up, down, np.linalg.norm(hidden, axis=1), on_text=g[:, :SEEN], output=length))
            written.append(shares(g, u, down, units[-1]))
            gates.append(g.astype(np.float32))
            ups.append(u.astype(np.float32))
        return GateAndUp(gates, ups, np.zeros((1, TOKENS), np.int64), units, written)

    sides, options = [(model, features(model)) for model in (a, b)], Options(seed=int(rng.integers(2**31)))

    def result(name: str, i: int) -> BlockResult:
        try:
            read: list[Any] = [side.block(i) for _, side in sides]
            if name == "phi_anchor":
                read = [
                    BlockUnits(
                        views, applied(side.units[i], model.down[i], "down")[views.gate.places].astype(np.float32)
                    )
                    for views, (model, side) in zip(read, sides, strict=True)
                ]
            return get(name).compare_block(*read, i, options)
        except NoUnitsError:
            return get(name).without(i, [])

    return {name: [result(name, i) for i in range(blocks)] for name in names}


def by_activations(name: str, a: Mlps, b: Mlps, rng: np.random.Generator) -> float | None:
    """One test of units in any order, over all blocks."""
    return get(name).outcome(matched([name], a, b, rng)[name]).log10_p


def in_order(name: str, a: Mlps, b: Mlps, rng: np.random.Generator) -> list[BlockResult]:
    """phi_U of each block, or phi_H on inputs that both models see."""
    inputs = rng.normal(size=(a.gate.shape[2], TOKENS)) + 0.3 * rng.normal(size=(a.gate.shape[2], 1))

    def prepared(model: Mlps, read: Model, i: int) -> OrderedRows | None:
        gate, up, down = model.gate[i], model.up[i], model.down[i]
        if name == "phi_u":
            return OrderedRows.of(living_rows(up.astype(np.float32), name="up")[0], called="up rows")
        g = gate @ inputs
        hidden = (g / (1 + np.exp(-g)) * (up @ inputs)).astype(np.float32)
        units = merged(gate, up, down, np.linalg.norm(hidden, axis=1), on_text=g[:, :SEEN]) if not down.any() else NONE
        blocks = len(model.up)
        try:
            return HiddenActivations([hidden] * blocks, [units] * blocks, read).block(i)
        except NoUnitsError:
            return None

    models = [(model, read_as_llama(model)) for model in (a, b)]
    sides = [[prepared(*model, i) for model in models] for i in range(len(a.up))]
    return [
        get(name).without(i, []) if None in rows else correlation_with_identity(*rows, i, int(rng.integers(2**31)))
        for i, rows in enumerate(sides)
    ]


def by_order(name: str, a: Mlps, b: Mlps, rng: np.random.Generator) -> float | None:
    """One test that reads the order of units, over all blocks."""
    return get(name).outcome(in_order(name, a, b, rng)).log10_p


class Llama:
    """A model of these MLPs and random attention, as an anatomy sees a checkpoint."""

    architecture, name = "LlamaForCausalLM", "drawn"

    def __init__(self, model: Mlps, rng: np.random.Generator) -> None:
        blocks, units, width = model.gate.shape
        self.config = {
            "hidden_size": width, "intermediate_size": units, "num_hidden_layers": blocks, "vocab_size": 8,
            "num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True,
        }  # fmt: skip
        self.tensors = {"model.embed_tokens.weight": np.zeros((8, width)), "model.norm.weight": np.ones(width)}
        for i in range(blocks):
            at = f"model.layers.{i}"
            self.tensors |= {
                f"{at}.self_attn.{k}_proj.weight": rng.normal(size=(width, width)) for k in ("q", "k", "v", "o")
            }
            self.tensors |= {f"{at}.{k}_layernorm.weight": np.ones(width) for k in ("input", "post_attention")}
            mlp = {"gate": model.gate[i], "up": model.up[i], "down": model.down[i].T}
            self.tensors |= {f"{at}.mlp.{k}_proj.weight": rows for k, rows in mlp.items()}
        self.tensor_names = tuple(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self.tensors[name].shape

    def dtype(self, name: str) -> str:
        """Return what all tensors are."""
        return "float32"

    def array(self, name: str) -> NDArray[np.float32]:
        """Return one tensor."""
        return self.tensors[name].astype(np.float32)


def read_as_llama(model: Mlps) -> Model:
    """A model with its parts, as a statistic reads its weights; no other random number is drawn for it."""
    drawn_as: Any = Llama(model, np.random.default_rng(0))
    return Model(drawn_as, anatomy.of(drawn_as))


def by_weights(name: str, a: Mlps, b: Mlps, rng: np.random.Generator) -> float | None:
    """phi_l2 of whole models."""
    statistic, options, sides = get(name), Options(seed=int(rng.integers(2**31))), []
    for model in (Llama(a, rng), Llama(b, rng)):
        parts = anatomy.of(model)
        held = [{n: t.astype(np.float32) for n, t in model.tensors.items() if f".{i}." in n} for i in range(len(a.up))]
        sides.append([BlockWeights(parts, i, tensors) for i, tensors in enumerate(held)])
    results = [statistic.compare_block(*pair, i, options) for i, pair in enumerate(zip(*sides, strict=True))]
    return statistic.aggregate(results).log10_p


def by_embeddings(name: str, a: Mlps, b: Mlps, rng: np.random.Generator) -> float | None:
    """phi_UNSEEN of `tables`."""
    sides = [(table, np.arange(len(table))) for table in tables(a, b, rng)]
    try:
        return get(name).compare_block(*sides, None, Options(seed=int(rng.integers(2**31)))).log10_p
    except NotComparableError:  # no row looks untrained
        return None


def tables(a: Mlps, b: Mlps, rng: np.random.Generator) -> list[NDArray[np.float32]]:
    """Embeddings: the units of all blocks are the tokens; the rows of a quarter stay short, the others learned."""
    if a.table is not None and b.table is not None:
        return [a.table, b.table]
    rows = [model.up.reshape(-1, model.up.shape[2]) for model in (a, b)]
    unit = [
        np.divide(r, n := np.linalg.norm(r, axis=1, keepdims=True), where=n > 0, out=np.zeros_like(r)) for r in rows
    ]
    words = len(unit[0]) * 3 // 4
    meaning = rng.normal(size=(words, 4))
    for side in unit:
        side[:words] += 4 * meaning @ rng.normal(size=(4, side.shape[1])) + 2 * rng.normal(size=side[:words].shape)
    more = [np.empty((0, a.up.shape[2])) if model.added is None else model.added for model in (a, b)]
    return [np.vstack(pair).astype(np.float32) for pair in zip(unit, more, strict=True)]


#: the default tests but phi_l2, which takes longest: by Holm, a test less makes the others reject more often
DEFAULT = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_unseen")


def _at_level(name: str, above: float) -> Test:
    """A test whose log10 p stands so far above the level of a verdict."""
    return Test(name, get(name).evidence, frozenset(), above + float(np.log10(LEVEL)), -np.inf)


def smallest_levels(p: dict[str, float | None]) -> list[float | None]:
    """The level from which `provlab compare` says *rejected*, and the one from which it says that or *by order alone*.

    The words are those of `provlab.report.decide` for the tests that reject, by Holm, at each level.
    """
    log10_p = {test: value for test, value in p.items() if value is not None}
    if not log10_p:
        return [None, None]
    adjusted = dict(zip(log10_p, pvalues.holm(np.array([*log10_p.values()])).tolist(), strict=True))
    words = {
        level: decide([_at_level(test, q - level) for test, q in adjusted.items()], ()).outcome
        for level in adjusted.values()
    }
    return [
        min((level for level, word in words.items() if word in accusing), default=0.0)
        for accusing in ((REJECTED,), (REJECTED, ORDER))
    ]


def verdicts(a: Mlps, b: Mlps, rng: np.random.Generator) -> dict[str, list[float | None]]:
    """`smallest_levels` of what `provlab compare` says of one pair, by how much of it is read.

    All blocks, or one (``--blocks 0``).
    """
    results = {name: in_order(name, a, b, rng) for name in ("phi_u", "phi_h")}
    results |= matched(("phi_match", "phi_match_unsigned"), a, b, rng)
    rows = {"phi_unseen": by_embeddings("phi_unseen", a, b, rng)}
    tested = {
        "compare": {name: get(name).outcome(some).log10_p for name, some in results.items()} | rows,
        "compare_block": {name: get(name).outcome(some[:1]).log10_p for name, some in results.items()} | rows,
    }
    return {way: smallest_levels(p) for way, p in tested.items()}


def by_shelf(a: Mlps, b: Mlps, rng: np.random.Generator) -> dict[str, list[float | None]]:
    """`provlab identify` of one model on a shelf of one: the level at which it says anything, and says kin."""
    sides = []
    for model, table in zip((a, b), tables(a, b, rng), strict=True):
        prepared = (living_rows(rows.astype(np.float32), name="up")[0] for rows in model.up)
        orders = [OrderedRows.of(rows, called="up rows").order for rows in prepared]
        kept = fingerprint.of_embedding(table, np.arange(len(table)))
        findings, hidden = order.findings(orders, order.groups(orders)), (model.up[0], model.gate[0])
        up, gate = (rows.astype(np.float16) for rows in hidden)
        lengths = np.prod([np.linalg.norm(rows[0], axis=1) for rows in (model.up, model.gate, model.down)], axis=0)
        strengths = np.float32(lengths**2 / max(np.square(lengths).sum(), 1e-300))
        sides.append(
            fingerprint.Fingerprint("", "", up, gate, strengths, **kept, width=model.up.shape[2], sorted_by=findings)
        )
    tested = [test for test in kin.answer(sides[0], sides[1:]).tests if test["error"] is None]
    p = dict.fromkeys(kin.TESTS, 0.0) | {test["test"]: test["adjusted_log10_p"] for test in tested}
    any_answer, as_kin = (min(p.values()), p[kin.BOTH]) if tested else (None, None)
    return {"identify": [any_answer], "identify_kin": [as_kin]}


#: what measures several rows together
TOGETHER: dict[str, Callable[[Mlps, Mlps, np.random.Generator], dict[str, list[float | None]]]] = {
    "identify": by_shelf,
    "compare": verdicts,
}
#: statistic -> its log10 p of two models
STATISTICS: dict[str, Callable[[Mlps, Mlps, np.random.Generator], float | None]] = {
    name: lambda a, b, rng, name=name, way=way: way(name, a, b, rng)  # type: ignore[misc]
    for way, names in (
        (by_order, ("phi_u", "phi_h")),
        (by_weights, ("phi_l2",)),
        (by_activations, ("phi_match", "phi_match_unsigned", "phi_anchor")),
        (by_embeddings, ("phi_unseen",)),
    )
    for name in names
}
#: ways of `provlab compare`, measured together; two rows of each, *rejected*, and that or *by order alone*
WAYS = ("compare", "compare_block")
ACCUSED = ("", "_by_order")
MEASURED = (*STATISTICS, "identify", "identify_kin", *(f"{way}{row}" for way in WAYS for row in ACCUSED))
_UNKNOWN = tuple(f"sorted-{rule}" for rule in UNKNOWN)
_SORTS = tuple(case for case in CASES if case.startswith("sorted-") and case not in _UNKNOWN)
_TIES = ("tied-0.7", "common-5", "common-5.5", "common-7", "swapped-50")
#: cases of every statistic, and others that bear on some
EVERY = ("plain", "dead", "bridge", "masked", "sorted", "repeated", "tied-0.8")
_ONE = ("one-block", "one-block-sorted")
MEANT = {
    **dict.fromkeys(("phi_u", "phi_h", "phi_l2"), (*_SORTS, *_UNKNOWN, *_ONE)),
    **dict.fromkeys(("phi_match", "phi_match_unsigned"), (*_TIES, *_ONE)),
    "phi_anchor": ("common-5.5", *_ONE),
    "phi_unseen": ("added", *STUDENTS),
    "identify": ("added", "distilled", *_SORTS, *_UNKNOWN, *_ONE),
    "compare": (*_UNKNOWN, "added", "distilled"),  # and of one block, in a row of its own
}


#: trained strangers, 24 bases of the zoo that differ in their seeds alone: as they are, and sorted by a rule
ZOO = ("zoo", *(f"zoo-sorted-{rule}" for rule in UNKNOWN))
MEANT["compare"] += ZOO
N_ZOO = 24
SHORT = {"n_sequences": 32, "sequence_length": 32, "progress": False}


def sorted_copy(source: str, rule: Callable[[Array], Array], folder: Path) -> str:
    """Write a Llama model whose hidden units stand in the order of a rule; no output changes."""
    checkpoint = Checkpoint.open(source)
    shutil.copytree(checkpoint.folder(), folder)
    tensors = {name: checkpoint.array(name) for name in checkpoint.tensor_names}
    parts = anatomy.of(checkpoint)
    for i in range(parts.n_blocks):
        gate, up, down = (f"model.layers.{i}.mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
        order = np.argsort(rule(np.stack([tensors[gate], tensors[up], tensors[down].T])))
        tensors |= {gate: tensors[gate][order], up: tensors[up][order], down: tensors[down][:, order]}
    held = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def of_zoo(case: str, n_models: int = N_ZOO) -> tuple[dict[str, list[float]], tuple[int, int, int]]:
    """As `rates`, by all pairs of trained strangers as `provlab compare` has them, and the shape of these models.

    One block is the second one.
    """
    with tempfile.TemporaryDirectory(prefix="provlab-") as scratch:
        rule = UNKNOWN.get(case.removeprefix("zoo-sorted-"))
        sources = [f"zoo:null-{k + 1:02}" for k in range(n_models)]
        if rule:
            sources = [sorted_copy(source, rule, Path(scratch) / source[4:]) for source in sources]
        settings: dict[str, dict[str, Any]] = {
            "compare": {"statistics": DEFAULT},
            "compare_block": {"statistics": DEFAULT, "blocks": [1]},
        }
        log10_p: dict[str, list[float | None]] = {}
        for way, options in settings.items():
            pairs: dict[tuple[str, str], dict[str, Outcome | None]] = {}
            for record in studying.study(sources, **options, **SHORT).records:
                pairs.setdefault((record.a, record.b), {})[record.statistic] = record.outcome
            for results in pairs.values():
                levels = {way: {name: outcome and outcome.log10_p for name, outcome in results.items()}}
                for row, p in levels.items():
                    for ending, value in zip(ACCUSED, smallest_levels(p), strict=True):
                        log10_p.setdefault(row + ending, []).append(value)
        parts = anatomy.of(Checkpoint.open(sources[0]))
        return counted(log10_p), (parts.n_blocks, *parts.shape("up", 0))


def meant(name: str) -> tuple[str, ...]:
    """Return the cases that bear on a statistic, or on the verdict."""
    return (*EVERY, *MEANT[name])


def enough(case: str, pairs: int) -> int:
    """Return as many pairs as asked, or all that a case of trained models has."""
    return {**dict.fromkeys(STUDENTS, MOST), **dict.fromkeys(ZOO, N_ZOO * (N_ZOO - 1) // 2)}.get(case, pairs)


def version_of(row: str) -> str:
    """Version of what a row measures, as it is now: of all tests that a verdict is made of."""
    if row.startswith("identify"):
        return fingerprint.SCHEMA.rpartition("/")[2]
    way = row.removesuffix(ACCUSED[1])
    tests = (way,) if way not in WAYS else DEFAULT if way in WAYS[:2] else ("phi_u",)
    return "+".join(str(get(test).version) for test in tests)


def rates(case: str, name: str, n_pairs: int, shape: tuple[int, int, int], seed: int = 0) -> dict[str, list[float]]:
    """Share of pairs rejected at each of `LEVELS`, the share that got no p-value, and how many pairs there were.

    By row: the statistic of this name, or what a verdict says. A pair without a p-value is not rejected.
    """
    rng = np.random.default_rng(seed)
    _pairs.clear()
    log10_p: dict[str, list[float | None]] = {}
    with suppress(StopIteration):
        for _ in range(n_pairs):
            a, b = CASES[case](shape, rng)
            levels = TOGETHER[name](a, b, rng) if name in TOGETHER else {name: [STATISTICS[name](a, b, rng)]}
            for way, values in levels.items():
                for row, p in zip(ACCUSED, values, strict=False):
                    log10_p.setdefault(way + row, []).append(p)
    return counted(log10_p)


def counted(log10_p: dict[str, list[float | None]]) -> dict[str, list[float]]:
    """Return what `rates` does, of the p-values of each row."""
    measured = {}
    for row, column in log10_p.items():
        bounds = np.array([0.0 if p is None else p for p in column])
        rejected = [float((bounds <= np.log10(level) + 1e-12).mean()) for level in LEVELS]
        measured[row] = [*rejected, sum(p is None for p in column) / len(column), len(column)]
    return measured


def main() -> None:
    """Print a row for each case and statistic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES, *ZOO], default=[], metavar="CASE")
    parser.add_argument(
        "--statistic", choices=[*STATISTICS, *TOGETHER], action="append", help="may be given again (default: all)"
    )
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--units", type=int, default=48)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--csv", type=Path, help="where rows are kept, and read")
    arguments = parser.parse_args()
    shape = arguments.blocks, arguments.units, arguments.width
    names = ["statistic", "case", *(f"at {level}" for level in LEVELS), "withheld", "pairs", "blocks", "units", "width"]
    header, kept = [*names, "seed", "date", "version", "commit", "machine"], {}
    if arguments.csv and arguments.csv.exists():
        with arguments.csv.open(newline="", encoding="utf-8") as file:
            kept = {(row["statistic"], row["case"]): row for row in csv.DictReader(file)}
    print(*header[:6], sep="\t")
    for name in arguments.statistic or (*STATISTICS, *TOGETHER):
        for case in arguments.cases or meant(name):
            known = kept.get((name, case))
            wanted_pairs = min(arguments.pairs, enough(case, arguments.pairs))
            whole = known and int(known["pairs"]) >= wanted_pairs and known["version"] == version_of(name)
            if whole and not arguments.cases:
                continue
            shares_of, of = of_zoo(case) if case in ZOO else (rates(case, name, arguments.pairs, shape), shape)
            for statistic, measured in shares_of.items():
                print(statistic, case, *measured, sep="\t", flush=True)
                made = [date.today().isoformat(), version_of(statistic), provenance.commit(), provenance.processor()]
                blocks = 1 if case in _ONE else of[0]
                row = [statistic, case, *measured, blocks, *of[1:], 0, *made]
                kept[statistic, case] = dict(zip(header, row, strict=True))
            if arguments.csv:
                places = {key: n for n, key in enumerate((name, case) for name in MEASURED for case in (*CASES, *ZOO))}
                with arguments.csv.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, header, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(kept[key] for key in sorted(kept, key=places.__getitem__))


if __name__ == "__main__":
    main()
