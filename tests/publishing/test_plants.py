"""Records in which a claim is broken though most of its numbers look right: none of them may hold.

Each row of `PLANTS` changes a good record, which holds, in one place.
"""

import json
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from planted import judge

from provlab.publishing import claims
from provlab.publishing.evidence import Evidence
from provlab.publishing.results import Results

ROWS = {row["id"]: row for row in claims.load_claims()}
TREE = {"oak": 12, "elm": 2, "fir": 2, "yew": 2, "ash": 1, "bay": 1, "fig": 1}  # models of each tree: 21
FAMILY = {f"{tree}-{k}": tree for tree, n in TREE.items() for k in range(n)}
PAIRS = list(combinations(FAMILY, 2))
STATISTICS = ("phi_u", "phi_h", "phi_match", "phi_l2", "phi_l2_blocks")
BLOCKS, T = 4, 99


def dependent(a, b):
    return FAMILY[a] == FAMILY[b]


def tree_of_pairs(rejecting=STATISTICS):
    """A frame of the tree: dependent pairs found by these statistics, all others uniform on a grid of quantiles."""
    rng, rows = np.random.default_rng(8), []
    for statistic in STATISTICS:
        grid = iter(rng.permutation((np.arange(len(PAIRS)) + 0.5) / len(PAIRS)))
        for a, b in PAIRS:
            p = max(np.ceil(next(grid) * (T + 1)) / (T + 1), 0.02) if statistic == "phi_l2" else next(grid)
            known = dependent(a, b) and statistic in rejecting
            log10_p = (-2.0 if statistic == "phi_l2" else -500.0) if known else np.log10(p)
            blocks = [-100.0] * BLOCKS if known else list(np.log10(rng.permutation((np.arange(4) + rng.random()) / 4)))
            row = {"a": a, "b": b, "statistic": statistic, "dependent": dependent(a, b), "error": None, "value": 0.0}
            rows.append(row | {"siblings": dependent(a, b), "log10_p": log10_p, "blocks": blocks, "keys": ["unit"]})
    frame = pd.DataFrame(rows)
    for column in ("dependent", "error"):
        frame[column] = frame[column].astype(object)
    return frame


def in_tree(**measurements):
    chain = [[f"{a}-0", f"{b}-0"] for a, b in pairwise(TREE)]
    long = {"base": "oak-0", "child": "oak-1", "grandchild": "oak-2", "share": 0.5}
    kept = {"chain_of_trees": chain, "long_training": long, "one_each": list(pairwise(FAMILY)), "negative": [-1.0]}
    kept["ks_by_symmetry"] = {name: {"p": 0.4} for name in STATISTICS}
    return {**kept, **measurements}


def set_p(statistic, log10_p, n=None, *, known=False):
    """The first n independent pairs (dependent ones if `known`) of a statistic at this value."""

    def change(record):
        frame = record["pairs"]
        places = frame.index[frame["statistic"].eq(statistic) & frame["dependent"].eq(known)]
        frame.loc[places[:: max(1, len(places) // n)][:n] if n else places, "log10_p"] = log10_p

    return change


# claim -> the statistics that find its dependent pairs
PAPERS = {"I4": STATISTICS, "I6": STATISTICS, "I8": STATISTICS, "I9": STATISTICS, "I16": ("phi_match",)}


def everywhere(record):
    for statistic in ("phi_u", "phi_h"):
        set_p(statistic, -500.0)(record)


def all_but_the_chain(record):
    """PERMTEST finds every independent pair, but for those that are judged one by one."""
    frame, chain = record["pairs"], [(f"{a}-0", f"{b}-0") for a, b in pairwise(TREE)]
    apart = np.array([pair not in chain for pair in zip(frame["a"], frame["b"], strict=True)])
    frame.loc[apart & frame["statistic"].eq("phi_l2") & frame["dependent"].eq(False), "log10_p"] = -2.0


# claim, what is broken, the change, and the status
PLANTS = [
    ("I4", "8 of 141 independent pairs at 1.3e-4", set_p("phi_u", np.log10(1.3e-4), 8), "fails"),
    ("I6", "135 of 141 independent pairs at 0.01", all_but_the_chain, "fails"),
    ("I8", "every pair at 10^-500", everywhere, "fails"),
    ("I9", "every pair at 10^-500", everywhere, "fails"),
    (
        "I9",
        "nobody knows the share of tokens",
        lambda record: record["measurements"]["long_training"].update(share=None),
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
    record = {"measurements": json.loads(json.dumps(in_tree())), "pairs": tree_of_pairs(PAPERS[claim])}
    change(record)
    store = Results(folder)
    store.put("unit", {"value": 0.0, "log10_p": 0.0, "detail": {}, "parameters": {"n_permutations": T}})
    evidence = Evidence({"name": "x", "profile": "default", "pairs": [], **record}, store)
    evidence.__dict__["pairs"] = record["pairs"]  # in place of what it aggregates from units
    return judge(ROWS[claim], evidence)


@pytest.mark.parametrize("claim", PAPERS)
def test_the_good_record_holds(claim, tmp_path):
    verdict = judged(claim, tmp_path)
    assert verdict.status == "holds", verdict


@pytest.mark.parametrize(("claim", "broken", "change", "status"), PLANTS, ids=[f"{c}: {b}" for c, b, *_ in PLANTS])
def test_a_plant_does_not_hold(claim, broken, change, status, tmp_path):
    verdict = judged(claim, tmp_path, change)
    assert verdict.status == status, (broken, verdict)
    assert verdict.why
