"""Claim I11: what holds, and each way in which it can fail, on planted records. No outside reference."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from provlab.engine.store import Store
from provlab.statistics import order
from provlab_study.olmo_seeds.predicates import power_of_uniformity, seeds_independent
from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN, ClaimStatus, RunRecords
from provlab_study.shared import calibration

N = 10
STATISTICS = ["phi_u", "phi_l2", "phi_l2_blocks"]
T = 99
SAME_START = {"phi_u": 1e-40, "phi_l2": 1 / (T + 1), "phi_l2_blocks": 1e-6}
ORDER = order.described({"norm": np.random.default_rng(0).normal(size=32)}, np.arange(32.0))  # of units left unsorted


class Bench:
    """Records of one notebook, put into a store one comparison at a time."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.pairs: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.measurements: dict[str, Any] = {}
        self.withheld = Store.key(block=1)
        detail = {"n": 256, "paper_log10_p": 0.0, "tied": [0.9, 0.8]}
        record = {"statistic": "phi_match", "block": 1, "value": 0.0, "log10_p": 0.0, "reach": 0.0, "why": "alike"}
        self.store.put(self.withheld, {**record, "detail": detail, "parameters": {}})

    def put(self, a: str, b: str, statistic: str, p: float | None, blocks: int = 1) -> None:
        """One comparison with one block, or with another that has no p-value.

        PERMTEST comes as distances of which `p` are as small as the pair's.
        None: phi_MATCH of models whose gate and up projections look alike.
        """
        key = Store.key(a=a, b=b, statistic=statistic)
        log10_p = float(np.log10(p or 1))
        detail: dict[str, Any] = {"n": 256, "paper_log10_p": log10_p}
        reach, why = -506.9, None
        if p is None:
            detail |= {"tied": [0.9, 0.8]}
            reach, why = 0.0, "the gate and up projections look alike"
        elif statistic != "phi_match":
            detail["order"] = [ORDER] * 2
        if statistic == "phi_l2":
            smaller = round(p * (T + 1)) - 1
            distances = [1.0] + [0.5] * smaller + [2.0] * (T - smaller)
            detail = {"distances": distances, "order": [ORDER] * 2, "stream": [ORDER] * 2}
        record = {"statistic": statistic, "block": 0, "value": 0.0, "log10_p": log10_p, "detail": detail}
        record |= {"reach": reach, "why": why}
        self.store.put(key, {**record, "parameters": {"n_permutations": T} if statistic == "phi_l2" else {}})
        about = {"a": a, "b": b, "statistic": statistic, "dependent": None, "error": None}
        self.pairs[a, b, statistic] = {**about, "keys": [key, self.withheld][:blocks]}

    def evidence(self, profile: str = "default") -> RunRecords:
        experiment = {"name": "x", "profile": profile, "pairs": list(self.pairs.values())}
        return RunRecords({**experiment, "measurements": self.measurements}, self.store)


@pytest.fixture
def seeds(tmp_path: Path) -> Bench:
    """Two budgets; own seeds spread evenly over (0, 1), one initialisation far out."""
    bench = Bench(tmp_path)
    budgets = []
    for tokens in (100, 1000):
        independent = [(f"a{i}-{tokens}", f"b{i}-{tokens}") for i in range(N)]
        same_start = [(f"a{i}-{tokens}", f"c{i}-{tokens}") for i in range(N)]
        for i in range(N):
            for statistic in STATISTICS:
                bench.put(*independent[i], statistic, (i + 0.5) / N)
                bench.put(*same_start[i], statistic, SAME_START[statistic])
        budgets.append({"tokens": tokens, "independent": independent, "same_start": same_start})
    bench.measurements["budgets"] = budgets
    return bench


def judge_seeds(bench: Bench, profile: str = "default", statistics: Sequence[str] = STATISTICS) -> ClaimStatus:
    least = {"smoke": 3, "default": N}[profile]
    pairs, budgets = bench.evidence(profile).pairs, bench.measurements["budgets"]
    return seeds_independent(pairs, budgets, T, statistics=statistics, level=0.01, min_pairs=least)


def put_phi_match(bench: Bench, withheld: int) -> list[str]:
    """phi_MATCH of all pairs, without a p-value for the first so many at the first budget; the statistics by then."""
    for tokens in (100, 1000):
        for i in range(N):
            lacks_p = tokens == 100 and i < withheld
            bench.put(f"a{i}-{tokens}", f"b{i}-{tokens}", "phi_match", None if lacks_p else (i + 0.5) / N)
            bench.put(f"a{i}-{tokens}", f"c{i}-{tokens}", "phi_match", None if lacks_p else 1e-9)
    return [*STATISTICS, "phi_match"]


