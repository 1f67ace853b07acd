"""What the page on calibration measures: p-values of independent pairs by training and symmetry, planted faults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from provlab.chapters.calibration import trained
from provlab.chapters.shared import calibration
from provlab.chapters.shared.example_one import NetworkPairs, PairTests, permtest_phi_l2, train_pairs
from provlab.chapters.shared.joint_null import JointKS
from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled
from provlab.inference.permtest import p_value
from provlab.plots import format_interval, style
from provlab.statistics import get
from provlab.statistics.base import Model, Options

Floats = NDArray[np.float64]
Pair = tuple[str, str]
Reports = Mapping[str, calibration.CalibrationReport]
HIDDEN_UNITS = 64  # of all networks trained here
SHUFFLED = "the same ties, shuffled"  # the counter-check of the planted fault


def log10_p(matchings: ArrayLike) -> Floats:
    """One-sided log10 p of Spearman's correlation with the identity, for permutations along the last axis."""
    found = np.asarray(matchings)
    return np.asarray(pvalues.log10_p_spearman(pvalues.distances(found), found.shape[-1]))


def share_up_to(p: Floats, level: float) -> tuple[float, float, float]:
    """Share of p-values up to a level, with its exact 95% interval."""
    k = int((p <= level + 1e-12).sum())
    return (k / p.size, *calibration.size_interval(k, p.size))


# The check itself -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnSize:
    """How often the check flags truly uniform p-values.

    Attributes
    ----------
    flagged
        By kind of set, how many sets are flagged.
    trials
        Sets of each kind.
    level
        At which the check was asked to flag.
    """

    flagged: dict[str, int]
    trials: int
    level: float

    def table(self) -> pd.DataFrame:
        """As the page shows it."""
        intervals = {name: calibration.size_interval(k, self.trials) for name, k in self.flagged.items()}
        return pd.DataFrame(
            {
                "flagged": {name: f"{k} of {self.trials}" for name, k in self.flagged.items()},
                "rate, 95% interval": {name: f"{low:.3f} to {high:.3f}" for name, (low, high) in intervals.items()},
                "promised": f"at most {self.level:g}",
            }
        )


def own_size(trials: int, *, seed: int) -> OwnSize:
    """Check sets of uniform random numbers at a level of 5%."""
    rng = np.random.default_rng(seed)
    level = 0.05
    kinds = {
        "100 pairs, one block": lambda: calibration.check(np.log10(1 - rng.random(100)), level=level),
        "40 pairs, four blocks": lambda: calibration.check(np.log10(1 - rng.random((40, 4))), level=level),
        "100 pairs, PERMTEST with T = 19": lambda: calibration.check(
            np.log10(rng.integers(1, 21, 100) / 20), n_permutations=19, level=level
        ),
    }
    return OwnSize({name: sum(check().flagged for _ in range(trials)) for name, check in kinds.items()}, trials, level)


# The null by training ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Networks:
    """Pairs of two-layer networks and their tests: PERMTEST with phi_l2, and the matchings of the first layers."""

    pairs: NetworkPairs
    l2: PairTests
    matchings: NDArray[np.int64]

    @property
    def phi_u(self) -> Floats:
        """log10 p of phi_U, ``(pairs,)``."""
        return log10_p(self.matchings)


def two_layer(n_pairs: int, n_permutations: int, *, seed: int) -> Networks:
    """Train and test independent pairs of two-layer networks."""
    pairs = train_pairs(n_pairs, dependent=False, hidden_units=HIDDEN_UNITS, steps=100, seed=seed)
    l2 = permtest_phi_l2(pairs, n_permutations=n_permutations, seed=seed + 1)
    return Networks(pairs, l2, trained.matchings(pairs.theta1[..., :-1], pairs.theta2[..., :-1], seed=seed + 2))


@dataclass(frozen=True)
class UniformTable:
    """Chi-square test that each unit is matched to each other one equally often.

    Attributes
    ----------
    p
        p-value.
    n, units
        Matchings, and units of each.
    """

    p: float
    n: int
    units: int


