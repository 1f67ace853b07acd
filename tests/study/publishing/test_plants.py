"""Predicates of claims about the tree: each holds on a good record, and fails for each of its reasons.

Each row of a table changes a good record in one place. In those of `PLANTS` a claim is broken though most of its
numbers look right.
"""

import json
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import planted
import pytest

from provlab_study.publishing import claims
from provlab_study.publishing.evidence import RunRecords
from provlab_study.publishing.results import Results

ROWS = {row["id"]: row for row in claims.load_claims()}
TREE = {"oak": 12, "elm": 2, "fir": 2, "yew": 2, "ash": 1, "bay": 1, "fig": 1}  # models of each tree: 21
FAMILY = {f"{tree}-{k}": tree for tree, n in TREE.items() for k in range(n)}
PAIRS = list(combinations(FAMILY, 2))
STATISTICS = ("phi_u", "phi_h", "phi_match", "phi_l2", "phi_l2_blocks", "phi_jsd")
BLOCKS, T = 4, 99
EVEN = [(1 + i % 100) / 100 for i in range(2000)]  # p-values by PERMTEST, each as often


def dependent(a, b):
    return FAMILY[a] == FAMILY[b]


def siblings(a, b):
    """The first model of a tree is the parent of all others but the third, whose parent is the second."""
    return dependent(a, b) and not a.endswith("-0") and (a, b) != ("oak-1", "oak-2")


@cache
def tree_of_pairs(rejecting):
    """A frame of the tree: dependent pairs found by these statistics, all others uniform on a grid of quantiles."""
    rng, rows = np.random.default_rng(8), []
    for statistic in STATISTICS:
        grid = iter(rng.permutation((np.arange(len(PAIRS)) + 0.5) / len(PAIRS)))
        for a, b in PAIRS:
            p = max(np.ceil(next(grid) * (T + 1)) / (T + 1), 0.02) if statistic == "phi_l2" else next(grid)
            known = dependent(a, b) and statistic in rejecting
            log10_p = (-2.0 if statistic == "phi_l2" else -500.0) if known else np.log10(p)
            log10_p = np.nan if statistic == "phi_jsd" else log10_p  # outputs hardly tell
            blocks = [-100.0] * BLOCKS if known else list(np.log10(rng.permutation((np.arange(4) + rng.random()) / 4)))
            value = 0.5 + float(rng.random()) - 0.4 * dependent(a, b)  # kin are the closer ones in most comparisons
            row = {"a": a, "b": b, "statistic": statistic, "dependent": dependent(a, b), "error": None, "value": value}
            others = {"siblings": siblings(a, b), "floor": -500.0, "keys": ["unit"]}
            rows.append(row | others | {"log10_p": log10_p, "blocks": blocks})
    frame = pd.DataFrame(rows)
    for column in ("dependent", "error"):
        frame[column] = frame[column].astype(object)
    return frame


def measurements():
    kept = {"chain_of_trees": [[f"{a}-0", f"{b}-0"] for a, b in pairwise(TREE)]}
    kept["long_training"] = {"base": "oak-0", "child": "oak-1", "grandchild": "oak-2", "share": 0.5}
    kept |= {"one_each": list(pairwise(FAMILY)), "negative": [-1.0], "uniform": uniform(0.3, 0.8)}
    kept["ks_by_symmetry"] = {name: {"p": 0.4} for name in STATISTICS}
    kept["example_one"] = {"independent": EVEN, "dependent": [0.01] * 100, "n_permutations": T}
    kept["roles"] = {"base": "oak-0", "leak": "oak-1", "controls": ["elm-0", "fir-0"]}
    return kept | {"tail": tails([2001 / 10000, 4990 / 10000, 9010 / 10000])}


def tails(permtest):
    """Three matchings whose t tail is 0.2, 0.5 and 0.9, with these p-values by PERMTEST."""
    where = {"a": "a", "b": "b", "block": 0, "statistic": "phi_u", "T": 9999}
    return [
        {**where, "log10_p_t": np.log10(t), "log10_p_permtest": np.log10(p)}
        for t, p in zip((0.2, 0.5, 0.9), permtest, strict=True)
    ]


def values_of(strangers):
    """The single p-values of a test of uniformity, each of a pair of trees of its own."""
    log10_p = np.log10((np.arange(141) + 0.5) / 141) if len(strangers) else np.empty(0)
    log10_p[: len(strangers)] = strangers
    return {"log10_p": log10_p.tolist(), "repeats": [str(i) for i in range(len(log10_p))]}


