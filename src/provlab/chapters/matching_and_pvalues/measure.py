"""What the page on matching and p-values measures: MATCH on examples, the t tail, PERMTEST and blocks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from provlab.chapters.shared import calibration
from provlab.chapters.shared.joint_null import joint_null
from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab.inference.matching import assign, match
from provlab.inference.permtest import p_value
from provlab.plots import format_log10_p
from provlab.report import StudyReport
from provlab.statistics import get
from provlab.statistics.base import Model, Options

Floats = NDArray[np.float64]
Pair = tuple[str, str]
Matchings = Mapping[Pair, Sequence[NDArray[np.int64]]]


# One pair ---------------------------------------------------------------------------------------------------------


def first_of_trees(study: StudyReport) -> list[str]:
    """The first model of each tree of a study.

    Raises
    ------
    ParameterError
        If the lineage of a model is unknown, or there are fewer than three trees.
    """
    trees = study.lineage.families()  # model -> the base it descends from
    if "unknown" in trees.values() or len(set(trees.values())) < 3:
        raise ParameterError("this chapter needs models of known lineage from at least three trees; see models")
    return list(pd.Series(trees).drop_duplicates().index)


def one_of_each(study: StudyReport) -> dict[str, Pair]:
    """The first dependent pair and the first independent pair of a study.

    Raises
    ------
    ParameterError
        If there is none of a kind.
    """
    pairs = study.to_frame()
    pairs = pairs[(pairs["statistic"] == "phi_u") & pairs["error"].isna()]
    kinds = {"fine-tune": pairs[pairs["dependent"].eq(True)], "independent": pairs[pairs["dependent"].eq(False)]}
    if missing := [kind for kind, rows in kinds.items() if rows.empty]:
        raise ParameterError(f"this chapter needs a pair of each kind and has no {missing[0]} to compare; see models")
    return {kind: (str(rows.iloc[0]["a"]), str(rows.iloc[0]["b"])) for kind, rows in kinds.items()}


def up_projections(pair: Pair, options: Options, *, allow_pickle: bool) -> tuple[NDArray[np.float32], ...]:
    """Rows of the first up projection of both models, one per hidden unit, as phi_U reads them."""
    opened = (Model.open(model, allow_pickle=allow_pickle) for model in pair)
    return tuple(get("phi_u").prepare(model, options).block(0).rows for model in opened)


def matched(rows: Mapping[str, Sequence[NDArray[np.float32]]]) -> pd.DataFrame:
    """What MATCH and Spearman find on some pairs of matrices, one column a pair."""
    table = {}
    for name, (first, second) in rows.items():
        matching = match(first, second)
        found = pvalues.spearman(matching.indices)
        table[name] = {
            "mean cosine of partners": f"{matching.objective / found.n:.3f}",
            "units matched to themselves": f"{np.mean(matching.indices == np.arange(found.n)):.1%}",
            "ρ": f"{found.rho:.4f}",
            "log10 p": format_log10_p(found.log10_p),
            "log10 p, the paper's": format_log10_p(found.paper_log10_p),
        }
    return pd.DataFrame(table).T


def cosine_and_distance(first: Floats, second: Floats, *, seed: int) -> pd.DataFrame:
    """Share of units that find themselves, by cosine and by Euclidean distance, as the second model is disturbed."""
    rng = np.random.default_rng(seed)
    noisy = second + 2 * second.std() * rng.normal(size=second.shape)
    variants = {
        "as trained": second,
        "with noise": noisy,
        "with noise, rows rescaled": noisy * np.exp(rng.normal(0, 1.5, size=(len(second), 1))),
    }
    own = np.arange(len(first))
    share = {}
    for name, other in variants.items():
        squared = ((first[:, None] - other[None]) ** 2).sum(axis=2)  # (h, h)
        share[name] = {
            "cosine": np.mean(match(first, other).indices == own),
            "Euclidean": np.mean(assign(-squared).indices == own),
        }
    return pd.DataFrame(share).T.map("{:.0%}".format).rename_axis(columns="units found")


# The t tail -------------------------------------------------------------------------------------------------------


def _distance(rho: float, n: int) -> int:
    """D, the sum of squared rank differences, at a correlation."""
    return round((1 - rho) * (n**3 - n) / 12) * 2


def where_doubles_end(n: int) -> pd.DataFrame:
    """P of some correlations of n ranks, by scipy and here."""
    rows = []
    for rho in (0.05, 0.1, 0.2, 0.35, 0.5, 0.9):
        t = rho * np.sqrt((n - 2) / (1 - rho**2))
        rows.append(
            {
                "ρ": rho,
                "scipy: p": f"{2 * stats.t.sf(t, n - 2):.3g}",
                "scipy: log10 p": f"{(np.log(2) + stats.t.logsf(t, n - 2)) / np.log(10):.1f}",
                "here: log10 p": format_log10_p(pvalues.log10_p_t(_distance(rho, n), n)),
            }
        )
    return pd.DataFrame(rows).set_index("ρ").rename_axis(index=None, columns="ρ")


def floors(widths: Sequence[int]) -> pd.DataFrame:
    """log10 of the smallest p-value of each width, two-sided and one-sided."""
    found = pd.DataFrame(
        {
            "log10 of 2/n!": {n: format_log10_p(pvalues.log10_p_t(0, n)) for n in widths},
            "log10 of 1/n!": {n: format_log10_p(pvalues.log10_floor(n)) for n in widths},
        }
    )
    return found.rename_axis(columns="hidden units n")


def all_of_eight() -> dict[str, pd.DataFrame]:
    """-log10 p (y) against rho (x) for eight units, exact over all permutations and by the t tail."""
    n = 8
    distances = pvalues.distances(np.array(list(permutations(range(n)))))
    middle = (n**3 - n) // 6  # D at rho = 0
    seen = np.unique(distances[(distances > 0) & (distances <= middle)])
    exact = np.array([np.mean(np.abs(distances - middle) >= middle - d) for d in seen])
    rho = 1 - seen / middle
    return {
        "exact": pd.DataFrame({"x": rho, "y": -np.log10(exact)}),
        "t tail": pd.DataFrame({"x": rho, "y": -np.asarray(pvalues.log10_p_t(seen, n))}),
    }


def gap_of_twenty(draws: int, *, seed: int) -> dict[str, pd.DataFrame]:
    """log10 exact p minus log10 of the t tail (y) against rho (x) for 20 units: drawn, by the formula, by the law."""
    n = 20
    middle = (n**3 - n) // 6
    rng = np.random.default_rng(seed)
    drawn = rng.permuted(np.tile(np.arange(n, dtype=np.int16), (draws, 1)), axis=1).astype(np.int32)
    off_middle = np.abs(pvalues.distances(drawn) - middle)
    rows = []
    for rho in np.arange(0.2, 0.81, 0.05):
        distance = _distance(rho, n)
        reached = int((off_middle >= middle - distance).sum())
        counted = np.log10([reached / draws, *calibration.size_interval(reached, draws)])
        formula = 36 / 25 * n * rho**4 / 24 / np.log(10)
        t = pvalues.log10_p_t(distance, n)
        rows.append([rho, *(counted - t), formula, pvalues.log10_p_spearman(distance, n) + np.log10(2.0) - t])
    gaps = pd.DataFrame(rows, columns=["x", "y", "low", "high", "formula", "law"])
    return {
        "counted": gaps[["x", "y", "low", "high"]],
        "0.026 n ρ⁴": gaps[["x", "formula"]].rename(columns={"formula": "y"}),
        "the law": gaps[["x", "law"]].rename(columns={"law": "y"}),
    }


def law_and_t(n: int) -> pd.DataFrame:
    """log10 p of some distances of n ranks: the paper's two-sided t tail, and one-sided by the law."""
    rows = []
    for wanted in (-2, -4, -6, -10, -30, -100, -300):
        distance = pvalues.distance_at(wanted, n)
        rows.append(
            {
                "ρ": f"{1 - 6 * distance / (n**3 - n):.3f}",
                "log10 p, the law": pvalues.log10_p_spearman(distance, n),
                "log10 p, t tail": pvalues.log10_p_t(distance, n),
            }
        )
    return pd.DataFrame(rows)