def test_own_seeds_uniform_and_one_initialisation_found_holds(seeds: Bench) -> None:
    verdict = judge_seeds(seeds)
    assert verdict.status == HOLDS
    assert "2 budgets of 10 pairs" in verdict.ours
    assert "of 20 pairs of one initialisation are found by phi_u 20, phi_l2 0, phi_l2_blocks 20" in verdict.ours
    assert "by the paper's form phi_u 0.05 to 0.95" in verdict.ours
    # of 80 p-values the smallest is 0.05, of 4 tests of uniformity none rejects, and 1e-40 over 80 tests or 1e-6
    assert verdict.margin.startswith(
        "smallest p of a pair with own seeds, by Holm, log10: 0, 2 above the bar of -2; smallest p of"
    )
    assert "not refuted" in verdict.why


def test_three_independent_pairs_far_out_fail(seeds: Bench) -> None:
    """Kolmogorov and Smirnov's test does not see three of ten, whose place among ten they keep."""
    for i, log10_p in enumerate((-300, -200, -100)):
        seeds.put(f"a{i}-100", f"b{i}-100", "phi_u", 10.0**log10_p)
    verdict = judge_seeds(seeds)
    assert verdict.status == FAILS
    assert verdict.why.startswith("3 pairs with own seeds are rejected, phi_u of a0-100 and b0-100 (log10 p = -298.2)")
    assert "not uniform" not in verdict.why


def test_one_independent_pair_beyond_the_level_fails(seeds: Bench) -> None:
    """Sixty p-values: 10^-3 is no rejection among them, 10^-4 is."""
    seeds.put("a2-1000", "b2-1000", "phi_u", 1e-3)
    assert judge_seeds(seeds).status == HOLDS
    seeds.put("a2-1000", "b2-1000", "phi_u", 10**-4.2)
    assert "1 pairs with own seeds are rejected, phi_u of a2-1000 and b2-1000" in judge_seeds(seeds).why


@pytest.mark.parametrize(
    ("statistic", "least", "step"), [*((name, 0.01, 0.01) for name in STATISTICS), ("phi_u", 0.9, 0.005)]
)
def test_p_values_that_are_all_small_or_all_large_at_one_budget_fail(
    statistic: str, least: float, step: float, seeds: Bench
) -> None:
    for i in range(N):
        seeds.put(f"a{i}-1000", f"b{i}-1000", statistic, least + i * step)
    verdict = judge_seeds(seeds)
    assert verdict.status == FAILS
    assert verdict.why.startswith(f"the p-values are not uniform for {statistic} at 1,000 tokens; smallest p of unif")


def test_a_control_that_one_statistic_finds_is_enough_and_that_none_finds_fails(seeds: Bench) -> None:
    seeds.put("a3-100", "c3-100", "phi_u", 0.5)
    verdict = judge_seeds(seeds)
    assert verdict.status == HOLDS
    assert "phi_u 19, phi_l2 0, phi_l2_blocks 20" in verdict.ours
    seeds.put("a3-100", "c3-100", "phi_l2_blocks", 0.5)
    verdict = judge_seeds(seeds)
    assert verdict.status == FAILS
    assert verdict.why.startswith("1 of 20 pairs of one initialisation are found by no statistic; weakest pair")


def test_too_few_pairs_or_no_control_are_not_judged(seeds: Bench) -> None:
    few = [{**budget, "independent": budget["independent"][:4]} for budget in seeds.measurements["budgets"]]
    seeds.measurements["budgets"] = few
    assert judge_seeds(seeds).status == NOT_RUN
    assert judge_seeds(seeds, "smoke").status == HOLDS
    seeds.measurements["budgets"] = [{**budget, "same_start": []} for budget in few]
    assert judge_seeds(seeds, "smoke").status == NOT_RUN


def test_pairs_that_share_a_model_or_have_no_value_fail(seeds: Bench) -> None:
    budgets = seeds.measurements["budgets"]
    del seeds.pairs["a1-100", "b1-100", "phi_u"]
    assert "phi_u of a1-100 and b1-100" in judge_seeds(seeds).why
    budgets[0]["independent"][1] = budgets[0]["independent"][0]
    assert "share a model" in judge_seeds(seeds).why