def uniform(all_pairs, disjoint, n_copies=999, strangers=(-2.2,)):
    """p-values of the tests that matchings of independent models are uniform: over all pairs, and disjoint ones."""
    rows = (("all pairs, per block", 24, all_pairs, n_copies), ("disjoint pairs", 2, disjoint, 0))
    return [
        {"statistic": "phi_u", "over": over, "n_pairs": n, "ks_p": p, "ks_p_law": p, "n_copies": copies, **single}
        for (over, n, p, copies), single in zip(rows, (values_of(strangers), values_of(())), strict=True)
    ]


def set_p(statistic, log10_p, n=None, *, known=False):
    """The first n independent pairs (dependent ones if `known`) of a statistic at this value."""

    def change(record):
        frame = record["pairs"]
        places = frame.index[frame["statistic"].eq(statistic) & frame["dependent"].eq(known)]
        frame.loc[places[:: max(1, len(places) // n)][:n] if n else places, "log10_p"] = log10_p

    return change


def everywhere(record):
    for statistic in ("phi_u", "phi_h"):
        set_p(statistic, -500.0)(record)


def all_but_the_chain(record):
    """PERMTEST finds every independent pair, but for those that are judged one by one."""
    frame, chain = record["pairs"], [(f"{a}-0", f"{b}-0") for a, b in pairwise(TREE)]
    apart = np.array([pair not in chain for pair in zip(frame["a"], frame["b"], strict=True)])
    frame.loc[apart & frame["statistic"].eq("phi_l2") & frame["dependent"].eq(False), "log10_p"] = -2.0


def at(record, statistic, a, b):
    frame = record["pairs"]
    return frame["statistic"].eq(statistic) & frame["a"].eq(a) & frame["b"].eq(b)


def pair(statistic, a, b, log10_p):
    def spoil(record):
        record["pairs"].loc[at(record, statistic, a, b), "log10_p"] = log10_p

    return spoil


def fails_to_run(statistic):
    def spoil(record):
        record["pairs"].loc[at(record, statistic, "elm-0", "fir-0"), ["error", "log10_p"]] = ["no memory", np.nan]

    return spoil


def cannot_be_read(statistic, *models, error="its tokenizer is code"):
    """All pairs of some models have no value."""

    def spoil(record):
        frame = record["pairs"]
        of_it = frame["statistic"].eq(statistic) & (frame["a"].isin(models) | frame["b"].isin(models))
        record["pairs"].loc[of_it, ["error", "log10_p"]] = [error, np.nan]

    return spoil


def only(*kept):
    def spoil(record):
        frame = record["pairs"]
        record["pairs"] = frame[frame["a"].isin(kept) & frame["b"].isin(kept)]

    return spoil


def jsd(near, far):
    def spoil(record):
        record["pairs"]["value"] = np.where(record["pairs"]["dependent"].eq(True), near, far)

    return spoil


def measure(name, **entries):
    return planted.update("measurements", name, **entries)


def put(**entries):
    return planted.update("measurements", **entries)


FAULTS = [
    # claim, what is spoilt, words of the reason
    ("I4", pair("phi_u", "oak-0", "oak-1", -1.7), "largest phi_u of a dependent pair: -1.7, 28.3 above the bar of -30"),
    ("I4", pair("phi_u", "oak-0", "elm-0", -9.0), "Holm at 0.01 rejects 1 of 141 independent pairs by phi_u"),
    (
        "I4",
        measure("ks_by_symmetry", phi_u={"p": 0.004}),
        "KS p of the independent pairs: 0.004, 0.006 below the bar of 0.01",
    ),
    ("I4", fails_to_run("phi_u"), "1 pairs could not be compared"),
    ("I6", pair("phi_l2", "oak-0", "oak-1", np.log10(0.02)), "1 dependent pairs"),
    ("I6", pair("phi_l2_blocks", "oak-0", "oak-1", -0.5), "Fisher"),
    ("I5", cannot_be_read("phi_h", "ash-0", "bay-0", "fig-0"), "57 pairs could not be compared by phi_h"),
    ("I5", cannot_be_read("phi_h", "yew-1"), "1 pairs could not be compared by phi_h"),
    ("I6", fails_to_run("phi_l2"), "1 pairs could not be compared"),
    (
        "I6",
        pair("phi_l2_blocks", "oak-0", "oak-1", -440.0),
        "share of the smallest log10 p per block with Fisher: 0.88, 0.02 below the bar of 0.9",
    ),
    ("I7", jsd(0.1, 0.5), "area under the curve: 1 (95% interval 1 to 1), 0.05 above the bar of 0.95"),
    ("I7", jsd(0.5, 0.1), "area under the curve: 1 (95% interval 1 to 1), 0.05 above the bar of 0.95"),
    ("I7", jsd(0.5, 0.5), "area under the curve: 0.5 (95% interval 0.5 to 0.5), at the bar of 0.5, on the wrong side"),
    ("I7", fails_to_run("phi_jsd"), "1 pairs could not be compared"),
    ("I8", pair("phi_u", "oak-1", "oak-3", -2.0), "largest phi_u of siblings"),
    ("I8", pair("phi_h", "oak-2", "oak-3", -2.0), "largest phi_h of siblings"),
    ("I9", pair("phi_h", "oak-0", "oak-2", -2.0), "largest phi_h of the chain"),
    ("I9", pair("phi_u", "oak-0", "oak-1", -2.0), "largest phi_u of the chain"),
    ("I9", measure("long_training", share=0.2), "the child saw only 20.0% of its base's tokens"),
    ("I10", pair("phi_u", "oak-0", "oak-1", -2.0), "phi_u of oak-0 and oak-1: "),
    ("I10", pair("phi_u", "oak-0", "elm-0", -9.0), "smallest phi_u of a control, by Holm: "),
    ("I10", pair("phi_u", "oak-1", "fir-0", -9.0), "smallest phi_u of a control, by Holm: "),
    ("I10", measure("roles", leak="yew-0"), "oak-0 and yew-0 are known to be independent"),
    ("I10", measure("roles", controls=["oak-3", "fir-0"]), "oak-0 and oak-3 are known to be related"),
    ("I10", cannot_be_read("phi_u", "fir-0"), "phi_u has no value for"),
    ("I1", measure("example_one", independent=[0.1] * 800 + [0.9] * 1200), "p of uniformity"),
    ("I1", measure("example_one", independent=[0.5] * 2000), "p of uniformity"),
    ("I1", measure("example_one", independent=[0.01] * 36 + EVEN[:1964]), "56 of 2000"),
    ("I1", measure("example_one", dependent=[0.01] * 99 + [0.02]), "1 fine-tunes above 1/100"),
    ("I3", put(tail=tails([0.1, 0.5, 0.9])), "PERMTEST and the t tail differ by more than chance"),
    (
        "I3",
        put(uniform=uniform(0.001, 0.8)),
        "matchings of independent models are not uniform: phi_u, all pairs, per block",
    ),
    ("I3", put(uniform=uniform(0.3, 0.001)), "matchings of independent models are not uniform: phi_u, disjoint pairs"),
    ("I3", put(uniform=uniform(0.3, 0.8, strangers=[-5.0] * 7)), "Holm at 0.01 rejects single matchings"),
    (
        "I3",
        put(uniform=uniform(0.3, 0.8, strangers=[-2.9] * 7)),
        "7 of 141 phi_u, all pairs, per block are at p = 0.01",
    ),
    ("I3", put(uniform=uniform(0.3, 0.001, n_copies=99)), "not uniform: phi_u, disjoint pairs"),
]
NOT_RUN = [
    ("I4", put(ks_by_symmetry={}), "not tested by relabelling trees"),
    ("I4", only("oak-0", "oak-1"), "no pair of known dependence and independence"),
    ("I6", only("elm-0", "fir-0"), "no pair of known dependence and independence"),
    ("I7", only("elm-0", "fir-0"), "no pair of known dependence and independence"),
    ("I8", only("oak-0", "oak-1"), "hold no siblings"),
    ("I9", put(long_training=None), "hold no child that is known to be trained on for so long"),
    ("I9", only("oak-0", "elm-0", "oak-3"), "was not compared"),
    ("I10", only(), "phi_u was not run on"),
    ("I10", measure("roles", controls=[]), "it takes the leak, its base and 2 controls"),
    ("I1", measure("example_one", independent=[0.5] * 20), "20 pairs, 100 fine-tunes, T = 99; 2000, 100"),
    ("I3", put(tail=[]), "no pair of independent models was run through PERMTEST"),
    ("I3", put(uniform=[]), "no pair of independent models was run through PERMTEST"),
    (
        "I3",
        put(uniform=uniform(0.3, 0.8, n_copies=99)),
        "99 joint copies let none of 2 tests reject at 0.01: it takes 199 (n_joint)",
    ),
]
# claim, what is broken, the change, and the status
PLANTS = [
    ("I4", "8 of 141 independent pairs at 1.3e-4", set_p("phi_u", np.log10(1.3e-4), 8), "fails"),
    ("I6", "135 of 141 independent pairs at 0.01", all_but_the_chain, "fails"),
    ("I8", "every pair at 10^-500", everywhere, "fails"),
    ("I9", "every pair at 10^-500", everywhere, "fails"),
    (
        "I9",
        "nobody knows the share of tokens",
        measure("long_training", share=None),
        "not run",
    ),
    (
        "I16",
        "phi_U and phi_H at 3e-4 for 34 of 69 dependent pairs",
        lambda record: [set_p(s, np.log10(3e-4), 34, known=True)(record) for s in ("phi_u", "phi_h")],
        "fails",
    ),
]


def judged(claim, folder, change=lambda record: None):
    found_by = ("phi_match",) if claim == "I16" else STATISTICS
    record = {"measurements": json.loads(json.dumps(measurements())), "pairs": tree_of_pairs(found_by).copy()}
    change(record)
    store = Results(folder)
    store.put("unit", {"value": 0.0, "log10_p": 0.0, "reach": 0.0, "detail": {}, "parameters": {"n_permutations": T}})
    kept = {"name": "x", "profile": "default", "pairs": [], "parameters": {"n_permutations": T}}
    evidence = RunRecords(kept | record, store)
    evidence.__dict__["pairs"] = record["pairs"]  # in place of what it aggregates from units
    return planted.judge(ROWS[claim], evidence)


TABLE = [
    *(("fails", *row) for row in FAULTS),
    *(("not run", *row) for row in NOT_RUN),
    *((status, claim, change, "") for claim, _, change, status in PLANTS),
]
CLAIMS = sorted({claim for _, claim, *_ in TABLE})


def test_every_predicate_is_tested():
    """Here, or in the tests of the chapter, which plant faults for its predicates."""
    here = {ROWS[claim]["predicate"]["name"] for claim in CLAIMS}
    tests = [path for path in Path(__file__).parents[1].glob("*/test_*.py") if path.parent != Path(__file__).parent]
    beside = "".join(path.read_text(encoding="utf-8") for path in tests)
    planted = {row["predicate"]["name"] for claim, row in ROWS.items() if f'"{claim}"' in beside}
    names = {row["predicate"]["name"] for row in ROWS.values()} - here - planted
    assert [name for name in names if name not in beside] == []


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_good_record_holds(claim, tmp_path):
    verdict = judged(claim, tmp_path)
    assert verdict.status == "holds", verdict
    assert verdict.ours
    assert verdict.why


STAYS = [
    ("I4", cannot_be_read("phi_u", "fig-0"), "fig-0 could be compared with no other by phi_u"),
    ("I5", cannot_be_read("phi_h", "fig-0", "bay-0"), "bay-0, fig-0 could be compared with no other by phi_h"),
    ("I6", cannot_be_read("phi_l2_blocks", "bay-0"), "bay-0 could be compared with no other by phi_l2_blocks"),
    ("I8", cannot_be_read("phi_h", "fig-0"), "fig-0 could be compared with no other by phi_h"),
    ("I9", cannot_be_read("phi_h", "fig-0"), "fig-0 could be compared with no other by phi_h"),
    ("I10", pair("phi_u", "elm-0", "fir-0", -9.0), ""),
]


@pytest.mark.parametrize(("claim", "change", "said"), STAYS)
def test_what_a_claim_does_not_speak_of_does_not_decide_it(claim, change, said, tmp_path):
    """A model that cannot be read for a statistic, and has no relative, is named; controls may be each other's kin."""
    verdict = judged(claim, tmp_path, change)
    assert verdict.status == judged(claim, tmp_path).status, verdict
    assert said in verdict.ours


@pytest.mark.parametrize(("status", "claim", "change", "reason"), TABLE)
def test_a_broken_record_does_not_hold(status, claim, change, reason, tmp_path):
    verdict = judged(claim, tmp_path, change)
    assert verdict.status == status, verdict
    assert verdict.why
    assert reason in verdict.why
    assert bool(verdict.ours) == (status == "fails")
