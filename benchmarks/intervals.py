"""How often Model-diff's 95% intervals hold the truth, on a space that is listed, over many repeats.

Two models are tables of random conditional distributions over all 625 sequences of four tokens out of five, so that
numbers of inputs, shares and ratios are known exactly. Each repeat draws by generation and by replica exchange.
``python benchmarks/intervals.py 200`` prints, for each number, the share of repeats whose interval holds the truth, the
mean width of the intervals, and what replica exchange gives where free energies are not resampled with the chains.
"""

import itertools
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from provlab.chapters.toy_modulo30.moves import MultiSite
from provlab.modeldiff.bootstrap import percentiles
from provlab.modeldiff.comparison import Comparison, from_enumeration
from provlab.modeldiff.diagnostics import NotConverged
from provlab.modeldiff.generation import join
from provlab.modeldiff.moves import Mixture, SingleSite
from provlab.modeldiff.representative import Direction, Draws
from provlab.modeldiff.reweighting import density_of_states, representative, reweight
from provlab.modeldiff.sampler import replica_exchange

V, L = 5, 4
STATES = np.array(list(itertools.product(range(V), repeat=L)))
CODE = V ** np.arange(L - 1, -1, -1)
MOVES = Mixture((SingleSite(), MultiSite(2)))
SHARES = (0.02, 0.3)  # of the losses: Z
Interval = tuple[float, float, float]


class Table:
    """A model as a table: log conditional probabilities ``(state, position, token)``, the first position uniform."""

    def __init__(self, seed: int, scale: float = 1.2) -> None:
        rng = np.random.default_rng(seed)
        rows = {
            left: rng.normal(scale=scale, size=V) for k in range(L) for left in itertools.product(range(V), repeat=k)
        }
        logits = np.array([[rows[tuple(x[:k])] for k in range(L)] for x in STATES])
        logits[:, 0] = 0.0
        log_p = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
        picked = np.take_along_axis(log_p, STATES[..., None], axis=2)[..., 0]
        self.energies, self.log_q = -picked[:, 1:].mean(axis=1), picked.sum(axis=1)

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        return self.energies[tokens @ CODE]


def generated(model: Table, seed: int, n: int, n_chains: int) -> Draws:
    """Sequences that a model writes, with their exact probabilities."""
    rng = np.random.default_rng(seed)
    chains = []
    for _ in range(n_chains):
        code = rng.choice(len(STATES), size=n // n_chains, p=np.exp(model.log_q))
        chains.append({"tokens": STATES[code], "nll": model.energies[code], "log_q": model.log_q[code]})
    return join(chains)


def exchanged(model: Table, seed: int, n_steps: int, n_chains: int) -> Draws:
    """Sequences of a replica exchange, reweighted."""
    ladder = [math.inf, 0.8, 0.4]
    space = {"vocabulary": V, "length": L, "temperatures": ladder, "n_chains": n_chains}
    return reweight(replica_exchange(model, **space, n_steps=n_steps, moves=MOVES, seed=seed))


def compared(models: tuple[Table, Table], draws: tuple[Draws, Draws], z: tuple[float, float]) -> Comparison:
    """Both directions, each judged by the other's table."""
    a, b = (representative(value, z) for value in draws)
    return Comparison(
        Direction.from_draws(a, models[1](a.tokens), "A", z), Direction.from_draws(b, models[0](b.tokens), "B", z), z
    )


def intervals(value: Comparison, draws: tuple[Draws, Draws] | None, edges: np.ndarray) -> dict[str, Interval]:
    """Every kind of number with its interval; of an enumeration, whose `draws` are None, the truth."""
    numbers = value.a.log10_numbers(np.random.default_rng(1))
    rows: dict[str, Interval] = {
        "log10 number of A": (numbers[0], *map(float, percentiles(numbers[1:], value.n_chains))),
        "log10 of B for one of A": value.log10_more(seed=1),
        "share with D < 0, A": value.a.share_below(seed=1),
        "share in R3, B": value.b.share(value.b.common, seed=1),
    }
    for by in ("R3", "count"):
        ratio = value.ratio(by, seed=1)  # type: ignore[arg-type]
        for k in (1, 3):
            rows[f"term {k + 1} by {by}"] = (ratio.value[k], ratio.low[k], ratio.high[k])
    rho = value.rho("A", edges, "count", seed=1)[:, 0]
    rows["lowest bin of rho of A"] = (rho[0], rho[1], rho[2])
    if draws is not None:
        states = density_of_states(draws[0], np.array(value.z), seed=1)
        rows["density of states"] = (states.log10_count[0], states.log10_low[0], states.log10_high[0])
    return rows


def coverage(n_repeats: int, draw: Callable[[Table, int], Draws]) -> dict[str, tuple[float, float, int]]:
    """Share of repeats whose interval holds the truth, mean width, and repeats in which chains converged.

    Where weights rest on free energies, the same is given with these held fixed.

    Parameters
    ----------
    n_repeats
        Pairs of runs.
    draw
        From a model and a seed.
    """
    models = (Table(1), Table(2))
    z = tuple(np.quantile(np.concatenate([model.energies for model in models]), SHARES))
    truth = from_enumeration(*(model.energies for model in models), z)
    edges = np.append(truth.a.quantile([0.0, 0.3, 0.6]) - 1e-9, truth.a.quantile(1.0))
    exact = {name: row[0] for name, row in intervals(truth, None, edges).items()}
    exact["density of states"] = exact["log10 number of A"]
    shown: dict[str, list[tuple[bool, float]]] = {}
    for repeat in range(n_repeats):
        try:
            draws = tuple(draw(model, 1_000 * (k + 1) + repeat) for k, model in enumerate(models))
        except NotConverged:
            continue
        ways = {"": draws}
        if draws[0].estimated is not None:
            ways[", fixed"] = tuple(replace(value, estimated=None) for value in draws)
        for way, some in ways.items():
            for name, (_, low, high) in intervals(compared(models, some, z), some, edges).items():
                hit = low - 1e-9 <= exact[name] <= high + 1e-9
                shown.setdefault(name + way, []).append((bool(hit), high - low))
    return {
        name: (float(np.mean([hit for hit, _ in rows])), float(np.mean([width for _, width in rows])), len(rows))
        for name, rows in shown.items()
    }


def by_generation(model: Table, seed: int) -> Draws:
    """A thousand sequences in twenty chains."""
    return generated(model, seed, 1000, 20)


def by_exchange(model: Table, seed: int) -> Draws:
    """Eight chains of 1,200 steps."""
    return exchanged(model, seed, 1200, 8)


def main() -> None:
    """Print one table a way."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for name, draw in {"generation": by_generation, "replica exchange": by_exchange}.items():
        results = coverage(n, draw)
        print(f"{name}, {max(row[2] for row in results.values())} of {n} repeats converged")
        for what, (share, width, _) in results.items():
            print(f"  {what:<36}{share:>7.1%}   width {width:.4f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
