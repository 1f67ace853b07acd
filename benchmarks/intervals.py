"""How often Model-diff's 95% intervals hold the truth, on spaces that are listed, over many repeats.

Two models are tables of random conditional distributions over all sequences of a small space, so that numbers of
inputs, shares and ratios are known exactly. Each repeat draws by generation, of each model apart or of both as one
sample of their mixture, or by replica exchange. A third space has
sequences of 100 tokens: chains of first order whose losses are whole multiples of a unit, so that the sequences of each
pair of losses are counted along the chain; there plain and smoothed weights are compared.

``python benchmarks/intervals.py 200`` prints, for each number, the share of repeats whose interval holds the truth, the
mean width of the intervals, and how many repeats gave one, and for each way to draw the pooled share. A second argument
names ways by their beginning; ``written`` stands for the intervals of what a model writes, from few sequences and many,
and ``toys`` for those of claim D2: the two toys of the page, with the first of eight digits fixed.
A number that is withheld has no interval that could miss: where Z holds fewer than 30
inputs, as in two of the ways below, a density of states is withheld however many draws there are, since it asks for
draws worth 30 different inputs.
"""

import itertools
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from provlab.modeldiff.bootstrap import percentiles
from provlab.modeldiff.comparison import BothDirections, from_enumeration
from provlab.modeldiff.diagnostics import NotConverged
from provlab.modeldiff.generation import join
from provlab.modeldiff.ladder import tune_ladder
from provlab.modeldiff.moves import Mixture, SingleSite
from provlab.modeldiff.pipeline import one_sample
from provlab.modeldiff.representative import Direction, Draws
from provlab.modeldiff.reweighting import density_of_states, representative, reweight, smoothed
from provlab.modeldiff.sampler import replica_exchange
from provlab.modeldiff.written import Written, by_law
from provlab.reading.checkpoint import Checkpoint
from provlab.zoo.toy import DIGITS, LENGTH, MODULUS, is_valid
from provlab_study.toy_modulo30 import enumeration, measure
from provlab_study.toy_modulo30.moves import MultiSite, SumPreserving

MOVES = Mixture((SingleSite(), MultiSite(2)))
Interval = tuple[float, float, float]


class Table:
    """A model as a table: conditional probabilities of each token after each beginning, the first token uniform."""

    def __init__(
        self,
        seed: int,
        vocabulary: int = 5,
        length: int = 4,
        *,
        spread: float = 1.2,
        heavy: bool = False,
        noise: float = 0,
    ) -> None:
        """`heavy`: logits by Student's law of 2 degrees; `noise`: logits of seed 1 and so much of the seed's own."""
        rng, own = np.random.default_rng(1 if noise else seed), np.random.default_rng(seed)
        self.vocabulary, self.length = vocabulary, length
        total, self.laws = np.zeros(vocabulary), []  # of the next token, after each beginning
        for position in range(1, length):
            size = (vocabulary**position, vocabulary)
            logits = rng.standard_t(2, size) if heavy else rng.normal(scale=spread, size=size)
            logits = logits + noise * own.normal(size=size)
            self.laws.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
            total = (total[:, None] + self.laws[-1]).ravel()
        self.energies, self.log_q = -total / (length - 1), total - np.log(vocabulary)
        self.states = np.array(list(itertools.product(range(vocabulary), repeat=length)))

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        return self.energies[tokens @ self.vocabulary ** np.arange(self.length - 1, -1, -1)]


