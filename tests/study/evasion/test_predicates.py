"""The predicates about an adversary hold on good records and fail for each of their reasons."""

from dataclasses import asdict
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from planted import Plant, put, update

from provlab_study.evasion.measure import Noisy, PreservedRecord
from provlab_study.evasion.predicates import (
    aligns_strangers,
    evaded_but_found,
    invariants_break,
    outputs_preserved,
    separates_without_null,
)
from provlab_study.evasion.procrustes import Alignment
from provlab_study.publishing import claims
from provlab_study.publishing.evidence import FAILS, HOLDS

ROWS = {row["id"]: row for row in claims.load_claims()}


def test_the_rows_name_them():
    judges = [outputs_preserved, evaded_but_found, invariants_break, aligns_strangers, separates_without_null]
    assert [claims.predicate(ROWS[key]) for key in ("I15", "I16", "I18", "I19", "I20")] == judges


# I15 ------------------------------------------------------------------------------------------------------

KINDS = ("T1", "T2", "T3", "T4", "T5", "T6")


def preserved():
    return [asdict(PreservedRecord(name, name, kind, 1e-13, 1.0, None, 0.5)) for name in ("A", "B") for kind in KINDS]


def noisy():
    return [asdict(Noisy(name, 1e-4, 1.0)) for name in ("A", "B")]


def judge_preserved(rows, controls=None):
    controls = noisy() if controls is None else controls
    controls = [row for row in controls if row["architecture"] in {row["architecture"] for row in rows}]
    return outputs_preserved(rows, controls, tolerance=1e-9, architectures=2, entire="A", exist=0.5)


def test_outputs_preserved():
    verdict = judge_preserved(preserved())
    assert verdict.status == HOLDS
    assert "under noise of 0.0001 it is 1.0e-04 or more" in verdict.ours


def test_a_comparison_that_sees_no_noise_shows_nothing():
    blind = [row | {"difference": 1e-12} for row in noisy()]
    assert "the comparison does not see noise in A, B" in judge_preserved(preserved(), blind).why
    assert judge_preserved(preserved(), noisy()[:1]).status == "not run"


def refused(kinds, models=("B",)):
    def change(rows):
        for row in rows:
            if row["kind"] in kinds and row["model"] in models:
                row.update(difference=None, refused="a norm stands in the way", moved=None)

    return change


NOTHING = {"difference": 0.0}
PLANTS = [
    Plant("outputs differ", put(0, "difference", value=2e-9), FAILS, "differs by 2.0e-09 of the largest"),
    Plant("no difference", put(-1, "difference", value=None), FAILS, "without a reason"),
    Plant("one architecture", put(slice(len(KINDS), None), value=[]), FAILS, "only 1 architectures"),
    Plant("T3 of B", lambda rows: rows.pop(len(KINDS) + 2), FAILS, "not all of T1, T2, T3, T4, T5, T6 were tried on B"),
    Plant(
        "the paper's architecture is let off",
        update(2, difference=None, refused="not yet", moved=None),
        FAILS,
        "A refuses a transformation",
    ),
    Plant("it is not tried", put(slice(len(KINDS)), value=[]), FAILS, "A was not transformed"),
    # what changes nothing preserves everything
    Plant("T2 moves nothing", update(1, moved=0.0, **NOTHING), FAILS, "T2 changes no weight"),
    Plant("no bit changes", lambda rows: [row.update(NOTHING) for row in rows], FAILS, "changes no bit of any logit"),
    Plant("no bit by T2", lambda rows: [rows[k].update(NOTHING) for k in (1, 7)], FAILS, "T2 changes no bit of any"),
    Plant("no bit by T2 in one model", lambda rows: rows[1].update(NOTHING), HOLDS),
    Plant(
        "five of six refused by 13 of 14",
        lambda rows: [
            *(rows.append(rows[k] | {"model": f"B{n}"}) for k in range(6, 12) for n in range(12)),
            refused(KINDS[1:], {"B", *(f"B{n}" for n in range(12))})(rows),
        ],
        FAILS,
        "T2, T3, T4, T5, T6 exists in fewer than 50% of 14 models",
    ),
    Plant("T2 is not known to move", update(1, moved=None, **NOTHING), FAILS, "T2 changes no weight"),
    Plant(
        "a refusal with its reason", update(-1, difference=None, refused="a norm stands in the way", moved=None), HOLDS
    ),
]


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_outputs_not_preserved(plant):
    plant.check(judge_preserved, preserved())


