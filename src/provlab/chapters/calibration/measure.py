"""What the page on calibration measures: p-values of independent pairs by training and symmetry, planted faults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

from provlab.chapters.calibration import shipped, trained
from provlab.chapters.shared import calibration
from provlab.chapters.shared.example_one import NetworkPairs, PairTests, permtest_phi_l2, train_pairs
from provlab.chapters.shared.joint_null import JointKS
from provlab.inference import pvalues
from provlab.inference.matching import cosine_similarity
from provlab.inference.permtest import p_value
from provlab.plots import format_interval, style

Floats = NDArray[np.float64]
Pair = tuple[str, str]
Reports = Mapping[str, calibration.CalibrationReport]
HIDDEN_UNITS = 64  # of two-layer networks
SHUFFLED = "the same ties, shuffled"  # the counter-check of the planted fault


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
class TwoLayer:
    """Pairs of two-layer networks and their tests: PERMTEST with phi_l2, and phi_U of the first layers.

    Attributes
    ----------
    phi_u
        log10 p, ``(pairs,)``.
    matchings
        ``(pairs, units)``.
    """

    pairs: NetworkPairs
    l2: PairTests
    phi_u: Floats
    matchings: NDArray[np.int64]


def two_layer(n_pairs: int, n_permutations: int, *, seed: int) -> TwoLayer:
    """Train and test independent pairs of two-layer networks."""
    pairs = train_pairs(n_pairs, dependent=False, hidden_units=HIDDEN_UNITS, steps=100, seed=seed)
    l2 = permtest_phi_l2(pairs, n_permutations=n_permutations, seed=seed + 1)
    found = shipped.match_rows(pairs.theta1[..., :-1], pairs.theta2[..., :-1], seed=seed)
    return TwoLayer(pairs, l2, shipped.log10_p(found), np.array([one.matching for one in found]))


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
    """Train pairs of residual networks; `shared` plants the fault of a common initialisation."""
    return trained.train_residual_pairs(
        n_pairs,
        hidden_units=32,
        n_inputs=64,
        steps=60,
        learning_rate=0.02,
        shared_initialisation=shared,
        seed=seed,
    )


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
            f"that is a shift of {shift:.2f} standard deviations of the null; without an allowance a one-sided test",
            "of one block would have the actual size (in brackets the two-sided test of the paper)",
        ]
        for level in (0.05, 0.01, 0.001):
            z = stats.norm.isf(level / 2)
            two, one = stats.norm.sf(z - shift) + stats.norm.sf(z + shift), stats.norm.sf(stats.norm.isf(level) - shift)
            lines.append(f"  {level:g} -> {one:.4f}    ({two:.4f})")
        return "\n".join(lines)


def agreeing(rounds: Sequence[Sequence[Pair]], matchings: Mapping[Pair, Sequence[NDArray[np.int64]]]) -> Agreeing:
    """Count over the pairs of some rounds, from the matchings of each block by gate and by up, ``(2, units)``."""
    found = [[both for pair in pairs for both in matchings[pair]] for pairs in rounds]
    return Agreeing(
        [[int((gate == up).sum()) for gate, up in one] for one in found],
        [[pvalues.spearman(gate, up).rho for gate, up in one] for one in found],
        found[0][0].shape[1],
    )


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


def same_block(residual: trained.ResidualPairs, *, seed: int) -> Floats:
    """Three p-values that share the renumbering of one block, ``(pairs, 3)`` log10: phi_H without a third of inputs."""
    first, second = (networks.hidden[:, 0] for networks in residual.networks())
    kept = [np.arange(first.shape[-1]) % 3 != left_out for left_out in range(3)]
    found = [shipped.match_rows(first[..., some], second[..., some], seed=seed) for some in kept]
    return np.stack([shipped.log10_p(one) for one in found], axis=1)


def planted_faults(
    networks: TwoLayer, residual: trained.ResidualPairs, dependent: Floats, *, seed: int
) -> dict[str, calibration.CalibrationReport]:
    """The check on what looks like a p-value and is none; last, not a fault, ties in random order.

    Parameters
    ----------
    networks, residual
        Of the page.
    dependent
        p-values of one block, by `same_block`.
    seed
        Of ties; further networks are trained from the seeds above it.
    """
    shared = residual_pairs(len(networks.pairs) // 8, seed=seed + 7, shared=True)
    compared = shipped.compare(
        shared, seed=seed, statistics=["phi_u"], weights=[shipped.AS_TRAINED], solvers=[shipped.COMPILED]
    )
    signs = [np.sign(theta[..., :-1]) for theta in (networks.pairs.theta1, networks.pairs.theta2)]
    # scipy's solver as it is breaks ties by the order of the rows, on both sides alike
    in_order = [linear_sum_assignment(cosine_similarity(a, b), maximize=True)[1] for a, b in zip(*signs, strict=True)]
    tied = [one.up.swapaxes(0, 1) for one in residual.networks(tied=True)]  # (blocks, pairs, units, width)
    with shipped.without_compiler(), np.errstate(divide="ignore"):
        # every block is taken for the same one
        alike = [shipped.log10_p(shipped.match_rows(a, b, seed=seed)) for a, b in zip(*tied, strict=True)]
        printed = np.log10((networks.l2.permuted[:, :19] > networks.l2.observed[:, None]).sum(axis=1) / 20)
    p = 10.0**networks.phi_u
    tables = {
        "a shared start": compared.blocks["phi_u", shipped.AS_TRAINED, shipped.COMPILED],
        "Fisher over dependent": pvalues.fisher(dependent, axis=1),
        "one minus a p-value": printed,
        "the better of two sides": np.log10(np.minimum(p, 1 - p)),
        "ties in order": np.array([pvalues.spearman(one).log10_p for one in in_order]),
        "ties alike in every block": np.stack(alike, axis=1),
        SHUFFLED: shipped.log10_p(shipped.match_rows(*signs, seed=seed)),
    }
    return {name: calibration.check(table) for name, table in tables.items()}


# Records and tables -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Blocks:
    """What claim I2 is judged from.

    Attributes
    ----------
    valid
        log10 p by pair and block for each set of disjoint pairs, where Theorem 2 holds and ties are broken at random.
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
