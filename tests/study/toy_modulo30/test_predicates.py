"""The toy's predicates: each holds on records as they should be, fails for each of its reasons, and on each plant.

A plant is evidence in which the claim is false while single numbers of it look right.
"""

import numpy as np
import planted
import pytest
from planted import Plant, every, put, update
from scipy import stats

from provlab_study.publishing import claims
from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN, WITHIN_SPREAD

ROWS = {row["id"]: row for row in claims.load_claims() if row.get("experiment") == "toy_modulo30"}
EXACT = [1.0, 0.72, 0.56, 0.73]


def generated(model):
    return {"model": model, "n": 100_000, "valid": 99_970, "papers": 0.99999, "temperature": 0.056}


def term(name, z=(2.0, 3.0), plain=0.5):
    return {
        "term": name,
        "z": list(z),
        "precision": 0.91,
        "recall": 0.5,
        "exact_precision": 0.9,
        "exact_recall": 0.49,
        "plain_precision": plain,
        "plain_recall": 0.5,
    }


def near(k, width=0.02):
    """A run's ratio; no two are the same."""
    return [
        1.0,
        *(value + width * ((k * step % 127) / 126 - 0.5) for step, value in zip((7, 11, 17), EXACT[1:], strict=True)),
    ]


def repeat(k):
    ratio = near(k, 0.04)
    return {
        "ratio": ratio,
        "low": [1.0] + [r - 0.021 for r in ratio[1:]],
        "high": [1.0] + [r + 0.021 for r in ratio[1:]],
    }


RECORDS = {
    "space": {"inputs": 100_000_000, "valid": 3_785_821, "prefixes": 11_111_110},
    "generation": [generated("small"), generated("large")],
    "sampling": {
        "exact": EXACT,
        "reference": "PD_AB",
        "runs": [
            {"ratio": near(k + 1), "low": EXACT, "high": EXACT, "total_variation": [0.01, 0.012]} for k in range(3)
        ],
        "repeats": [repeat(k) for k in range(120)],
        "blind": {"ratio": near(5), "low": EXACT, "high": EXACT, "total_variation": [0.01, 0.012]},
        "edges": [-1.0, 0.0, 1.0],
    },
    "naive": {
        "draws": [300, 2400],
        "naive": [[[0.2, 0.2]] * 3, [[0.17 + k / 100, 0.21] for k in range(3)]],
        "weighted": [[[0.03, 0.04]] * 3, [[0.01, 0.015]] * 3],
        "naive_z": [[0.17 + k / 100, 0.21] for k in range(3)],
        "weighted_z": [[0.01, 0.015]] * 3,
        "temperature": 0.056,
    },
    "bias": [
        {"temperature": t, "A": 0.01 / t, "B": 0.012 / t, "z_A": 0.01 / t, "z_B": 0.012 / t}
        for t in (0.01, 0.02, 0.056, 0.1, 1 / 7)
    ],
    "normalisation": {
        "example": [3.0, 2.0, 3.0, 3.0],
        "common": [500, 500],
        "exact": EXACT,
        "sampled": [1.0, 0.71, 0.57, 0.73],
        "unnormalised": [1.0, 0.72, 2.8, 3.6],
    },
    "oracle": [
        term(name, z, plain)
        for z, plain in (((2.0, 3.0), 0.9), ((2.0, 5.0), 0.5))
        for name in ("PD_AB", "PA_AB", "PA_BA", "PD_BA")
    ],
    "three": [
        {"pair": pair, "exact": exact, "runs": [[value + k / 1000 for value in exact] for k in range(3)]}
        for pair, exact in (("B", [0.5, 0.46, 0.53, 0.47]), ("C", [0.7, 0.3, 0.6, 0.31]))
    ],
}


def judged(claim):
    return lambda records: planted.judged(ROWS[claim], records)


@pytest.mark.parametrize("claim", ROWS)
def test_each_claim_can_hold(claim):
    verdict = judged(claim)(RECORDS)
    assert verdict.status == HOLDS, verdict
    assert verdict.ours


def copied(*path, times):
    """Keep the first row of a list so many times."""
    return lambda records: planted.put(*path, value=planted.at(records, *path)[:1] * times)(records)


