"""Predicates that judge claims from stored records, and the evidence they are given.

A predicate takes the `Evidence` of one experiment and the arguments of its row in ``claims.yml`` and returns a
`Verdict`. Thresholds come from the row; values come from the records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from provlab.errors import ParameterError
from provlab.inference import calibration, pvalues
from provlab.statistics import get as get_statistic
from provlab.statistics.base import BlockResult
from provlab.studies.store import Store

HOLDS, FAILS, NOT_RUN = "holds", "fails", "not run"


@dataclass(frozen=True)
class Verdict:
    """What a predicate found: a status, our value in words, and why."""

    status: str
    ours: str
    why: str


@dataclass(frozen=True)
class Evidence:
    """What one notebook run left in the store."""

    experiment: dict[str, Any]
    store: Store

    @property
    def profile(self) -> str:
        """The profile that the notebook ran in."""
        return str(self.experiment["profile"])

    def measurement(self, name: str) -> Any:
        """One measurement of the notebook; KeyError if it made none of that name."""
        return self.experiment["measurements"][name]

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """One row per pair and statistic, aggregated anew from the stored units.

        Columns: a, b, statistic, dependent, siblings, error, value, log10_p, detail, blocks (a list of log10 p).
        """
        rows = [{**pair, **self._aggregate(pair)} for pair in self.experiment["pairs"]]
        frame = pd.DataFrame(rows, columns=None if rows else ["a", "b", "statistic"])
        for column in ("error", "dependent"):  # None must stay None among text and booleans
            frame[column] = pd.Series([row[column] for row in rows], dtype=object)
        return frame

    def _aggregate(self, pair: Mapping[str, Any]) -> dict[str, Any]:
        if pair["error"]:
            return {"value": np.nan, "log10_p": np.nan, "detail": {}, "blocks": []}
        units = [self.store.get(key) for key in pair["keys"]]
        if lost := [key for key, unit in zip(pair["keys"], units, strict=True) if unit is None]:
            raise ParameterError(
                f"unit {lost[0]} of experiment {self.experiment['name']} is no longer in {self.store.root}; "
                "run it again"
            )
        blocks = [BlockResult(u["block"], u["value"], u["log10_p"], u["detail"]) for u in units if u is not None]
        outcome = get_statistic(pair["statistic"]).aggregate(blocks)
        return {
            "value": outcome.value,
            "log10_p": np.nan if outcome.log10_p is None else outcome.log10_p,
            "detail": outcome.detail,
            "blocks": [block.log10_p for block in blocks],
        }

    def of(self, statistic: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
        """Dependent pairs, independent pairs, and how many pairs failed, for one statistic."""
        rows = self.pairs[self.pairs["statistic"] == statistic]
        ran = rows[rows["error"].isna()]
        truth = ran["dependent"]
        return ran[truth.eq(True)], ran[truth.eq(False)], int(rows["error"].notna().sum())


def separates(evidence: Evidence, statistic: str, log10_p: float, level: float, ks: float) -> Verdict:
    """Every dependent pair below `log10_p`, Holm at `level` rejects exactly these, the others uniform by KS."""
    dependent, independent, failed = evidence.of(statistic)
    if dependent.empty or independent.empty:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    adjusted = pvalues.holm(pd.concat([dependent, independent])["log10_p"].to_numpy(dtype=float))
    rejected = adjusted <= np.log10(level)
    exact = bool(rejected[: len(dependent)].all() and not rejected[len(dependent) :].any())
    found = int((dependent["log10_p"] < log10_p).sum())
    uniform = calibration.ks_uniform(independent["log10_p"])
    by_symmetry = evidence.experiment["measurements"].get("ks_by_symmetry", {}).get(statistic)
    p_uniform = by_symmetry["p"] if by_symmetry else uniform.p
    ours = (
        f"{found} of {len(dependent)} below {log10_p:g}, largest {_log10(dependent['log10_p'].max())}; "
        f"{len(independent)} independent, smallest {_log10(independent['log10_p'].min())}, KS p = {p_uniform:.2g}"
    )
    problems = [
        (found < len(dependent), f"{len(dependent) - found} dependent pairs are above {log10_p:g}"),
        (not exact, f"Holm at {level} rejects {int(rejected.sum())} pairs, not exactly the dependent ones"),
        (p_uniform <= ks, f"the independent pairs are not uniform (KS p = {p_uniform:.2g})"),
        (failed > 0, f"{failed} pairs could not be compared"),
    ]
    why = f"Holm at {level} rejects exactly the dependent pairs; KS p of the independent ones is above {ks}"
    if by_symmetry:
        why += (
            f" (of all {len(independent)} pairs at once, by permuting the hidden units of whole trees: pairs that "
            f"share a model are not independent, and taking them so gives {uniform.p:.2g})"
        )
    return _judge(ours, why, problems)


def permtest_at_minimum(evidence: Evidence, statistic: str, fisher_log10_p: float) -> Verdict:
    """Every dependent pair at p = 1/(T+1), and per block with Fisher below `fisher_log10_p`."""
    dependent, independent, failed = evidence.of(statistic)
    if dependent.empty or independent.empty:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    unit = evidence.store.get(dependent.iloc[0]["keys"][0])
    assert unit is not None
    n_permutations = unit["parameters"]["n_permutations"]
    minimum = -np.log10(n_permutations + 1)
    found = int((dependent["log10_p"] <= minimum + 1e-9).sum())
    by_block = max(detail["fisher_log10_p"] for detail in dependent["detail"])
    largest_p = 10 ** float(dependent["log10_p"].max())
    ours = (
        f"T = {n_permutations}: {found} of {len(dependent)} at p = {largest_p:.2g}; per block with Fisher at most "
        f"{_log10(by_block)}; {len(independent)} independent from {10 ** independent['log10_p'].min():.2f} "
        f"to {10 ** independent['log10_p'].max():.2f}"
    )
    problems = [
        (found < len(dependent), f"{len(dependent) - found} dependent pairs are above the minimum"),
        (by_block >= fisher_log10_p, f"per block with Fisher the largest is {_log10(by_block)}"),
        (failed > 0, f"{failed} pairs could not be compared"),
    ]
    return _judge(ours, f"every dependent pair is closer than all of its {n_permutations} permuted copies", problems)


def does_not_separate(evidence: Evidence, statistic: str) -> Verdict:
    """Some dependent pair has a larger value than some independent pair."""
    dependent, independent, failed = evidence.of(statistic)
    if dependent.empty or independent.empty:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    largest, smallest = dependent["value"].max(), independent["value"].min()
    above = int((dependent["value"] > smallest).sum())
    ours = (
        f"log JSD of a dependent pair up to {np.log(largest):.2f}, "
        f"of an independent pair down to {np.log(smallest):.2f}; "
        f"{above} of {len(dependent)} dependent pairs lie above the closest independent one"
    )
    problems = [
        (largest <= smallest, "every dependent pair is closer than every independent one"),
        (failed > 0, f"{failed} pairs could not be compared"),
    ]
    return _judge(ours, "no threshold on the divergence tells the two groups apart", problems)


def siblings_found(evidence: Evidence, statistics: Sequence[str], log10_p: float) -> Verdict:
    """Every pair of siblings below `log10_p` by each statistic."""
    words, problems = [], []
    for statistic in statistics:
        dependent, _, _ = evidence.of(statistic)
        siblings = dependent[dependent["siblings"].astype(bool)] if len(dependent) else dependent
        if siblings.empty:
            return Verdict(NOT_RUN, "", "the models run hold no siblings")
        found = int((siblings["log10_p"] < log10_p).sum())
        words.append(
            f"{statistic}: {found} of {len(siblings)} sibling pairs, largest {_log10(siblings['log10_p'].max())}"
        )
        problems.append((found < len(siblings), f"{statistic} misses {len(siblings) - found} sibling pairs"))
    return _judge("; ".join(words), f"every sibling pair is below {log10_p:g}", problems)


def long_training_found(
    evidence: Evidence, measurement: str, statistics: Sequence[str], log10_p: float, share: float
) -> Verdict:
    """A child trained on for at least `share` of its base's tokens, and its child, both found against the base."""
    chain = evidence.experiment["measurements"].get(measurement)
    if not chain:
        return Verdict(NOT_RUN, "", "the models run hold no child that was trained on for so long")
    wanted = {frozenset((chain["base"], chain["child"])), frozenset((chain["base"], chain["grandchild"]))}
    words, problems = [], []
    for statistic in statistics:
        dependent, _, _ = evidence.of(statistic)
        both = dependent[[frozenset(pair) in wanted for pair in zip(dependent["a"], dependent["b"], strict=True)]]
        if len(both) < len(wanted):
            return Verdict(NOT_RUN, "", "the chain of base, child and grandchild was not compared")
        words.append(f"{statistic} largest {_log10(both['log10_p'].max())}")
        problems.append((bool((both["log10_p"] >= log10_p).any()), f"{statistic} loses the chain"))
    if chain["share"] is not None:
        problems.append((chain["share"] < share, f"the child saw only {chain['share']:.1%} of its base's tokens"))
    seen = f" ({chain['share']:.1%} of the base's tokens)" if chain["share"] is not None else ""
    ours = f"{chain['child']}{seen} and {chain['grandchild']}: " + ", ".join(words)
    return _judge(ours, f"both are below {log10_p:g} against {chain['base']}", problems)