def uniform_table(matchings: NDArray[np.int64]) -> UniformTable:
    """Count how often unit i is matched to unit j, over ``(n, units)`` matchings, and compare with equal counts."""
    n, units = matchings.shape
    counts = np.zeros((units, units))
    np.add.at(counts, (np.broadcast_to(np.arange(units), matchings.shape), matchings), 1)
    # rows and columns of the table have fixed sums: chi-square with (units - 1)^2 degrees of freedom
    distance = (units - 1) / units * ((counts - n / units) ** 2 / (n / units)).sum()
    return UniformTable(float(stats.chi2.sf(distance, (units - 1) ** 2)), n, units)


def residual_pairs(n_pairs: int, *, seed: int, shared: bool = False) -> trained.ResidualPairs:
    """Train pairs of residual networks of three blocks; `shared` plants the fault of a common initialisation."""
    return trained.train_residual_pairs(
        n_pairs,
        hidden_units=HIDDEN_UNITS,
        n_inputs=64,
        steps=80,
        learning_rate=0.005,
        shared_initialisation=shared,
        seed=seed,
    )


def by_block(residual: trained.ResidualPairs, *, seed: int) -> dict[str, Floats]:
    """log10 p of phi_U and phi_H of residual networks, ``(pairs, blocks)`` each."""
    return {
        "phi_u": log10_p(trained.matchings(residual.up1, residual.up2, seed=seed)),
        "phi_h": log10_p(trained.matchings(residual.hidden1, residual.hidden2, seed=seed + 1)),
    }


def correlations(tables: Mapping[str, Floats]) -> pd.DataFrame:
    """Correlation of the p-values of any two blocks, of tables ``(pairs, blocks)``, with their joint 99% band."""
    n_pairs, n_blocks = next(iter(tables.values())).shape
    n_compared = n_blocks * (n_blocks - 1) // 2
    band = calibration.correlation_band(n_pairs, 0.99, n_compared)
    found = pd.DataFrame(
        {
            style.word(name): {
                f"blocks {i} and {j}": f"{np.corrcoef(10.0 ** table[:, i], 10.0 ** table[:, j])[0, 1]:+.3f}"
                for i in range(n_blocks)
                for j in range(i)
            }
            for name, table in tables.items()
        }
    )
    found[f"99% band, all {n_compared} together"] = f"±{band[1]:.3f}"
    return found


def of_round(table: Mapping[Pair, Floats], pairs: Sequence[Pair]) -> Floats:
    """log10 p of the pairs of one round, ``(pairs, blocks)``."""
    return np.array([table[pair] for pair in pairs])


@dataclass(frozen=True)
class AllPairs:
    """All pairs of independent models by one statistic.

    Attributes
    ----------
    joint_p
        p-value of uniformity among joint copies; None where no symmetry gives them.
    rounds_p
        p-value of uniformity from rounds of disjoint pairs.
    share, low, high
        Share of p-values up to 0.05, with its interval by the jackknife over models.
    """

    joint_p: float | None
    rounds_p: float
    share: float
    low: float
    high: float


def all_pairs(
    tables: Mapping[str, Mapping[Pair, Floats]], joint: Mapping[str, JointKS]
) -> tuple[dict[str, AllPairs], pd.DataFrame]:
    """Test all pairs at once, by joint copies and by rounds; as records and as the page's table."""
    records, rows = {}, {}
    for name, table in tables.items():
        robin = calibration.round_robin({pair: row.tolist() for pair, row in table.items()})
        p = joint[name].p if name in joint else None
        records[name] = AllPairs(p, robin.p, robin.share, robin.low, robin.high)
        rows[style.word(name)] = {
            "pairs": robin.n_pairs,
            "uniform, joint copies: p": "no symmetry" if p is None else f"{p:.2f}",
            "uniform, rounds: p": f"{robin.p:.2f}",
            "rounds below 0.05": f"{(robin.rounds <= 0.05).sum()} of {len(robin.rounds)}",
            "share p ≤ 0.05": format_interval(robin.share, robin.low, robin.high),
        }
    return records, pd.DataFrame(rows).T