# I16 ------------------------------------------------------------------------------------------------------

FAMILIES = {"a": "A", "a1": "A", "a2": "A", "b": "B", "c": "C", "d": "D", "e": "E"}
BLOCKS = 6


def disguised_pairs(seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for a, b in combinations(FAMILIES, 2):
        for statistic in ("phi_u", "phi_h", "phi_match"):
            dependent = FAMILIES[a] == FAMILIES[b]
            rejected = dependent and statistic == "phi_match"
            blocks = [-100.0] * BLOCKS if rejected else list(np.log10(rng.uniform(size=BLOCKS)))
            log10_p = -500.0 if rejected else float(np.log10(rng.uniform(0.02, 1)))
            values = {"dependent": dependent, "error": None, "log10_p": log10_p, "blocks": blocks}
            rows.append({"a": a, "b": b, "statistic": statistic, **values})
    frame = pd.DataFrame(rows)
    frame["dependent"] = frame["dependent"].astype(object)
    return frame


def judge_evaded(frame):
    names = list(FAMILIES)
    return evaded_but_found(
        frame,
        one_each=list(pairwise(names)),
        negative=[-0.3, -1.0, -50.0],
        evaded=["phi_u", "phi_h"],
        robust="phi_match",
        log10_p=-30,
        level=0.01,
        ks=0.01,
    )


def test_evaded_but_found():
    verdict = judge_evaded(disguised_pairs())
    assert verdict.status == "holds"
    assert f"n = {(len(FAMILIES) - 1) * BLOCKS}" in verdict.ours
    assert "with negative constants in T6 phi_match finds 1 of 3" in verdict.ours


def spoil(frame, column, value, **where):
    """Set a column in the rows where other columns have these values."""
    rows = np.logical_and.reduce([frame[name].eq(own) for name, own in where.items()])
    for row in frame.index[rows]:
        frame.at[row, column] = value


def unjudged_pairs_found(frame):
    """phi_u finds the pairs that share a disguised model with a judged one; the judged blocks are uniform."""
    judged = set(pairwise(FAMILIES))
    left_out = np.array([pair not in judged for pair in zip(frame["a"], frame["b"], strict=True)])
    frame.loc[left_out & frame["statistic"].eq("phi_u") & frame["dependent"].eq(True), "log10_p"] = -500.0


FOUND_OR_LOST = [
    Plant(
        "a dependent pair is weak",
        lambda frame: spoil(frame, "log10_p", -12.0, a="a", b="a1", statistic="phi_match"),
        FAILS,
        "largest phi_match of a dependent pair: -12.0, 18.0 above the bar of -30",
    ),
    Plant(
        "a stranger is found",
        lambda frame: spoil(frame, "log10_p", -9.0, a="a", b="b", statistic="phi_match"),
        FAILS,
        "rejects an independent pair",
    ),
    Plant(
        "a pair is lost",
        lambda frame: spoil(frame, "error", "lost", a="a", b="a1", statistic="phi_match"),
        FAILS,
        "1 pairs could not be compared",
    ),
    # phi_h still finds every pair that is judged: nothing was hidden
    Plant(
        "phi_h finds all",
        lambda frame: spoil(frame, "blocks", [-3.0] * BLOCKS, statistic="phi_h"),
        FAILS,
        "phi_h is not uniform",
    ),
    Plant("unjudged pairs", unjudged_pairs_found, FAILS, "still finds 1 of 3 dependent pairs by phi_u"),
    Plant(
        "a pair of phi_h is lost",
        lambda frame: spoil(frame, "error", "lost", a="d", b="e", statistic="phi_h"),
        FAILS,
        "phi_h could not compare 1 pairs",
    ),
]


@pytest.mark.parametrize("plant", FOUND_OR_LOST, ids=str)
def test_found_lost_or_not_evaded(plant):
    plant.check(judge_evaded, disguised_pairs())


# I18 to I20 -----------------------------------------------------------------------------------------------


INVARIANTS = {"M_a": {"dependent": [0.98, 0.9], "disguised": [0.1, 0.05], "independent": [0.2, 0.0]}}


def judge_broken(invariants):
    return invariants_break(invariants, least=0.1)


def test_invariants_break():
    verdict = judge_broken(INVARIANTS)
    assert verdict.status == HOLDS
    assert verdict.margin.startswith("largest M_a of a disguised pair: 0.1, 0.45 below the bar of 0.55")


UNBROKEN = [
    Plant("disguised as before", update("M_a", disguised=[0.9, 0.8]), FAILS, "largest M_a of a disguised pair: 0.9"),
    Plant("half as before", update("M_a", disguised=[0.6, 0.58]), FAILS, "largest M_a of a disguised pair: 0.6"),
    Plant("apart from the first", update("M_a", dependent=[0.9, 0.1]), FAILS, "does not separate even undisguised"),
    Plant(
        "told apart by a thousandth, and hidden by as little",
        update("M_a", dependent=[0.501], disguised=[0.499], independent=[0.4985]),
        FAILS,
        "groups are apart: 0.0025, 0.098 below the bar of 0.1",
    ),
    Plant(
        "one pair that breaks does not make an invariant break",
        update("M_a", disguised=[0.9] * 10 + [0.1]),
        FAILS,
        "largest M_a of a disguised pair: 0.9, 0.35 above the bar of 0.55",
    ),
]


@pytest.mark.parametrize("plant", UNBROKEN, ids=str)
def test_invariants_that_do_not_break(plant):
    plant.check(judge_broken, INVARIANTS)


def test_a_threshold_after_the_look_is_reported():
    verdict = judge_broken({"M_b": {"dependent": [0.98, 0.9], "disguised": [0.1, 0.07], "independent": [0.04, 0.0]}})
    assert verdict.status == HOLDS
    assert "all disguised ones a little above" in verdict.ours


def alignment(what, kin=(0.86,) * 9, far=(0.86,) * 8, rows=4.0):
    pairs = [[base, f"{base}{k}"] for k, base in enumerate("ab" * 9)][: len(kin) + len(far)]
    return asdict(Alignment(what, rows, pairs, [True] * len(kin) + [False] * len(far), [*kin, *far]))


def aligned(*others):
    return aligns_strangers([alignment("up"), *others], named=["up", "inputs"], most=0.95)


def test_residuals_that_tell_nothing():
    verdict = aligned()
    assert verdict.status == "holds"
    assert verdict.ours == (
        "2 bases; up aligned alike by 4 rows a column (dependent 0.86 to 0.86, independent 0.86 to 0.86)"
    )


@pytest.mark.parametrize(("kin", "far"), [(0.15, 0.86), (0.86, 0.15)])
def test_one_number_of_rows_that_tells_is_enough(kin, far):
    """One row for each column fits anything; with two the groups are apart."""
    few, more = alignment("inputs", [0.0] * 9, [0.0] * 8, 1.0), alignment("inputs", [kin] * 9, [far] * 8, 2.0)
    assert aligned(few).status == "holds"
    verdict = aligned(few, more)
    assert verdict.status == "fails"
    assert verdict.why == (
        "least squares tells the groups apart by the inputs, from 2 rows a column "
        f"(dependent {kin} to {kin}, independent {far} to {far})"
    )
    assert "inputs aligned alike by 1 rows a column" in verdict.ours
    assert "inputs told apart by 2 rows a column" in verdict.ours


def test_what_the_paper_does_not_name_is_reported():
    verdict = aligned(alignment("units matched", [0.15] * 9))
    assert verdict.status == "holds"
    assert "; units matched (not judged) told apart by 4 rows a column (dependent 0.15 to 0.15" in verdict.ours


def test_one_exception_does_not_keep_an_attack_from_telling():
    verdict = aligned(alignment("inputs", [0.15] * 8 + [0.9]))
    assert verdict.status == "within_its_spread"
    assert "inputs too few to say by 4 rows a column" in verdict.ours


BAND = np.linspace(0.6, 0.65, 40).tolist()


ROWS_OF_I20 = {name: ROWS["I20"]["predicate"][name] for name in ("apart", "narrow", "excess")}


SCORES = {"dependent": [0.01, 0.2], "independent": BAND, "chain": BAND[::8]}


def judge_scores(groups):
    return separates_without_null(groups, level=0.01, **ROWS_OF_I20)


def test_separates_without_null():
    assert judge_scores(SCORES).status == HOLDS


def spread(low, high, n):
    return np.linspace(low, high, n).tolist()


UNIFORM = ((np.arange(40) + 0.5) / 40).tolist()
TREES = [0.95, 0.3, 0.6, 0.5, 0.4, 0.7]
PASS = "could pass for p-values"
NO_SCORES = [
    Plant("one far away", update(dependent=[0.01, 0.63]), FAILS, "no threshold"),
    Plant("larger for dependent pairs", update(dependent=[0.8, 0.9]), FAILS, "no threshold"),
    Plant("uniform", update(dependent=[1e-9], independent=UNIFORM, chain=UNIFORM[::8]), FAILS, PASS),
    # one value for every two trees, repeated by all their pairs, seems far from uniform
    Plant(
        "a uniform null of few trees",
        update(dependent=[1e-9], independent=np.repeat(TREES, [60, 10, 3, 3, 2, 2]).tolist(), chain=TREES),
        FAILS,
        PASS,
    ),
    Plant(
        "constants",
        update(dependent=[0.2] * 9, independent=[0.6] * 40, chain=[0.6] * 6),
        FAILS,
        "39 of 40 independent values repeat another: constants separate anything",
    ),
    Plant("a chain of other pairs", update(chain=[0.601] * 6), FAILS, "the chain is not of the independent pairs"),
    # significant, and of no use: groups that a hair separates, values hardly more often small than uniform ones
    Plant("a hair", update(dependent=[0.01, 0.599]), FAILS, "distance of the groups"),
    Plant(
        "hardly small",
        update(independent=(np.linspace(0.26, 0.99, 4000) ** 1.3).tolist(), chain=[0.6] * 6),
        FAILS,
        "excess of small values",
    ),
    Plant("a wide band", update(independent=[0.6] * 40, chain=spread(0.55, 0.9, 30)), FAILS, "band of values"),
    # all independent pairs near 1, useful though not uniform
    Plant("cautious", update(independent=spread(0.985, 0.9999, 40), chain=spread(0.985, 0.9999, 6)), FAILS, PASS),
]


@pytest.mark.parametrize("plant", NO_SCORES, ids=str)
def test_scores_that_do_not_separate_or_are_p_values(plant):
    plant.check(judge_scores, SCORES)


def test_groups_without_a_pair_decide_nothing():
    """A run on models of one's own, whose origin nobody knows."""
    nothing = {"dependent": [], "independent": []}
    assert invariants_break({}, least=0.1).status == "not run"
    assert aligned(alignment("inputs", [0.1], [])).status == "not run"
    assert aligns_strangers([], named=["up"], most=0.95).status == "not run"
    assert separates_without_null({**nothing, "chain": []}, level=0.01, **ROWS_OF_I20).status == "not run"