def derives_from(evidence: Evidence, measurement: str, statistic: str, log10_p: float, level: float) -> Verdict:
    """A model below `log10_p` against the base it is said to come from; Holm at `level` rejects no pair of a control.

    The roles are named by the measurement and not read from known origins, as nobody vouches for a leak's.
    """
    roles = evidence.measurement(measurement)
    names = [roles["base"], roles["leak"], *roles["controls"]]
    rows = evidence.pairs[evidence.pairs["statistic"] == statistic]
    found = {frozenset((row["a"], row["b"])): float(row["log10_p"]) for _, row in rows.iterrows() if not row["error"]}
    wanted = [
        frozenset(pair) for pair in combinations(names, 2)
    ]  # the first is base and leak, each other has a control
    if not roles["controls"] or not set(names) <= set(rows["a"]) | set(rows["b"]):
        return Verdict(NOT_RUN, "", "the leak, its base and a control were not compared")
    if failed := sum(pair not in found for pair in wanted):
        return Verdict(FAILS, f"{len(found)} pairs compared", f"{failed} pairs could not be compared")
    values = np.array([found[pair] for pair in wanted])
    rejected = pvalues.holm(values) <= np.log10(level)
    ours = (
        f"{roles['leak']} against {roles['base']}: {_log10(values[0])}; "
        f"{len(values) - 1} pairs with {' or '.join(roles['controls'])}: smallest {_log10(values[1:].min())}"
    )
    problems = [
        (bool(values[0] >= log10_p), f"the leak and its base are not below {log10_p:g}"),
        (bool(rejected[1:].any()), f"Holm at {level} rejects {int(rejected[1:].sum())} pairs with a control"),
    ]
    return _judge(ours, f"the leak is below {log10_p:g}, and Holm at {level} rejects no pair with a control", problems)