# What the symmetry does not give ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreeing:
    """Units on which the matchings by gate and by up agree, between independent models.

    Attributes
    ----------
    agree, rho
        For each round of disjoint pairs, of every block: units in common, and the correlation of the two matchings.
    units
        Hidden units of a block.
    """

    agree: list[list[int]]
    rho: list[list[float]]
    units: int

    def __str__(self) -> str:
        """Counts, the shift that they predict and what it does to levels, as lines of text."""
        first = self.agree[0]  # disjoint pairs, so that their total is a sum of independent counts
        low, high = (stats.chi2.ppf(q, 2 * sum(first) + more) / 2 / len(first) for q, more in ((0.025, 0), (0.975, 2)))
        mean = np.mean(self.agree)
        shift = (mean - 1) / np.sqrt(self.units - 1)
        lines = [
            f"units of {self.units} on which gate and up agree, chance 1: "
            f"{format_interval(float(np.mean(first)), low, high, 2)} over {len(first)} blocks of disjoint pairs",
            f"over {np.size(self.agree)} blocks of {len(self.agree)} rounds: {mean:.2f}; mean correlation "
            f"{np.mean(self.rho):+.4f}, predicted {(mean - 1) / (self.units - 1):+.4f}",
            f"that is a shift of {shift:.2f} standard deviations of the null; actual sizes of two-sided tests become",
        ]
        for level in (0.05, 0.01, 0.001):
            z = stats.norm.isf(level / 2)
            two, one = stats.norm.sf(z - shift) + stats.norm.sf(z + shift), stats.norm.sf(stats.norm.isf(level) - shift)
            lines.append(f"  {level:g} -> {two:.4f}    (one-sided: {one:.4f})")
        return "\n".join(lines)


def agreeing(rounds: Sequence[Sequence[Pair]], n_blocks: int, options: Options, *, seed: int) -> Agreeing:
    """Match the units of every block twice, by gate and by up, for the pairs of some rounds."""
    statistic = get("phi_match")
    models = dict.fromkeys(model for pairs in rounds for pair in pairs for model in pair)
    features = {model: statistic.prepare(Model.open(model), options) for model in models}
    agree: list[list[int]] = []
    rho: list[list[float]] = []
    units = 0
    for pairs in rounds:
        agree.append([])
        rho.append([])
        for a, b in pairs:
            for block in range(n_blocks):
                (gate_a, up_a, _), (gate_b, up_b, _) = features[a].block(block), features[b].block(block)
                by_gate = match_shuffled(gate_a, gate_b, seed=seed).indices
                by_up = match_shuffled(up_a, up_b, seed=seed + 1).indices
                agree[-1].append(int((by_gate == by_up).sum()))
                rho[-1].append(pvalues.spearman(by_gate, by_up).rho)
                units = by_gate.size
    return Agreeing(agree, rho, units)


# Few permutations, and planted faults -----------------------------------------------------------------------------


def few_permutations(l2: PairTests, numbers: Sequence[int]) -> pd.DataFrame:
    """Shares of small p-values of PERMTEST with fewer copies, as it is and with ties."""
    rows = []
    for t in numbers:
        for digits in (None, 0):
            both = (l2.observed, l2.permuted[:, :t])
            observed, copies = both if digits is None else (np.round(values, digits) for values in both)
            p = np.asarray(p_value(observed, copies))
            rows.append(
                {
                    "T": t,
                    "statistic": "as it is" if digits is None else "rounded to whole numbers",
                    **{f"share p ≤ {level:g}": format_interval(*share_up_to(p, level)) for level in (0.1, 0.05, 0.01)},
                }
            )
    return pd.DataFrame(rows)


def same_block(residual: trained.ResidualPairs, first_block: Floats, *, seed: int) -> Floats:
    """Three p-values that share the renumbering of one block, ``(pairs, 3)`` log10: phi_U, and phi_H on two halves.

    Parameters
    ----------
    first_block
        log10 p of phi_U of the first block, ``(pairs,)``.
    """
    halves = [
        trained.matchings(residual.hidden1[:, 0][..., part], residual.hidden2[:, 0][..., part], seed=seed)
        for part in (slice(None, None, 2), slice(1, None, 2))
    ]
    return np.stack([first_block, *(log10_p(half) for half in halves)], axis=1)


