"""How often independent models are rejected: rates at 0.05, 0.01 and 0.001 over synthetic pairs, case by case.

``python benchmarks/sizes.py`` prints all cases, ``python benchmarks/sizes.py sorted common-5`` some, and ``--pairs``,
``--units`` and ``--blocks`` set how many. A case makes both models of a pair out of random numbers; a statistic reads
them without a checkpoint. Cases of common and swapped units say how far phi_MATCH's assumption reaches, and its size
above them is no fault.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.models.canonical import merged
from provlab.statistics import get
from provlab.statistics.alive import living_rows
from provlab.statistics.base import Options
from provlab.statistics.order import OrderedRows, along_direction, keys_of_mlp
from provlab.statistics.phi_h import HiddenActivations
from provlab.statistics.phi_match import GateAndUp
from provlab.statistics.phi_u import correlation_with_identity

Array = NDArray[np.float64]
LEVELS = (0.05, 0.01, 0.001)
TOKENS = 256


@dataclass
class Mlps:
    """The MLPs of a model: gate, up and down rows, ``(blocks, units, width)`` each."""

    gate: Array
    up: Array
    down: Array

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


CASES: dict[str, Callable[[tuple[int, int, int], np.random.Generator], tuple[Mlps, Mlps]]] = {
    "plain": two,
    "sorted": lambda shape, rng: tuple(model.ordered(by_size) for model in two(shape, rng)),  # type: ignore[dict-item,return-value]
    "sorted-mean": of_other_means,
    "masked": masked,
    "repeated": repeated,
    **{f"tied-{c:g}": lambda shape, rng, c=c: tied(c, shape, rng) for c in (0.5, 0.7, 0.8, 0.9, 1.0)},  # type: ignore[misc]
    **{
        f"common-{share:g}": lambda shape, rng, share=share: planted(share / 100, shape, rng, swapped=False)  # type: ignore[misc]
        for share in (2.7, 5, 5.5, 6, 7)
    },
    "swapped-50": lambda shape, rng: planted(0.5, shape, rng, swapped=True),
}


def by_activations(name: str, a: Mlps, b: Mlps, rng: np.random.Generator) -> float:
    """phi_MATCH and its unsigned form, on inputs that both models see."""
    blocks, _, width = a.gate.shape
    inputs = rng.normal(size=(width, TOKENS)) + 0.3 * rng.normal(size=(width, 1))

    def features(model: Mlps) -> GateAndUp:
        gates, ups, units, written = [], [], [], []
        for gate, up, down in zip(model.gate, model.up, model.down, strict=True):
            g, u = gate @ inputs, up @ inputs
            hidden = g / (1 + np.exp(-g)) * u
            output = down.T @ hidden
            written.append((hidden * (down @ (output / np.square(output).sum(axis=0)))).mean(axis=1))
            units.append(merged(gate, up, down, np.linalg.norm(hidden, axis=1)))
            gates.append(g.astype(np.float32))
            ups.append(u.astype(np.float32))
        return GateAndUp(gates, ups, np.zeros((1, TOKENS), np.int64), units, written)

    statistic, options = get(name), Options(seed=int(rng.integers(2**31)))
    sides = features(a), features(b)
    results = [statistic.compare_block(*(side.block(i) for side in sides), i, options) for i in range(blocks)]
    return statistic.aggregate(results).log10_p or 0.0  # where it is withheld, nothing is rejected


def by_order(name: str, a: Mlps, b: Mlps, rng: np.random.Generator) -> float:
    """phi_U, and phi_H on inputs that both models see."""
    inputs = rng.normal(size=(a.gate.shape[2], TOKENS)) + 0.3 * rng.normal(size=(a.gate.shape[2], 1))

    def prepared(gate: Array, up: Array, down: Array) -> OrderedRows:
        if name == "phi_u":
            return OrderedRows.of(living_rows(up.astype(np.float32), name="up")[0], called="up rows")
        weights = np.array([*keys_of_mlp({"gate": gate, "up": up, "down": down}).values(), along_direction(up)])
        g = gate @ inputs
        hidden = (g / (1 + np.exp(-g)) * (up @ inputs)).astype(np.float32)
        return HiddenActivations([hidden], [np.empty((0, 5))], [weights]).block(0)

    sides = zip(*([prepared(*rows) for rows in zip(m.gate, m.up, m.down, strict=True)] for m in (a, b)), strict=True)
    results = [correlation_with_identity(*rows, i, int(rng.integers(2**31))) for i, rows in enumerate(sides)]
    return get(name).aggregate(results).log10_p or 0.0


#: statistic -> its log10 p of two models
STATISTICS: dict[str, Callable[[Mlps, Mlps, np.random.Generator], float]] = {
    name: lambda a, b, rng, name=name: by_activations(name, a, b, rng)  # type: ignore[misc]
    for name in ("phi_match", "phi_match_unsigned")
} | {
    name: lambda a, b, rng, name=name: by_order(name, a, b, rng)  # type: ignore[misc]
    for name in ("phi_u", "phi_h")
}


def rates(case: str, statistic: str, n_pairs: int, shape: tuple[int, int, int], seed: int = 0) -> list[float]:
    """Share of pairs rejected at each of `LEVELS`."""
    rng = np.random.default_rng(seed)
    log10_p = np.array([STATISTICS[statistic](*CASES[case](shape, rng), rng) for _ in range(n_pairs)])
    return [float((log10_p <= np.log10(level) + 1e-12).mean()) for level in LEVELS]


def main() -> None:
    """Print a row for each case and statistic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], default=[], metavar="CASE")
    parser.add_argument("--statistic", choices=[*STATISTICS], action="append", help="may be given again (default: all)")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=4)
    arguments = parser.parse_args()
    shape = arguments.blocks, arguments.units, arguments.width
    print(f"{arguments.pairs} pairs of {shape[0]} blocks of {shape[1]} units\n{'case':12} {'statistic':20}", *LEVELS)
    for case in arguments.cases or CASES:
        for statistic in arguments.statistic or STATISTICS:
            print(f"{case:12} {statistic:20}", *rates(case, statistic, arguments.pairs, shape), flush=True)


if __name__ == "__main__":
    main()