def test_pairs_without_a_p_value_are_left_out_and_counted(seeds: Bench) -> None:
    verdict = judge_seeds(seeds, "smoke", put_phi_match(seeds, 2))
    assert verdict.status == HOLDS
    assert "nan" not in f"{verdict.ours} {verdict.why} {verdict.margin}".lower()
    assert "by Holm over 8; " in verdict.ours  # four statistics at two budgets
    assert "by Holm over all 78, " in verdict.ours
    assert "phi_u 20, phi_l2 0, phi_l2_blocks 20, phi_match 18; without a p-value, " in verdict.ours
    assert verdict.ours.endswith(
        "pairs with own seeds 2 of 10 at 100 tokens by phi_match; of one initialisation 2 by phi_match"
    )


@pytest.mark.parametrize("withheld", [8, 10])
def test_a_group_with_few_p_values_is_not_tested_for_uniformity(withheld: int, seeds: Bench) -> None:
    statistics = put_phi_match(seeds, withheld)
    verdict = judge_seeds(seeds, "smoke", statistics)
    assert verdict.status == HOLDS
    assert "by Holm over 7; " in verdict.ours
    assert f"{withheld} of 10 at 100 tokens by phi_match (too few are left to test for uniformity)" in verdict.ours
    # the p-values that are left still count, one by one
    seeds.put("a9-1000" if withheld == 10 else "a9-100", "b9-1000" if withheld == 10 else "b9-100", "phi_match", 1e-6)
    assert "1 pairs with own seeds are rejected, phi_match of a9-" in judge_seeds(seeds, "smoke", statistics).why


def test_pairs_with_a_block_without_a_p_value_are_not_tested_for_uniformity(seeds: Bench) -> None:
    """The block counts as 1, so p-values of the pairs are all large; a small one still counts."""
    statistics = put_phi_match(seeds, 0)
    for i in range(N):
        seeds.put(f"a{i}-100", f"b{i}-100", "phi_match", 0.9 + i / 200)
    assert "not uniform for phi_match at 100 tokens" in judge_seeds(seeds, "smoke", statistics).why
    for i in range(N):
        seeds.put(f"a{i}-100", f"b{i}-100", "phi_match", 0.9 + i / 200, blocks=2)
    verdict = judge_seeds(seeds, "smoke", statistics)
    assert verdict.status == HOLDS
    assert "10 of 10 at 100 tokens by phi_match (10 of them in some blocks only) (too few are left" in verdict.ours
    seeds.put("a3-100", "b3-100", "phi_match", 1e-9, blocks=2)
    assert "1 pairs with own seeds are rejected, phi_match of a3-" in judge_seeds(seeds, "smoke", statistics).why


def test_a_study_without_p_values_is_not_judged(seeds: Bench) -> None:
    put_phi_match(seeds, N)
    seeds.measurements["budgets"] = seeds.measurements["budgets"][:1]
    verdict = judge_seeds(seeds, "smoke", ["phi_match"])
    assert verdict.status == NOT_RUN
    assert "10 of 10 at 100 tokens by phi_match" in verdict.why


def test_too_many_small_p_values_of_a_statistic_fail(seeds: Bench) -> None:
    """Three of ten pairs at 0.009, at both budgets: neither Holm nor a test of uniformity sees them."""
    for budget in seeds.measurements["budgets"]:
        for pair in budget["independent"][:3]:
            seeds.put(*pair, "phi_u", 0.009)
    verdict = judge_seeds(seeds)
    assert verdict.status == FAILS
    assert "6 of 20 pairs with own seeds by phi_u are at p = 0.01" in verdict.why


def test_a_control_without_any_p_value_is_missed(seeds: Bench) -> None:
    put_phi_match(seeds, 2)
    verdict = judge_seeds(seeds, "smoke", ["phi_match"])
    assert verdict.status == FAILS
    assert verdict.why.startswith("2 of 20 pairs of one initialisation are found by no statistic")


def test_power_grows_with_pairs_and_is_that_of_the_test_itself() -> None:
    """One budget and one test, by the test of the page on its own draws: 0.01 of 400 draws is 2 standard errors."""
    rng = np.random.default_rng(1)
    rejected = [calibration.ks_uniform(2 * np.log10(rng.random(40))).p <= 0.01 for _ in range(400)]
    assert power_of_uniformity(40, 1, 1, 0.01) == pytest.approx(np.mean(rejected), abs=0.08)
    assert power_of_uniformity(10, 4, 16, 0.01) < 0.2 < 0.9 < power_of_uniformity(190, 4, 16, 0.01)