NAN = float("nan")
small_runs = [[1 + k / 1000, 0.045, 0.5, 0.0] for k in range(3)]
LONG, naive = ("sampling", "runs"), ("naive", "naive", 1)
small_bias = every("bias", change=lambda k, row: {"A": 0.001, "B": 0.001})
one_biased = every("bias", change=lambda k, row: {"z_B": 0.001})
wide = every("sampling", "repeats", change=lambda k, row: {"low": [1, 0, 0, 0], "high": [1, 9, 9, 9]})
miss_one = every(
    "sampling", "repeats", change=lambda k, row: {"low": [*row["low"][:3], 0.99 if k % 4 == 0 else row["low"][3]]}
)
RARE = term("PA_AB", (2.0, 3.0), 0.9) | {"recall": 0.0, "exact_recall": 0.025}
miss_some = every("sampling", "repeats", change=lambda k, row: {"low": [1, 0.8, 0.8, 0.7]} if k < 39 else {})


def miss_each_in_11(k, row):
    """Each term is missed in 11 repeats, none in two at once."""
    return {"low": [1.0, *(0.99 if k // 11 == term else row["low"][term + 1] for term in range(3))]}


miss_few = every("sampling", "repeats", change=miss_each_in_11)
no_distance = every(*LONG, change=lambda k, row: {"total_variation": []})
unweighted = every("oracle", change=lambda k, row: {"precision": row["plain_precision"]})
all_good = every(
    "oracle", change=lambda k, row: dict.fromkeys(("precision", "exact_precision", "plain_precision"), 1.0)
)
nothing = every(
    "three", change=lambda k, row: {"exact": [0, 0, 0, k / 99], "runs": [[0, 0, 0, j / 99] for j in range(3)]}
)


def one_model_twice(records):
    records["three"][1] = {**records["three"][0], "pair": "C"}


def near_truth(value):
    return [[value, 0.21 + k / 1000] for k in range(3)]


# claim, and a plant of it
PLANTS = [
    ("D1", "samples", put("generation", 1, "valid", value=99_900), FAILS, "0.0005 below the bar of 0.9995"),
    ("D1", "samples that may be too few", put("generation", 1, "valid", value=99_955), WITHIN_SPREAD, ""),
    ("D1", "by Equation 4", put("generation", 0, "papers", value=0.999), FAILS, "small reaches 99.900% by Equation 4"),
    ("D1", "few sequences", lambda r: r["generation"][0].update(n=9_999, valid=9_998), FAILS, "wrote 9,999 sequences"),
    ("D1", "one model only", put("generation", value=[generated("small")]), NOT_RUN, "1 models"),
    ("D1", "no model", put("generation", value=[]), NOT_RUN, "0 models"),
    ("D1", "one model twice", copied("generation", times=2), NOT_RUN, "1 models"),
    ("D1", "no number", put("generation", 0, "papers", value=NAN), FAILS, "reaches nan%"),
    ("D2", "one term", put(*LONG, 2, "ratio", 1, value=0.76), WITHIN_SPREAD, "furthest term (PA_AB of run 3)"),
    ("D2", "rho(D)", put(*LONG, 0, "total_variation", value=[0.01, 0.021]), WITHIN_SPREAD, "total variation of rho(D)"),
    ("D2", "blind", put("sampling", "blind", "ratio", 1, value=0.76), FAILS, "furthest term by moves without the rule"),
    (
        "D2",
        "rho(D), blind",
        put("sampling", "blind", "total_variation", value=[0.01, 0.03]),
        FAILS,
        "variation by moves without",
    ),
    ("D2", "coverage", miss_some, FAILS, "coverage of the intervals: 0.78"),
    ("D2", "coverage that repeats do not carry", miss_few, WITHIN_SPREAD, "coverage of the intervals: 0.908"),
    ("D2", "one run kept three times", copied(*LONG, times=3), NOT_RUN, "1 runs and 120 repeats"),
    ("D2", "one repeat kept 120 times", copied("sampling", "repeats", times=120), NOT_RUN, "3 runs and 1 repeats"),
    ("D2", "intervals that cover everything", wide, FAILS, "PA_AB are 9.000 wide where repeats scatter"),
    ("D2", "one term covered in three quarters", miss_one, FAILS, "of PD_BA cover in 90 repeats only"),
    ("D2", "no distance of rho(D)", no_distance, NOT_RUN, "asked for"),
    ("D2", "no run without the rule", put("sampling", "blind", "total_variation", value=[]), NOT_RUN, "asked for"),
    ("D2", "no number without the rule", put("sampling", "blind", "ratio", 2, value=NAN), FAILS, "no value"),
    ("D2", "no number", put(*LONG, 1, "ratio", 2, value=NAN), FAILS, "furthest term (PA_BA of run 2): no value"),
    ("D2", "no number in rho(D)", put(*LONG, 1, "total_variation", value=[NAN, 0.01]), FAILS, "rho(D): no value"),
    ("D2", "a part of the space", put("space", "inputs", value=100_000), NOT_RUN, "100,000 inputs"),
    ("D2", "two runs", put(*LONG, value=RECORDS["sampling"]["runs"][:2]), NOT_RUN, "2 runs"),
    ("D2", "119 repeats", put("sampling", "repeats", value=RECORDS["sampling"]["repeats"][:119]), NOT_RUN, "119 rep"),
    (
        "D3",
        "a hot temperature",
        put("bias", 4, "z_B", value=0.011),
        FAILS,
        "B's inputs at T = 0.143: 0.011, 0.009 below the bar of 0.02",
    ),
    ("D3", "weights", put("naive", "weighted", 1, value=[[0.01, 0.03]] * 3), FAILS, "B are 0.0300 off in rho(D) too"),
    ("D3", "weights, z", put("naive", "weighted_z", value=[[0.01, 0.03]] * 3), FAILS, "B are 0.0300 off in rho(z) too"),
    ("D3", "another law of z", put("naive", "naive_z", value=near_truth(0.1)), FAILS, "0.1000 off in rho(z) and not"),
    ("D3", "another law", put(*naive, value=near_truth(0.1)), FAILS, "of A without weights are 0.1000 off in rho(D)"),
    ("D3", "both exact", put(*naive, value=[[k / 1000, 0.0] for k in range(3)]), FAILS, "of B without weights are 0.0"),
    ("D3", "one direction misses, the other does not", one_biased, FAILS, "rho(z) on B's inputs at T = 0.01"),
    ("D3", "a short run", put("naive", "weighted", 1, value=[[0.3, 0.3]] * 3), FAILS, "A are 0.3000 off in rho(D) too"),
    ("D3", "chains that did not converge", small_bias, FAILS, "not what their law is: 0.0010"),
    ("D3", "the bias at another temperature", lambda r: r["bias"].pop(1), NOT_RUN, "the bias at each temperature"),
    ("D3", "one run kept three times", put(*naive, value=[[0.18, 0.21]] * 3), NOT_RUN, "1 runs"),
    ("D3", "one run", put(*naive, value=[[0.2, 0.3]]), NOT_RUN, "1 runs"),
    ("D3", "no number", put(*naive, 0, value=[NAN, 0.3]), FAILS, "nan off in rho(D)"),
    ("D3", "no number with weights", put("naive", "weighted", 1, 0, value=[NAN, 0.3]), FAILS, "nan off in rho(D) too"),
    ("D3", "no bias", put("bias", 0, "z_A", value=NAN), FAILS, "no value"),
    ("D3", "a part of the space", put("space", "inputs", value=100_000), NOT_RUN, "100,000 inputs"),
    ("D4", "the example", put("normalisation", "example", value=[3, 2, 3, 3.1]), FAILS, "comes out differently"),
    ("D4", "small terms", update("normalisation", exact=[1, 0.02, 0.03, 1], sampled=[1, 0.065, 0, 1]), FAILS, ""),
    ("D4", "R3", put("normalisation", "common", value=[500, 499]), FAILS, "R3 has another size"),
    (
        "D4",
        "a term",
        put("normalisation", "sampled", value=[1.0, 0.72, 0.56, 0.8]),
        FAILS,
        "what is allowed: 1.4, 0.4 above the bar of 1",
    ),
    ("D4", "no need of it", put("normalisation", "unnormalised", value=EXACT), FAILS, "nothing is shown"),
    ("D4", "nothing in common", put("normalisation", "common", value=[0, 0]), FAILS, "R3 is empty"),
    ("D4", "no number", put("normalisation", "sampled", 1, value=NAN), FAILS, "no value"),
    ("D11", "a rare term missed", put("oracle", 1, value=RARE), FAILS, "in units of what is allowed"),
    ("D11", "recall", put("oracle", 3, "recall", value=0.6), FAILS, "(PD_BA): 0.11, 0.08 above the bar of 0.03"),
    ("D11", "precision", put("oracle", 0, "precision", value=0.8), FAILS, "(PD_AB): 0.1, 0.07 above the bar of 0.03"),
    (
        "D11",
        "weights dropped, true weighted precision 0.90",
        unweighted,
        FAILS,
        "(PD_AB): 0.4, 0.37 above the bar of 0.03",
    ),
    ("D11", "a range in which everything is good", all_good, FAILS, "nothing is shown"),
    ("D11", "one term", every("oracle", change=lambda k, row: {"term": "PD_AB"}), NOT_RUN, "2 terms"),
    ("D11", "no number", put("oracle", 2, "recall", value=NAN), FAILS, "no value"),
    ("D11", "no row", put("oracle", value=[]), NOT_RUN, "0 terms"),
    ("D13", "small terms", update("three", 0, exact=[1, 0.02, 0.5, 0.02], runs=small_runs), FAILS, ""),
    ("D13", "one run", put("three", 1, "runs", 2, value=[0.7, 0.3, 0.6, 0.38]), WITHIN_SPREAD, "furthest term of C"),
    ("D13", "one model as both others", one_model_twice, FAILS, "one model twice"),
    ("D13", "one pair twice", put("three", 1, "pair", value="B"), NOT_RUN, "two pairs"),
    ("D13", "one run kept three times", copied("three", 0, "runs", times=3), NOT_RUN, "two pairs"),
    ("D13", "one pair", put("three", value=RECORDS["three"][:1]), NOT_RUN, "two pairs"),
    ("D13", "no input in reach", nothing, FAILS, "no term of B is larger"),
    ("D13", "no number", put("three", 0, "runs", 0, 0, value=NAN), FAILS, "no value"),
]


@pytest.mark.parametrize(("claim", "plant"), [(claim, Plant(*rest)) for claim, *rest in PLANTS], ids=str)
def test_a_broken_claim_does_not_hold(claim, plant):
    plant.check(judged(claim), RECORDS)


@pytest.mark.parametrize(
    ("cover", "holds", "fails"),
    [(0.98, (0.97, 1.0), (0.0, 0.02)), (0.95, (0.8, 0.98), (0.0, 0.13)), (0.87, (0.0, 0.03), (0.9, 1.0))],
)
def test_the_bar_of_coverage_tells_honest_intervals_from_short_ones(cover, holds, fails):
    """What the predicate says of its own bar: 100, 91 and 0 of 100 hold, and 0, 5 and 99 fail; 200 draws, to 3 errors.

    120 repeats of three normal terms, correlated by 0.5 since they share a unit.
    """
    rng, spread, counts = np.random.default_rng(round(100 * cover)), 0.01, {}
    reach = spread * stats.norm.ppf((1 + cover) / 2)
    for _ in range(200):
        own, common = rng.normal(size=(120, 3)), rng.normal(size=(120, 1))
        ratio = np.c_[np.ones(120), EXACT[1:] + spread * (own + common) / 2**0.5]
        ends = {"low": ratio - reach, "high": ratio + reach}
        ends = {name: np.c_[np.ones(120), end[:, 1:]] for name, end in ends.items()}
        repeats = [
            {"ratio": row.tolist(), **{name: end[k].tolist() for name, end in ends.items()}}
            for k, row in enumerate(ratio)
        ]
        sampling = RECORDS["sampling"] | {"repeats": repeats}
        status = judged("D2")(RECORDS | {"sampling": sampling}).status
        counts[status] = counts.get(status, 0) + 1
    for status, (least, most) in ((HOLDS, holds), (FAILS, fails)):
        assert least <= counts.get(status, 0) / 200 <= most, counts
