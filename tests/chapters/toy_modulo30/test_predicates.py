"""The toy's predicates: each holds on records as they should be, and fails for each of its reasons."""

import copy

import pytest

from provlab.chapters.toy_modulo30 import predicates
from provlab.engine.store import Store
from provlab.publishing import claims
from provlab.publishing.evidence import FAILS, HOLDS, NOT_RUN, Evidence

ROWS = {row["id"]: row["predicate"] for row in claims.load_claims() if row.get("experiment") == "toy_modulo30"}
EXACT = [1.0, 0.72, 0.56, 0.73]


def generated(model):
    return {"model": model, "n": 10_000, "valid": 9_996, "exact": 0.9996, "papers": 0.99999, "temperature": 0.056}


def term(name):
    return {"term": name, "precision": 0.91, "recall": 0.5, "exact_precision": 0.9, "exact_recall": 0.49}


RECORDS = {
    "space": {"inputs": 100_000_000, "valid": 3_785_821, "prefixes": 11_111_110},
    "generation": [generated("small"), generated("large")],
    "sampling": {
        "exact": EXACT,
        "reference": "PD_AB",
        "runs": [
            {"ratio": [1.0, 0.73, 0.55, 0.74], "low": EXACT, "high": EXACT, "total_variation": [0.01, 0.012]}
            for _ in range(3)
        ],
        "repeats": [{"ratio": EXACT, "low": [1, 0.7, 0.5, 0.7], "high": [1, 0.75, 0.6, 0.8]} for _ in range(40)],
        "edges": [-1.0, 0.0, 1.0],
    },
    "naive": {"naive": [[0.2, 0.3]] * 3, "weighted": [[0.01, 0.02]] * 3, "temperature": 0.056},
    "bias": [{"temperature": t, "A": 0.01 / t, "B": 0.012 / t} for t in (0.02, 0.056, 0.1)],
    "normalisation": {
        "example": [3.0, 2.0, 3.0, 3.0],
        "common": [500, 500],
        "exact": EXACT,
        "sampled": [1.0, 0.71, 0.57, 0.73],
        "unnormalised": [1.0, 0.72, 2.8, 3.6],
    },
    "oracle": [term(name) for name in ("PD_AB", "PA_AB", "PA_BA", "PD_BA")],
    "three": [{"pair": pair, "exact": EXACT, "runs": [[1.0, 0.73, 0.56, 0.72]] * 3} for pair in ("B", "C")],
}


def judged(claim, tmp_path, change=None, profile="default"):
    records = copy.deepcopy(RECORDS)
    if change is not None:
        change(records)
    store = Store(tmp_path)
    experiment = {"name": "toy_modulo30", "profile": profile, "pairs": [], "measurements": records}
    arguments = {key: value for key, value in ROWS[claim].items() if key != "name"}
    return getattr(predicates, ROWS[claim]["name"])(Evidence(experiment, store), **arguments)


def test_the_chapter_decides_its_claims():
    assert {claim: row["name"] for claim, row in ROWS.items()} == {
        "D1": "generates_valid",
        "D2": "sampled_matches_enumeration",
        "D3": "naive_misses",
        "D4": "normalisation_holds",
        "D11": "oracle_agrees",
        "D13": "three_models_agree",
    }


@pytest.mark.parametrize("claim", ["D1", "D2", "D3", "D4", "D11", "D13"])
def test_each_claim_can_hold(claim, tmp_path):
    verdict = judged(claim, tmp_path)
    assert verdict.status == HOLDS, verdict
    assert verdict.ours


def put(path, value):
    """Set one value deep in the records."""

    def change(records):
        *way, last = path
        for key in way:
            records = records[key]
        records[last] = value

    return change


FAULTS = [
    ("D1", put(["generation", 1, "valid"], 9_990), "large reaches 99.90% in plain samples"),
    ("D1", put(["generation", 0, "papers"], 0.999), "small reaches 99.900% by Equation 4"),
    ("D1", put(["generation", 0, "n"], 9_999), "wrote 9,999 sequences only"),
    ("D2", put(["sampling", "runs", 2, "ratio", 1], 0.76), "PA_AB of run 3 is 0.040 off"),
    ("D2", put(["sampling", "runs", 0, "total_variation"], [0.01, 0.021]), "0.021 off in total variation"),
    ("D2", lambda r: [put(["low"], [1, 0.8, 0.5, 0.7])(x) for x in r["sampling"]["repeats"][:13]], "cover in 89%"),
    ("D3", put(["naive", "naive"], [[0.1, 0.19]] * 3), "only 9.7 times"),
    ("D4", put(["normalisation", "example"], [3.0, 2.0, 3.0, 3.1]), "worked example comes out differently"),
    ("D4", put(["normalisation", "common"], [500, 499]), "R3 has another size"),
    ("D4", put(["normalisation", "sampled"], [1.0, 0.72, 0.56, 0.8]), "0.070 off"),
    ("D4", put(["normalisation", "unnormalised"], EXACT), "nothing is shown"),
    ("D11", put(["oracle", 3, "recall"], 0.6), "PD_BA is 0.110 off"),
    ("D11", put(["oracle", 0, "precision"], 0.8), "PD_AB is 0.100 off"),
    ("D13", put(["three", 1, "runs", 2], [1.0, 0.72, 0.56, 0.8]), "a term of C is 0.070 off"),
]


@pytest.mark.parametrize(("claim", "change", "said"), FAULTS, ids=[f"{f[0]}-{i}" for i, f in enumerate(FAULTS)])
def test_each_fault_fails_the_claim(claim, change, said, tmp_path):
    verdict = judged(claim, tmp_path, change)
    assert verdict.status == FAILS
    assert said in verdict.why


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("D1", put(["space", "inputs"], 100_000)),
        ("D2", put(["space", "inputs"], 100_000)),
        ("D3", put(["space", "inputs"], 100_000)),
        ("D2", put(["sampling", "runs"], RECORDS["sampling"]["runs"][:2])),
        ("D2", put(["sampling", "repeats"], RECORDS["sampling"]["repeats"][:39])),
        ("D3", put(["naive", "naive"], [[0.2, 0.3]])),
        ("D11", put(["oracle"], [])),
        ("D13", put(["three"], RECORDS["three"][:1])),
    ],
)
def test_too_little_evidence_is_no_verdict(claim, change, tmp_path):
    assert judged(claim, tmp_path, change).status == NOT_RUN