def permtest_uniform(evidence: Evidence, measurement: str, min_pairs: Mapping[str, int]) -> Verdict:
    """P(p <= k/(T+1)) within its binomial band for all k at once, and fine-tunes at 1/(T+1)."""
    measured = evidence.measurement(measurement)
    independent, dependent = np.array(measured["independent"]), np.array(measured["dependent"])
    t = int(measured["n_permutations"])
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    grid = calibration.discrete_uniform_excess(independent, t)
    at_minimum = int((np.rint(dependent * (t + 1)) == 1).sum())
    ours = (
        f"{len(independent):,} independent pairs, T = {t}: P(p ≤ 0.05) = {np.mean(independent <= 0.05):.3f}, "
        f"uniform with p = {grid.p_two_sided:.2g}; {at_minimum} of {len(dependent)} fine-tunes at 1/{t + 1}"
    )
    problems = [
        (len(independent) < enough, f"only {len(independent)} pairs, fewer than {enough}"),
        (grid.p_two_sided < 0.01, f"not uniform (p = {grid.p_two_sided:.2g})"),
        (at_minimum < len(dependent), f"{len(dependent) - at_minimum} fine-tunes above 1/{t + 1}"),
    ]
    return _judge(ours, "the share of p-values up to k/(T+1) stays within the exact band at every k at once", problems)