def planted_faults(networks: Networks, dependent: Floats, *, seed: int) -> dict[str, calibration.CalibrationReport]:
    """The check on what looks like a p-value and is none; last, not a fault, ties in random order.

    Parameters
    ----------
    networks
        Of the page.
    dependent
        p-values of one block, by `same_block`.
    seed
        Of ties; further networks are trained from the seeds above it.
    """
    shared = residual_pairs(len(networks.pairs) // 8, seed=seed + 7, shared=True)
    signs = [np.sign(theta[..., :-1]) for theta in (networks.pairs.theta1, networks.pairs.theta2)]
    with np.errstate(divide="ignore"):
        printed = np.log10((networks.l2.permuted[:, :19] > networks.l2.observed[:, None]).sum(axis=1) / 20)
    tables = {
        "a shared start": log10_p(trained.matchings(shared.up1, shared.up2, seed=seed + 8)),
        "Fisher over dependent": pvalues.fisher(dependent, axis=1),
        "one minus a p-value": printed,
        "the better of two sides": networks.phi_u - np.log10(2.0),
        "ties in order": log10_p(trained.matchings(*signs, seed=seed, shuffled=False)),
        SHUFFLED: log10_p(trained.matchings(*signs, seed=seed)),
    }
    return {name: calibration.check(table) for name, table in tables.items()}


# Records and tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Blocks:
    """What claim I2 is judged from.

    Attributes
    ----------
    valid
        log10 p by pair and block for each set of disjoint pairs, where Theorem 2 holds.
    dependent
        The same for p-values of parameters that share a renumbering, where it does not.
    """

    valid: dict[str, ArrayLike]
    dependent: ArrayLike


def flags(controls: Reports) -> dict[str, dict[str, Any]]:
    """Whether each planted fault was flagged, and why, as the record keeps it."""
    return {name: {"flagged": one.flagged, "reasons": one.reasons} for name, one in controls.items()}


def summaries(reports: Reports) -> dict[str, dict[str, Any]]:
    """Every report that should be valid, as the record keeps it."""
    return {
        name: {"flagged": r.flagged, "reasons": r.reasons, "uniform": r.ks, "n": r.n, "blocks": r.n_blocks}
        for name, r in reports.items()
    }


def said_of(reports: Reports, controls: Reports) -> str:
    """Sentences on what the check flags, for the page."""
    flagged = [style.word(name) for name, report in reports.items() if report.flagged]
    missed = [name for name, report in controls.items() if not report.flagged]
    return (
        f"Of {len(reports)} sets that should be valid the check flags {len(flagged)}, of {len(controls)} planted "
        f"faults {len(controls) - len(missed)}."
        + (f" Flagged though valid: {', '.join(flagged)}." if flagged else "")
        + (f" Missed faults: {', '.join(missed)}." if missed else "")
    )


def worded(reports: Reports) -> pd.DataFrame:
    """Every report that should be valid, as the page's table."""
    return pd.DataFrame(
        [
            {
                "statistic": style.word(name),
                "pairs": r.n,
                "blocks": r.n_blocks,
                "uniform: p": f"{r.ks:.2f}",
                "Fisher uniform: p": "" if r.fisher_ks is None else f"{r.fisher_ks:.2f}",
                **{f"≤ {s.level:g}": format_interval(s.share, s.low, s.high, 4) for s in r.sizes},
                "flagged": "; ".join(r.reasons) or "no",
            }
            for name, r in reports.items()
        ]
    )


def worded_flags(controls: Reports) -> pd.DataFrame:
    """The planted faults as the page's table."""
    return pd.DataFrame(
        [
            {
                "planted fault": name,
                "flagged": "yes" if one.flagged else "NO",
                "reasons": "; ".join(one.reasons[:3]),
            }
            for name, one in controls.items()
        ]
    )