def generated(model: Table, seed: int, n: int, n_chains: int = 20) -> Draws:
    """Sequences that a model writes, with their exact probabilities."""
    rng = np.random.default_rng(seed)
    chains = []
    for _ in range(n_chains):
        code = rng.choice(len(model.states), size=n // n_chains, p=np.exp(model.log_q))
        chains.append({"tokens": model.states[code], "nll": model.energies[code], "log_q": model.log_q[code]})
    return join(chains)


def exchanged(model: Table, seed: int, n_steps: int, n_chains: int) -> Draws:
    """Sequences of a replica exchange, reweighted."""
    space = {"vocabulary": model.vocabulary, "length": model.length, "temperatures": [math.inf, 0.8, 0.4]}
    return reweight(replica_exchange(model, **space, n_chains=n_chains, n_steps=n_steps, moves=MOVES, seed=seed))


def mixed(models: tuple[Table, Table], draws: tuple[Draws, Draws]) -> tuple[Draws, Draws]:
    """Draws of both models as one sample, as `provlab.diff` takes them."""
    losses = [model(np.concatenate([value.tokens for value in draws])) for model in models]
    log_q = [-(models[0].length - 1) * loss - np.log(models[0].vocabulary) for loss in losses]
    return one_sample(draws, losses, log_q)


def compared(
    models: tuple[Any, Any], draws: tuple[Draws, Draws], z: tuple[float, float], *, joint: bool = False
) -> BothDirections:
    """Both directions, each judged by the other's table."""
    a, b = draws
    sides = Direction.from_draws(a, models[1](a.tokens), "A", z), Direction.from_draws(b, models[0](b.tokens), "B", z)
    return BothDirections(*sides, z, joint=joint)


def intervals(value: BothDirections, edges: np.ndarray) -> dict[str, Interval]:
    """Every kind of number with its interval; of an enumeration, the truth."""
    numbers = value.a.log10_numbers(np.random.default_rng(1))
    rows: dict[str, Interval] = {
        "log10 number of A": (numbers[0], *map(float, percentiles(numbers[1:], value.n_chains))),
        "log10 of B for one of A": value.log10_more(seed=1),
        "share with D < 0, A": value.a.share_below(seed=1),
        "share in R3, B": value.b.share(value.b.common, seed=1),
    }
    ratio = value.ratio("count", seed=1)
    rows |= {f"term {k + 1} by count": (ratio.value[k], ratio.low[k], ratio.high[k]) for k in (1, 2, 3)}
    if value.a.common.sum() >= 20:  # with a handful in R3 the unit itself is not known
        ratio = value.ratio("R3", seed=1)
        rows |= {f"term {k + 1} by R3": (ratio.value[k], ratio.low[k], ratio.high[k]) for k in (1, 2, 3)}
    rho = value.rho("A", edges, "count", seed=1)[:, 0]
    rows["lowest bin of rho of A"] = (rho[0], rho[1], rho[2])
    return rows


def coverage(
    n_repeats: int,
    draw: Callable[[Table, int], Draws],
    space: tuple[int, int] = (5, 4),
    shares: tuple[float, float] = (0.02, 0.3),
    *,
    joint: bool = False,
    **kind: Any,
) -> dict[str, tuple[float, float, int]]:
    """Share of repeats whose interval holds the truth, mean width, and repeats that gave an interval.

    Where weights rest on free energies, the same is given with these held fixed.

    Parameters
    ----------
    n_repeats
        Pairs of runs.
    draw
        From a model and a seed.
    space, shares
        Tokens and length; quantiles of the losses of all inputs that bound Z.
    joint
        Whether draws of both models are one sample.
    **kind
        What `Table` takes by name.
    """
    models = (Table(1, *space, **kind), Table(2, *space, **kind))
    z = tuple(np.quantile(np.concatenate([model.energies for model in models]), shares))
    truth = from_enumeration(*(model.energies for model in models), z)
    edges = np.append(truth.a.quantile([0.0, 0.3, 0.6]) - 1e-9, truth.a.quantile(1.0))
    exact = {name: row[0] for name, row in intervals(truth, edges).items()}
    exact["density of states"] = exact["log10 number of A"]
    shown: dict[str, list[tuple[bool, float]]] = {}
    for repeat in range(n_repeats):
        try:
            draws = tuple(draw(model, 1_000 * (k + 1) + repeat) for k, model in enumerate(models))
        except NotConverged:
            continue
        draws = mixed(models, draws) if joint else draws
        ways = {"": draws}
        if draws[0].estimated is not None:
            ways[", fixed"] = tuple(replace(value, estimated=None) for value in draws)
        for way, some in ways.items():
            inside = tuple(representative(value, z) for value in some)
            rows = intervals(compared(models, inside, z, joint=joint), edges)
            states = density_of_states(some[0], np.array(z), seed=1)
            rows["density of states"] = (states.log10_count[0], states.log10_low[0], states.log10_high[0])
            for name, (_, low, high) in rows.items():
                if math.isnan(low):  # no number is given: nothing that could miss
                    continue
                hit = low - 1e-9 <= exact[name] <= high + 1e-9
                shown.setdefault(name + way, []).append((bool(hit), high - low))
    return rates(shown)


#: spaces of 3 to 9 tokens that no rule of an interval was chosen by: seed, tokens, length, and the kind of table
SMALL = {
    "V 9, length 4": (61, 9, 4, {"spread": 0.8}),
    "V 3, length 8, heavy": (71, 3, 8, {"heavy": True}),
    "V 7, length 5, sharp": (81, 7, 5, {"spread": 2.0}),
    "V 4, length 7, near copies": (91, 4, 7, {"noise": 0.3}),
    "V 8, length 4": (161, 8, 4, {"spread": 1.0}),
    "V 3, length 7, heavy": (171, 3, 7, {"heavy": True}),
    "V 6, length 5, sharp": (181, 6, 5, {"spread": 2.2}),
    "V 5, length 6, near copies": (191, 5, 6, {"noise": 0.2}),
}


def along(models: tuple[Table, Table], which: int) -> np.ndarray:
    """Divergence of the other law of the next token from a model's own, ``(states, length - 1)``."""
    own, other = models[which], models[1 - which]
    code, length = np.arange(len(own.states)), own.length
    columns = []
    for position, (p, q) in enumerate(zip(own.laws, other.laws, strict=True), 1):
        nats = (np.exp(p) * (p - q)).sum(axis=1)
        columns.append(nats[code // own.vocabulary ** (length - position)])
    return np.stack(columns, axis=1)


def of_written(
    n_repeats: int, n: int, seed: int, vocabulary: int, length: int, kind: dict[str, Any]
) -> tuple[dict[str, tuple[float, float, int]], float]:
    """Coverage of the intervals of what a model writes: divergence, the share that carries half, and others.

    Where draws are worth fewer than 30 nothing is shown, so that nothing could miss.
    """
    models = (Table(seed, vocabulary, length, **kind), Table(seed + 1, vocabulary, length, **kind))
    nats, law = along(models, 0), np.exp(models[0].log_q)
    each, order = nats.sum(axis=1), np.argsort(-nats.sum(axis=1), kind="stable")
    carried = np.cumsum((law * each)[order])
    less = models[0].energies < models[1].energies
    exact = {
        "divergence": float(law @ each) / (length - 1),
        "half": float(law[order[: int((carried < carried[-1] / 2).sum()) + 1]].sum()),
        "less likely": float(law[less].sum()),
        "share of the divergence": float((law * each)[less].sum() / carried[-1]),
    }
    shown: dict[str, list[tuple[bool, float]]] = {}
    worth = []
    for repeat in range(n_repeats):
        first, _ = mixed(models, tuple(generated(m, 9_000 * (k + 1) + repeat, n) for k, m in enumerate(models)))
        code = first.tokens @ vocabulary ** np.arange(length - 1, -1, -1)
        outputs = by_law(first, models[1].energies[code], "A", length - 1)
        everywhere = np.ones(len(code), dtype=bool)
        written = Written(outputs, first.tokens, nats[code], nats[code], everywhere, first.nll, 0 * code)
        worth.append(outputs.effective)
        rows = {
            "divergence": written.mean(seed=1),
            "half": written.half(seed=1)[0],
            "less likely": list(outputs.share(less[code], seed=1)),
            "share of the divergence": written.share_of_divergence(less[code], seed=1),
        }
        for name, (_, low, high) in rows.items():
            shown.setdefault(name, []).append((bool(low - 1e-9 <= exact[name] <= high + 1e-9), high - low))
    return rates(shown), float(np.median(worth))


def small(n_repeats: int) -> None:
    """Print the coverage of what a model writes, for few sequences and many."""
    for name, (seed, vocabulary, length, kind) in SMALL.items():
        for n in (50, 60, 100, 400, 1000, 4000):
            rows, worth = of_written(n_repeats, n, seed, vocabulary, length, kind)
            cells = (f"{what} {hit:.3f} (width {width:.3f})" for what, (hit, width, _) in rows.items())
            print(f"{name}, {n} sequences, worth {worth:.0f}: {', '.join(cells)}", flush=True)


def toys(n_repeats: int, head: tuple[int, ...] = (3,)) -> dict[str, tuple[float, float, int]]:
    """Coverage of the terms of the ratio by R3 in short runs of replica exchange, as the page on the toy makes them."""
    space = enumeration.Space(DIGITS, LENGTH, head)
    opened = [Checkpoint.open(f"zoo:toy-early-{size}") for size in ("small", "large")]
    every = enumeration.enumerate_all(opened, space, jobs=1)
    losses, lookup = [np.array(every.nll(k)) for k in (0, 1)], [every.lookup(k) for k in (0, 1)]
    z = measure.range_by_rule(losses[0][space.where(is_valid)], (0.01, 0.99))
    exact = from_enumeration(*losses, z).ratio().value
    moves = Mixture((SingleSite(), MultiSite(2), SumPreserving(2, MODULUS), SumPreserving(4, MODULUS)))
    shape: dict[str, Any] = {"vocabulary": DIGITS, "length": space.free, "moves": moves}
    ladders = [tune_ladder(lookup[k], coldest=0.056, seed=k, **shape).temperatures for k in (0, 1)]
    shown: dict[str, list[tuple[bool, float]]] = {}
    for repeat in range(n_repeats):
        runs = (
            replica_exchange(
                lookup[k], temperatures=ladders[k], n_chains=48, n_steps=1000, seed=700_000 + 10 * repeat + k, **shape
            )
            for k in (0, 1)
        )
        draws = [representative(reweight(samples), z) for samples in runs]
        sides = (Direction.from_draws(d, lookup[1 - k](d.tokens), "AB"[k], z) for k, d in enumerate(draws))
        ratio = BothDirections(*sides, z).ratio(seed=0)
        for k in (1, 2, 3):
            hit = ratio.low[k] <= exact[k] <= ratio.high[k]
            shown.setdefault(f"term {k + 1} by R3", []).append((bool(hit), ratio.high[k] - ratio.low[k]))
    return rates(shown)


def rates(shown: dict[str, list[tuple[bool, float]]]) -> dict[str, tuple[float, float, int]]:
    """Share of hits, mean of the other number, and how many there are, by name."""
    return {name: (*map(float, np.mean(rows, axis=0)), len(rows)) for name, rows in shown.items()}


class Chain:
    """A model of first order over four tokens: each row has the losses of `STEPS` in some order, and a constant."""

    LENGTH, UNIT = 100, math.log(2) / 2
    STEPS = np.array([1, 3, 6, 8])
    CONSTANT = float(np.log(np.exp(-UNIT * STEPS).sum()))

    def __init__(self, seed: int, changed: int = 4) -> None:
        """`changed` rows are the seed's own, the others those of seed 0."""
        common, own = (np.random.default_rng(s).permuted(np.tile(self.STEPS, (4, 1)), axis=1) for s in (0, seed))
        self.steps = np.where(np.arange(4)[:, None] < changed, own, common)  # (token before, token)

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        return self.steps[tokens[:, :-1], tokens[:, 1:]].mean(axis=1) * self.UNIT + self.CONSTANT

    def write(self, seed: int, n: int, n_chains: int = 20) -> Draws:
        """Sequences with their exact probabilities."""
        rng = np.random.default_rng(seed)
        tokens = rng.integers(4, size=(n, self.LENGTH))
        reached = np.cumsum(np.exp(-self.UNIT * self.steps - self.CONSTANT), axis=1)
        for place in range(1, self.LENGTH):
            tokens[:, place] = (rng.random(n)[:, None] > reached[tokens[:, place - 1]]).sum(axis=1)
        losses = self(tokens)
        log_weight = (self.LENGTH - 1) * losses + np.log(4) - np.log(n)
        return Draws(tokens, losses, log_weight, np.arange(n) % n_chains, n_chains)

    def counted_with(self, other: "Chain") -> np.ndarray:
        """Number of sequences with each sum of steps under this model and the other, ``(sum, sum)``."""
        most = self.STEPS.max() * (self.LENGTH - 1) + 1
        ways = np.zeros((4, most, most))
        ways[:, 0, 0] = 1
        for _ in range(self.LENGTH - 1):
            new = np.zeros_like(ways)
            for before, after in itertools.product(range(4), repeat=2):
                i, j = self.steps[before, after], other.steps[before, after]
                new[after, i:, j:] += ways[before, : most - i, : most - j]
            ways = new
        return ways.sum(axis=0)


def long_inputs(n_repeats: int, n: int = 1000) -> dict[str, tuple[float, float, int]]:
    """Coverage at 100 tokens by plain and by smoothed weights, and the effective draws of each (for width)."""
    models = Chain(0), Chain(5, changed=2)
    unit = Chain.UNIT / (Chain.LENGTH - 1)
    # Z as rules for language models have it: down from the more likely part of what A writes
    z = tuple(np.quantile(models[0].write(99, 20_000).nll, [0.001, 0.1]) + unit / 2)
    counts = models[0].counted_with(models[1])
    losses = unit * np.arange(len(counts)) + Chain.CONSTANT
    inside = (losses >= z[0]) & (losses <= z[1])
    in_a, in_b = counts[inside], counts[:, inside]
    below = np.subtract.outer(losses, losses) < -1e-9
    truth = {
        "log10 number of A": np.log10(in_a.sum()),
        "log10 of B for one of A": np.log10(in_b.sum() / in_a.sum()),
        "share with D < 0, A": (in_a * below[inside]).sum() / in_a.sum(),
        "term 4 by count": (in_b * below.T[:, inside]).sum() / (in_a * below[inside]).sum(),
    }
    shown: dict[str, list[tuple[bool, float]]] = {}
    for repeat in range(n_repeats):
        draws = [model.write(1_000 * (k + 1) + repeat, n) for k, model in enumerate(models)]
        for way, how in (("plain", lambda d: d.within(z)), ("smoothed", lambda d: smoothed(d, z))):
            value = compared(models, tuple(map(how, draws)), z)
            rows = intervals(value, np.array([-9.0, 9.0]))
            for name, exact in truth.items():
                hit = rows[name][1] <= exact <= rows[name][2]
                shown.setdefault(f"{name}, {way}", []).append((bool(hit), value.a.effective))
    return rates(shown)


def by_generation(model: Table, seed: int) -> Draws:
    """A thousand sequences in twenty chains."""
    return generated(model, seed, 1000)


def many(model: Table, seed: int) -> Draws:
    """Four thousand sequences in twenty chains, as `provlab.diff` takes them."""
    return generated(model, seed, 4000)


def by_exchange(model: Table, seed: int) -> Draws:
    """Eight chains of 1,200 steps."""
    return exchanged(model, seed, 1200, 8)


#: shares near 0: agreement is 0.4% of A's inputs and 0.6% of B's, by draws worth 120 and 1,200
NEAR_ZERO: dict[str, Any] = {"space": (12, 5), "shares": (0.0005, 0.01)}


def main() -> None:
    """Print one table a way."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    if only == "written":
        small(n)
        return
    ways: dict[str, Callable[[], dict[str, tuple[float, float, int]]]] = {
        "generation": lambda: coverage(n, by_generation),
        "replica exchange": lambda: coverage(n, by_exchange),
        "generation, 120 effective draws": lambda: coverage(n, partial(generated, n=500), **NEAR_ZERO),
        "generation, 1,200 effective draws": lambda: coverage(n, partial(generated, n=5000), **NEAR_ZERO),
        "one sample of both models": lambda: coverage(n, by_generation, joint=True),
        "one sample, 12 tokens": lambda: coverage(n, partial(generated, n=500), **NEAR_ZERO, joint=True),
        "one sample, 8 tokens, length 6": lambda: coverage(n, many, (8, 6), (0.001, 0.02), joint=True),
        "one sample, heavy tail": lambda: coverage(n, by_generation, joint=True, heavy=True),
        "one sample, hardly in common": lambda: coverage(n, many, (8, 5), (0.0, 0.001), joint=True),
        "one sample, Z in a tail of hardly any": lambda: coverage(n, many, (8, 5), (0.0, 0.0002), joint=True, spread=2),
        "one sample, noise of 1e-5": lambda: coverage(n, by_generation, joint=True, noise=1e-5),
        "100 tokens (effective draws for width)": lambda: long_inputs(n),
        "toys": lambda: toys(n),
    }
    for name, way in ways.items():
        if not name.startswith(only):
            continue
        results = way()
        resampled = [row for what, row in results.items() if not what.endswith(("fixed", "plain"))]
        pooled = sum(share * times for share, _, times in resampled) / sum(times for *_, times in resampled)
        print(f"{name}: {max(times for *_, times in resampled)} of {n} repeats; pooled {pooled:.1%}")
        for what, (share, width, times) in results.items():
            print(f"  {what:<36}{share:>7.1%}   width {width:.4f}   in {times}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