def blocks_independent(evidence: Evidence, statistics: Sequence[str], ks: float, level: float) -> Verdict:
    """Correlations between blocks within the null band, one pair of models per pair of trees; Fisher uniform."""
    words, problems = [], []
    for statistic in statistics:
        _, independent, _ = evidence.of(statistic)
        disjoint = {tuple(pair) for pair in evidence.measurement("disjoint")}  # one pair of models for each two trees
        chosen = [pair in disjoint for pair in zip(independent["a"], independent["b"], strict=True)]
        blocks = np.array(independent[chosen]["blocks"].tolist())
        # models of one tree repeat each other, so a null band that counted every pair would be too narrow
        n = len(blocks)
        if n < 3 or blocks.shape[1] < 2:
            return Verdict(NOT_RUN, "", f"{n} pairs of different trees or their blocks are too few to correlate")
        correlations = np.atleast_2d(np.corrcoef((10.0**blocks).T))
        off = [float(correlations[i, j]) for i, j in combinations(range(len(correlations)), 2)]
        _, bound = calibration.correlation_band(n, level, len(off))
        fisher = calibration.ks_uniform([pvalues.fisher(row) for row in blocks])
        largest = max(map(abs, off))
        words.append(
            f"{statistic}: largest |correlation| of two blocks {largest:.2f} (band ±{bound:.2f}, n = {n}), "
            f"Fisher KS p = {fisher.p:.2g}"
        )
        problems += [
            (largest > bound, f"{statistic}: blocks are correlated ({largest:.2f})"),
            (fisher.p <= ks, f"{statistic}: Fisher's aggregate is not uniform (KS p = {fisher.p:.2g})"),
        ]
    return _judge("; ".join(words), "no correlation between blocks leaves its null band", problems)


def tail_agrees(evidence: Evidence, measurement: str, level: float) -> Verdict:
    """PERMTEST's count of exceedances is binomial with the t-tail's p, over all pairs and blocks (Holm)."""
    rows = pd.DataFrame(evidence.measurement(measurement))
    if rows.empty:
        return Verdict(NOT_RUN, "", "no pair was run through PERMTEST")
    t = rows["T"].to_numpy(dtype=int)
    # PERMTEST counts the pair itself: (1 + k) / (T + 1)
    k = np.rint(10.0 ** rows["log10_p_permtest"] * (t + 1)).astype(int) - 1
    tail = 10.0 ** rows["log10_p_t"].to_numpy(dtype=float)
    two_sided = [stats.binomtest(int(a), int(b), float(c)).pvalue for a, b, c in zip(k, t, tail, strict=True)]
    adjusted = pvalues.holm(np.log10(np.maximum(two_sided, 1e-300)))
    gap = float(np.max(np.abs(10.0 ** rows["log10_p_permtest"] - tail)))
    ours = f"{len(rows)} matchings, T = {t.max():,}: largest difference in p {gap:.3f}"
    problems = [(bool((adjusted <= np.log10(level)).any()), "PERMTEST and the t-tail differ by more than chance")]
    return _judge(ours, "each count of exceedances is what the t-tail predicts, within binomial error (Holm)", problems)


PREDICATES: dict[str, Callable[..., Verdict]] = {
    predicate.__name__: predicate
    for predicate in (
        separates,
        permtest_at_minimum,
        does_not_separate,
        siblings_found,
        long_training_found,
        derives_from,
        permtest_uniform,
        blocks_independent,
        tail_agrees,
    )
}


def _judge(ours: str, why: str, problems: Sequence[tuple[bool, str]]) -> Verdict:
    """Hold unless a problem is there; the reason is the problem or, if none, why it holds."""
    found = [text for there, text in problems if there]
    return Verdict(FAILS, ours, "; ".join(found)) if found else Verdict(HOLDS, ours, why)


def _log10(value: float) -> str:
    return f"log10 p = {value:,.1f}"