# PERMTEST ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rematched:
    """Of n renumbered copies of a model, how many are matched as the renumbered matching says, unit for unit."""

    same: int
    n: int


def rematched(first: NDArray[np.float32], second: NDArray[np.float32], n: int, *, seed: int) -> Rematched:
    """Renumber the first model n times and match it anew."""
    matching = match(first, second).indices
    rng = np.random.default_rng(seed)
    orders = (rng.permutation(len(first)) for _ in range(n))
    return Rematched(sum(np.array_equal(match(first[order], second).indices, matching[order]) for order in orders), n)


@dataclass(frozen=True)
class Tail:
    """One matching judged twice: what claim I3 is judged from.

    Attributes
    ----------
    a, b, block, statistic
        Which matching.
    log10_p_t, log10_p_permtest
        By Spearman's t tail, and by PERMTEST over `T` copies of the matching.
    T
        Copies.
    """

    a: str
    b: str
    block: int
    statistic: str
    log10_p_t: float
    log10_p_permtest: float
    T: int


def tails(matchings: Mapping[str, Matchings], pairs: Sequence[Pair], n_permutations: int, *, seed: int) -> list[Tail]:
    """Judge every block of some pairs by each statistic, by the t tail and by PERMTEST."""
    rng = np.random.default_rng(seed)
    rows = []
    for statistic, found in matchings.items():
        for a, b in pairs:
            for block, matching in enumerate(found[a, b]):
                copies = rng.permuted(np.tile(matching, (n_permutations, 1)), axis=1)
                rows.append(
                    Tail(
                        a,
                        b,
                        block,
                        statistic,
                        pvalues.spearman(matching).paper_log10_p,
                        float(np.log10(p_value(_strength(matching), _strength(copies)))),
                        n_permutations,
                    )
                )
    return rows


def _strength(matching: NDArray[np.int64]) -> NDArray[np.int64]:
    """|rho| as an integer: how far D lies from its middle. Integers, so that ties are ties."""
    n = matching.shape[-1]
    return np.abs(pvalues.distances(matching) - (n**3 - n) // 6)


@dataclass(frozen=True, eq=False)
class TailAgreement:
    """Whether PERMTEST's counts are what the t tail predicts.

    Attributes
    ----------
    gap
        Largest difference between the two p-values.
    adjusted
        log10 p of each count under the binomial law of the t tail, after Holm's correction.
    """

    gap: float
    adjusted: Floats

    def __str__(self) -> str:
        """Both findings in two lines."""
        return (
            f"{len(self.adjusted)} matchings: largest difference between the two p-values {self.gap:.4f}\n"
            f"smallest binomial p after Holm: {10 ** self.adjusted.min():.2f}"
        )


def agreement(rows: Sequence[Tail]) -> TailAgreement:
    """Test each count of PERMTEST against the binomial law whose rate is the t tail's p."""
    t = np.array([row.T for row in rows])
    tail = 10.0 ** np.array([row.log10_p_t for row in rows])
    permtest = 10.0 ** np.array([row.log10_p_permtest for row in rows])
    # PERMTEST counts the pair itself: (1 + k) / (T + 1)
    k = np.rint(permtest * (t + 1)).astype(int) - 1
    two_sided = [stats.binomtest(int(a), int(b), float(c)).pvalue for a, b, c in zip(k, t, tail, strict=True)]
    adjusted = pvalues.holm(np.log10(np.maximum(two_sided, 1e-300)))
    return TailAgreement(float(np.max(np.abs(permtest - tail))), adjusted)


# Blocks and tables ------------------------------------------------------------------------------------------------


def by_blocks(study: StudyReport, pairs: Sequence[Pair]) -> dict[str, Floats]:
    """log10 p of some pairs by each statistic, ``(pairs, blocks)``."""
    table = study.blocks_frame().pivot(index=["statistic", "a", "b"], columns="block", values="log10_p")
    return {name: table.loc[[(name, a, b) for a, b in pairs]].to_numpy() for name in study.statistics}


@dataclass(frozen=True)
class Uniform:
    """Matchings of independent models held against uniform permutations: what claim I3 is judged from.

    Attributes
    ----------
    statistic, over
        Which matchings: "all pairs, per block", "all pairs, aggregated" over blocks by Fisher's method, or the blocks
        of "disjoint pairs".
    n_pairs
        Pairs of models.
    ks_p
        p-value of the Kolmogorov-Smirnov distance of the t tail's p-values from the uniform: among joint copies of all
        pairs, which share models, and as it is over disjoint pairs.
    ks_p_law
        The same of one-sided p-values by the law itself.
    n_copies
        Joint copies; 0 where none are needed.
    """

    statistic: str
    over: str
    n_pairs: int
    ks_p: float
    ks_p_law: float
    n_copies: int


def uniform_by_symmetry(
    matchings: Mapping[str, Matchings], trees: Mapping[str, str], n_copies: int, *, seed: int
) -> list[Uniform]:
    """Test by each statistic that the matchings of models of different trees are uniform.

    Parameters
    ----------
    matchings
        For each statistic and pair of models, one permutation ``(h,)`` a block; pairs within a tree are left out.
    trees
        Tree of each model.
    n_copies
        Joint copies of all pairs.
    seed
        Of the copies.
    """
    rows = []
    for statistic, found in matchings.items():
        independent = {(a, b): blocks for (a, b), blocks in found.items() if trees[a] != trees[b]}
        copies = joint_null(independent, trees, n_draws=n_copies, seed=seed)
        for aggregated in (False, True):
            by_t, by_law = (
                copies.ks(aggregated=aggregated, law=law).p for law in (pvalues.log10_p_t, pvalues.log10_p_spearman)
            )
            over = f"all pairs, {'aggregated' if aggregated else 'per block'}"
            rows.append(Uniform(statistic, over, len(independent), by_t, by_law, n_copies))
        disjoint = _disjoint(independent, trees)
        blocks = np.concatenate([independent[pair] for pair in disjoint])
        distances, n = pvalues.distances(blocks), blocks.shape[-1]
        by_t, by_law = (
            calibration.ks_uniform(np.asarray(law(distances, n))).p
            for law in (pvalues.log10_p_t, pvalues.log10_p_spearman)
        )
        rows.append(Uniform(statistic, "disjoint pairs", len(disjoint), by_t, by_law, 0))
    return rows


def _disjoint(pairs: Iterable[Pair], trees: Mapping[str, str]) -> list[Pair]:
    """The first pairs of which no two have a tree in common: independent of each other without further assumption."""
    taken, found = set[str](), list[Pair]()
    for a, b in pairs:
        if not {trees[a], trees[b]} & taken:
            taken |= {trees[a], trees[b]}
            found.append((a, b))
    return found


def uniform_table(rows: Sequence[Uniform]) -> pd.DataFrame:
    """The tests of uniformity, one row each."""
    return pd.DataFrame(
        [
            {
                "matchings of": row.statistic,
                "over": row.over,
                "pairs": row.n_pairs,
                "KS p, t tail": row.ks_p,
                "KS p, the law": row.ks_p_law,
                "null by": f"{row.n_copies} joint copies" if row.n_copies else "independence",
            }
            for row in rows
        ]
    )


def before_and_after_holm(study: StudyReport) -> pd.DataFrame:
    """Small p-values of independent pairs and large ones of dependent pairs, before and after Holm's correction."""
    pairs = study.to_frame()
    rows = {}
    for name, group in pairs[pairs["error"].isna()].groupby("statistic", sort=False):
        independent, dependent = (group[group["dependent"].eq(truth)] for truth in (False, True))
        rows[name] = {
            "tests": len(group),
            "independent with p ≤ 0.05": int((independent["log10_p"] <= np.log10(0.05)).sum()),
            "of them after Holm": int((independent["holm_log10_p"] <= np.log10(0.05)).sum()),
            "dependent, largest log10 p": format_log10_p(dependent["log10_p"].max()),
            "after Holm": format_log10_p(dependent["holm_log10_p"].max()),
        }
    return pd.DataFrame(rows).T
