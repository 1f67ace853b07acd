"""Predicates of Model-diff: each holds on planted measurements, and fails for each of its reasons."""

import planted
import pytest
from planted import Plant, put, update

from provlab_study.publishing import claims
from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN, WITHIN_SPREAD

CLAIMS = {row["id"]: row for row in claims.load_claims() if row.get("experiment") in ("model_diff", "plagiarism")}
SMALLER = {"D12": {"draws": 1}, "D7": {"pair": "sizes"}}  # than claims.yml asks for
NAN = float("nan")


def ratio(value, spread=0.1):
    return {
        "reference": "PD_AB",
        "value": value,
        "low": [v * (1 - spread) for v in value],
        "high": [v * (1 + spread) for v in value],
    }


#: numbers and shares of inputs of a comparison, and the ratio that follows from them
INPUTS, SHARES = (20.1, 20.15), (0.98, 0.985)


def following(inputs=INPUTS, shares=SHARES):
    """PD of A : PA of A : PA of B : PD of B, from numbers of inputs and shares of disagreement."""
    more = 10 ** (inputs[1] - inputs[0])
    of_a, of_b = shares
    return [1.0, (1 - of_a) / of_a, (1 - of_b) / of_a * more, of_b / of_a * more]


def comparison(value):
    return {
        "z": [2.0, 3.0],
        "n": [900, 800],
        "n_common": [30, 20],
        "effective": [500.0, 90.0],
        "log10_inputs": list(INPUTS),
        "log10_common": [18.5, None],
        "extent_a": [-1.5, 0.2],
        "extent_b": [-0.2, 1.4],
        "below_a": [SHARES[0], 0.97, 0.99],
        "below_b": [1 - SHARES[1], 0.0, 0.02],
        "by_r3": ratio(value, 0.5),
        "by_count": ratio(value),
    }


def side(pair, kind, below_a, below_b):
    return comparison([1.0, 0.5, 0.5, 1.0]) | {"pair": pair, "kind": kind, "below_a": below_a, "below_b": below_b}


def half(share=0.5, reach=0.08):
    """Shares of a copy that is on neither side."""
    return {name: [share, share - reach, share + reach] for name in ("below_a", "below_b")}


def swept(noise):
    fields = {"mean": 1.0, "variance": 1.0, "slope": 1.0, "predicted_b": 0.5, "loss": 2.0, "kind": "noise"}
    return fields | {"pair": f"noise {noise}, 0"} | half()


def copies():
    return [
        side("noise 0.001", "noise", [0.9, 0.8, 0.95], [0.8, 0.7, 0.9]),
        side("noise 1e-05", "noise", [0.7, 0.6, 0.8], [0.7, 0.6, 0.8]),
        side("stranger", "stranger", [0.99, 0.98, 1.0], [0.02, 0.0, 0.1]),
    ]


def of_chains():
    """The theorem's numbers for 8 copies of two chains: only near-certain tokens, drawn colder, are one-sided."""
    rows = []
    for world, ratio_when_colder in (("near-certain", 3.0), ("uncertain", 0.5)):
        for copy_number in range(8):
            for exponent in (1.0, 2.0):
                back, ratio_ = 1.0, ratio_when_colder if exponent > 1 else 0.0
                rows.append(
                    {"world": world, "copy": copy_number, "noise": 1.0, "exponent": exponent, "ratio": ratio_}
                    | {"forth": 1.0, "back": back}
                    | {"mean_a": (ratio_ + 1.0) / exponent, "mean_b": (ratio_ - back) / exponent}
                )
    return rows


def of_chain(measurements, world, exponent):
    return [row for row in measurements["chains"] if (row["world"], row["exponent"]) == (world, exponent)]


def reach(pair, of_a, of_b):
    times = of_a / of_b
    numbers = {"of_a": of_a, "of_b": of_b, "times": [times, times - 0.1, times + 0.1]}
    return {"pair": pair, "models": ["small", "large"], "effective": [500.0, 90.0]} | numbers


def scored(term, precision, recall):
    ends = {"low": precision - 0.1, "high": precision + 0.1, "recall_low": recall - 0.1, "recall_high": recall + 0.1}
    return {"term": term, "scored": 40, "precision": precision, "recall": recall} | ends


REPEATS = {
    "model": "small",
    "nll": 0.4,
    "lowest": 0.8,
    "counted": 0.2,
    "counted_nll": 1.8,
    "in_z": 0.1,
    "text": 0.05,
}
MEASUREMENTS = {
    "sizes": comparison(following()),
    "long": comparison([1.0, 0.0, 0.0, 9.0]),
    "capability": [
        {
            "pair": "sizes",
            "models": ["small", "large"],
            "uniform": 6.24,
            "held_out": [3.2, 2.8],
            "apart": [2.8 - 3.2, -0.5, -0.3],
            "log10_more": [INPUTS[1] - INPUTS[0], 0.045, 0.055],
            "effective": [200.0, 90.0],
        }
    ],
    "repetition": [REPEATS],
    "domains": {"code_side": 0.9, "prose_side": 0.3, "gap": [0.6, 0.5, 0.7], "accuracy": 0.85}
    | {"code_rise": [0.2, 0.1, 0.3], "prose_rise": [0.12, 0.07, 0.17]},
    "reach": [reach("sizes", 1.5, 1.0), reach("long", 0.9, 0.6), reach("two seeds", 1.0, 1.05)],
    "annotations": [scored("PD_AB", 0.4, 0.35), scored("PA_AB", 0.5, 0.65), scored("PD_BA", 0.8, 0.75)],
    "scored_by": "people",
    "sides": copies(),
    "sweep": [],
    "chains": of_chains(),
    "ways": [
        {
            "pair": pair,
            "side": side,
            "what": f"{what}, {side}",
            "generation": [value, value - 0.01, value + 0.01],
            "exchange": [value + 0.002, value - 0.01, value + 0.014],
        }
        for pair in ("sizes", "generations")
        for what, values in (("number", INPUTS), ("share", SHARES))
        for side, value in zip("AB", values, strict=True)
    ],
    "controls": [
        {"kind": "two seeds", "models": ["one", "two"], "compared": comparison([1.0, 0.2, 0.2, 1.1])},
        {"kind": "near copy", "models": ["one", "its copy"], "compared": comparison([1.0, 0.9, 0.9, 1.1])},
    ],
}


def judged(claim):
    compared = {"D5": "sizes", "D6": "long", "D7": "sizes"}.get(claim)

    def judge(measurements):
        records = {"compared": measurements[compared]} if compared else {}
        return planted.judged(CLAIMS[claim], measurements, **records, **SMALLER.get(claim, {}))

    return judge


@pytest.mark.parametrize("claim", CLAIMS)
def test_planted_measurements_hold(claim):
    verdict = judged(claim)(MEASUREMENTS)
    assert verdict.status == HOLDS
    assert verdict.ours
    assert verdict.why


def hardly_lower(measurements):
    """Repetition as before, at nine tenths of the loss at which typical inputs begin."""
    measurements["repetition"][0]["nll"] = 0.9 * measurements["sizes"]["z"][0]


def no_ratio(name):
    return lambda m: m[name].update(by_r3={"error": "R3 is empty"}, by_count={"error": "R3 is empty"})


def counts(*value):
    return put("sizes", "by_count", value=ratio(list(value)))


def another_draw(measurements):
    measurements["sides"].append(side("noise 0.001, 2", "noise", [0.3, 0.2, 0.4], [0.4, 0.3, 0.45]))


def wide(measurements, generation, exchange, reach=2.0):
    """Both ways to draw at these shares, known so well."""
    for row in measurements["ways"]:
        if row["what"].startswith("share"):
            for way, share in (("generation", generation), ("exchange", exchange)):
                row[way] = [share, share - reach, share + reach]


def as_generation(measurements):
    """The column of replica exchange is that of generation again."""
    for row in measurements["ways"]:
        row["exchange"] = row["generation"]


def of_generations(measurements):
    """The numbers of another comparison stand where those of the two sizes should."""
    measurements["sizes"] = comparison(following((21.0, 21.3), (0.97, 0.99))) | {"log10_inputs": [21.0, 21.3]}


def summed(measurements):
    """Losses of pieces added up, not their mean."""
    row = measurements["capability"][0]
    row["held_out"], row["apart"] = ([500 * value for value in row[name]] for name in ("held_out", "apart"))


def turned(measurements):
    """One pair again, the other way round."""
    row = measurements["capability"][0]
    again = {"models": row["models"][::-1], "held_out": row["held_out"][::-1]}
    again |= {"apart": [-row["apart"][k] for k in (0, 2, 1)], "log10_more": [-row["log10_more"][k] for k in (0, 2, 1)]}
    measurements["capability"].append(row | again)


def times(term, factor):
    """One term of both ratios so many times as large."""

    def change(measurements):
        for way in ("by_count", "by_r3"):
            for end in ("value", "low", "high"):
                row = measurements["sizes"][way]
                row[end] = [value * (factor if k == term else 1) for k, value in enumerate(row[end])]

    return change


# claim, and a plant of it
PLANTS = [
    *(
        (c, "exchange is a copy of generation", as_generation, FAILS, "one way to draw, kept twice")
        for c in ("D5", "D7")
    ),
    ("D5", "generations in the place of sizes", of_generations, FAILS, "where the comparison has 21"),
    ("D5", "PD of B three times too high", times(3, 3), FAILS, "where numbers and shares of inputs give"),
    ("D5", "agreement of A four times too high", times(1, 4), FAILS, "PA_AB by counts is 0.0816, more than the share"),
    ("D5", "agreement of B five times too high", times(2, 5), FAILS, "PA_BA by counts is"),
    (
        "D5",
        "two seeds do as much",
        lambda m: m["controls"][0].update(compared=comparison([1.0, 0.0, 0.01, 1.07])),
        FAILS,
        "two seeds (one and two) do as much, 1.00 : 0.00 : 0.01 : 1.07 by R3",
    ),
    (
        "D7",
        "a near copy does as much",
        lambda m: m["controls"][1].update(compared=comparison([1.0, 0.0, 0.01, 1.07])),
        FAILS,
        "near copy (one and its copy) do as much",
    ),
    ("D5", "no control", put("controls", value=[]), NOT_RUN, "no control"),
    ("D5", "one control", lambda m: m["controls"].pop(0), NOT_RUN, "no control"),
    ("D8", "losses summed", summed, FAILS, "a held-out loss of 1600 is no mean over tokens"),
    (
        "D8",
        "the counts of B doubled",
        put("capability", 0, "log10_more", value=[0.351, 0.346, 0.356]),
        FAILS,
        "where their numbers give 0.0500",
    ),
    (
        "D8",
        "the counts of B doubled wherever generation counts",
        lambda m: (
            m["capability"][0].update(log10_more=[INPUTS[1] - INPUTS[0] + 0.301, 0.346, 0.356]),
            m["ways"][1].update(generation=[INPUTS[1] + 0.301, INPUTS[1] + 0.291, INPUTS[1] + 0.311]),
        ),
        FAILS,
        "by replica exchange log10 of B's inputs for one of A's is 0.05",
    ),
    ("D8", "one pair twice, the other way round", turned, NOT_RUN, "each once"),
    ("D8", "no number of inputs", lambda m: m.update(ways=[]), NOT_RUN, "0 numbers of inputs of sizes"),
    (
        "D8",
        "an interval of another difference",
        put("capability", 0, "apart", value=[-0.5, -0.6, -0.4]),
        FAILS,
        "apart",
    ),
    (
        "D9",
        "repetition read as 0",
        put("repetition", 0, value=REPEATS | {"in_z": 0.0, "text": 0.0}),
        FAILS,
        "is 0, which",
    ),
    ("D9", "Z read as 0", lambda m: m["sizes"].update(z=[0.0, 3.0]), FAILS, "are those of Z"),
    ("D9", "losses read as 0", put("repetition", 0, "nll", value=0.0), FAILS, "a lowest loss of 0.00 is none"),
    *((c, "ways .95 and .05, wide", lambda m: wide(m, 0.95, 0.05), FAILS, "share, A, by rep") for c in ("D5", "D7")),
    *(
        (c, "shares of .1 by both ways", lambda m: wide(m, 0.1, 0.1, 0.01), FAILS, "share, A, by gen")
        for c in ("D5", "D7")
    ),
    (
        "D5",
        "a number known to a factor of 10",
        put("ways", 0, "exchange", value=[20.11, 19.1, 21.1]),
        WITHIN_SPREAD,
        "",
    ),
    (
        "D6",
        "D within .0005",
        lambda m: m["long"].update(extent_a=[-0.0005, 0.0005], extent_b=[-0.0005, 0.0005]),
        FAILS,
        "nats that D of 98% of A's inputs",
    ),
    ("D10", ".1% more of its kind", put("domains", "prose_rise", value=[0.001, 0.0005, 0.0015]), FAILS, "prose model"),
    ("D10", "5% more, give or take 3", put("domains", "code_rise", value=[0.06, 0.03, 0.09]), WITHIN_SPREAD, ""),
    ("D12", "every copy at .501", lambda m: [row.update(half(0.501, 0.0005)) for row in m["sides"][:2]], FAILS, ""),
    ("D5", "D within .01", lambda m: m["sizes"].update(extent_a=[-0.01, 0.01], extent_b=[-0.01, 0.01]), FAILS, ""),
    ("D8", "0.5% more inputs", put("capability", 0, "log10_more", value=[0.0022, 0.001, 0.003]), FAILS, ""),
    ("D8", "0.001 nats apart", put("capability", 0, "apart", value=[-0.001, -0.0015, -0.0005]), FAILS, ""),
    ("D9", "no more than typical", put("repetition", 0, value=REPEATS | {"lowest": 0.51, "in_z": 0.505}), FAILS, ""),
    ("D10", "less of their own kind", put("domains", "prose_rise", value=[-0.05, -0.2, 0.1]), FAILS, ""),
    ("D12", "every copy at .50", lambda m: [row.update(half()) for row in m["sides"][:2]], FAILS, ""),
    ("D12", "one-sided in no case over losses", put("sweep", value=[swept("0.001"), swept("1e-05")]), FAILS, ""),
    ("D5", "agreement on A's inputs", counts(1.0, 0.2, 0.01, 1.1), FAILS, "PA_AB for one of"),
    ("D5", "agreement on B's inputs", counts(1.0, 0.01, 0.2, 1.1), FAILS, "PA_BA for one of"),
    (
        "D5",
        "the ways differ",
        put("ways", 2, "exchange", value=[0.90, 0.89, 0.91]),
        FAILS,
        "two ways to draw differ in share, A of sizes by 5.7 joint intervals",
    ),
    ("D5", "a wide interval", put("sizes", "by_count", "high", 1, value=0.2), WITHIN_SPREAD, ""),
    ("D5", "an open interval", put("sizes", "by_count", "high", 2, value=None), WITHIN_SPREAD, ""),
    ("D5", "hardly any disagreement on B's inputs", counts(1.0, 0.02, 0.05, 0.01), FAILS, "for one of PD_BA"),
    ("D5", "one draw of each model", put("sizes", "effective", value=[1.0, 1.0]), NOT_RUN, "worth 1 equal"),
    ("D5", "no replica exchange", put("ways", value=[]), NOT_RUN, "0 numbers"),
    ("D5", "another number", put("ways", 0, "exchange", value=[20.4, 20.35, 20.45]), FAILS, "number, A of sizes"),
    ("D5", "both ways are of another pair", lambda m: m.update(ways=m["ways"][4:]), NOT_RUN, "0 numbers"),
    ("D5", "a way gives no number", put("ways", 1, "exchange", value=[NAN] * 3), FAILS, "number, B of sizes"),
    ("D5", "no number", put("sizes", "by_count", "high", 1, value=NAN), WITHIN_SPREAD, ""),
    ("D5", "no ratio", no_ratio("sizes"), NOT_RUN, "R3 is empty"),
    (
        "D6",
        "too small",
        put("long", "by_count", value=ratio([1.0, 0, 0, 2.0])),
        FAILS,
        ": 2 (95% interval 1.8 to 2.2), 1 below the bar of 3",
    ),
    ("D6", "a wide interval", put("long", "by_count", "low", 3, value=2.5), WITHIN_SPREAD, ""),
    ("D6", "an open interval", put("long", "by_count", "low", 3, value=None), WITHIN_SPREAD, ""),
    ("D6", "one draw of each model", put("long", "effective", value=[900.0, 1.0]), NOT_RUN, "worth 1 equal"),
    ("D6", "no number", put("long", "by_count", "low", 3, value=NAN), WITHIN_SPREAD, ""),
    ("D6", "no ratio", no_ratio("long"), NOT_RUN, "R3 is empty"),
    (
        "D8",
        "the other is better",
        lambda m: m["capability"][0].update(held_out=[2.8, 3.2], apart=[3.2 - 2.8, 0.3, 0.5]),
        FAILS,
        "of small, of lower loss",
    ),
    ("D8", "a wide interval", put("capability", 0, "log10_more", 1, value=0.02), WITHIN_SPREAD, ""),
    (
        "D8",
        "losses differ by chance",
        lambda m: m["capability"][0].update(held_out=[3.2, 3.17], apart=[3.17 - 3.2, -0.07, 0.01]),
        WITHIN_SPREAD,
        "",
    ),
    ("D8", "few draws", put("capability", 0, "effective", value=[200.0, 9.0]), NOT_RUN, "worth 9 equal"),
    ("D8", "no pair", put("capability", value=[]), NOT_RUN, "0 pairs"),
    ("D8", "one pair twice", lambda m: m["capability"].append(m["capability"][0]), NOT_RUN, "2 pairs"),
    ("D8", "no number", put("capability", 0, "log10_more", value=[NAN] * 3), FAILS, "no value"),
    (
        "D9",
        "few",
        put("repetition", 0, "lowest", value=0.4),
        FAILS,
        "repetition of small at the lowest loss: 0.4, 0.1 below the bar of 0.5",
    ),
    ("D9", "as much in Z", put("repetition", 0, "in_z", value=0.9), FAILS, "less than 2 times as much"),
    ("D9", "text repeats as much", put("repetition", 0, "text", value=0.9), FAILS, "lowest loss as in text"),
    ("D9", "losses hardly below typical ones", hardly_lower, FAILS, "lowest loss of small over that where Z begins"),
    ("D9", "losses that are typical", put("repetition", 0, "nll", value=2.5), FAILS, "are those of Z"),
    ("D9", "no model", put("repetition", value=[]), NOT_RUN, "no model"),
    ("D9", "no number", put("repetition", 0, "lowest", value=NAN), FAILS, "no value"),
    (
        "D10",
        "alike",
        put("domains", "gap", value=[0.1, 0.05, 0.15]),
        FAILS,
        "difference of the two sides: 0.1 (95% interval 0.05 to 0.15), 0.1 below the bar of 0.2",
    ),
    (
        "D10",
        "bad labels",
        put("domains", "accuracy", value=0.7),
        FAILS,
        "right on held-out text: 0.7, 0.1 below the bar of 0.8",
    ),
    ("D10", "a wide interval", put("domains", "gap", value=[0.6, 0.1, 0.7]), WITHIN_SPREAD, ""),
    (
        "D10",
        "both sides are mostly code",
        lambda m: m["domains"].update(code_side=0.99, prose_side=0.7, gap=[0.29, 0.25, 0.33]),
        FAILS,
        "code on the prose model's side",
    ),
    (
        "D10",
        "less of its kind",
        put("domains", "code_rise", value=[-0.2, -0.3, -0.1]),
        FAILS,
        "share of its own kind among the code model",
    ),
    ("D10", "no number", put("domains", "gap", value=[NAN] * 3), FAILS, "no value"),
    ("D12", "B's side", put("sides", 0, "below_b", value=[0.4, 0.3, 0.45]), FAILS, "B's inputs below 0, noise 0.001"),
    ("D12", "A's side", put("sides", 1, "below_a", value=[0.4, 0.3, 0.45]), FAILS, "A's inputs below 0, noise 1e-05"),
    ("D12", "a stranger too", put("sides", 2, "below_b", value=[0.7, 0.6, 0.8]), FAILS, "B's inputs below 0, stranger"),
    ("D12", "a stranger's wide interval", put("sides", 2, "below_b", value=[0.4, 0.3, 0.6]), WITHIN_SPREAD, ""),
    ("D12", "no pair that is no copy", put("sides", value=copies()[:2]), NOT_RUN, "another model"),
    ("D12", "no copy", put("sides", value=copies()[2:]), NOT_RUN, "another model"),
    ("D12", "one level of noise", lambda m: m["sides"].pop(1), NOT_RUN, "not of 1"),
    (
        "D12",
        "another draw lies on the other side",
        another_draw,
        WITHIN_SPREAD,
        "A's inputs below 0, noise 0.001: mean 0.6, 0.05 above",
    ),
    ("D12", "one copy twice", lambda m: m["sides"].append(m["sides"][0]), NOT_RUN, "each its own"),
    ("D12", "strangers the other way", put("sides", 2, "below_a", value=[0.05, 0.0, 0.1]), FAILS, "A's inputs below 0"),
    (
        "O4",
        "a copy on two sides",
        lambda m: of_chain(m, "near-certain", 2.0)[3].update(ratio=0.5, mean_a=0.75, mean_b=-0.25),
        FAILS,
        "1 cases are not one-sided",
    ),
    (
        "O4",
        "one-sided at the own exponent",
        lambda m: of_chain(m, "uncertain", 1.0)[0].update(ratio=2.0, mean_a=3.0, mean_b=1.0),
        FAILS,
        "1 cases are one-sided at exponent 1",
    ),
    (
        "O4",
        "a side told wrongly",
        lambda m: of_chain(m, "uncertain", 2.0)[0].update(mean_b=0.1),
        FAILS,
        "1 sides wrongly",
    ),
    (
        "O4",
        "the identity is off",
        lambda m: m["chains"][0].update(mean_a=1.00001),
        FAILS,
        "off by more than 1e-06 nats",
    ),
    ("O4", "no number", lambda m: m["chains"][0].update(mean_a=NAN), FAILS, ""),
    ("O4", "seven copies", lambda m: m.update(chains=[r for r in m["chains"] if r["copy"] < 7]), NOT_RUN, "8 copies"),
    (
        "O4",
        "only colder",
        lambda m: m.update(chains=[r for r in m["chains"] if r["exponent"] > 1]),
        NOT_RUN,
        "own exponent",
    ),
    ("D12", "no number", put("sides", 2, "below_b", value=[NAN] * 3), FAILS, "no value"),
    ("D14", "as far on both sides", update("reach", 0, **reach("sizes", 1.0, 1.0)), FAILS, "reach of"),
    ("D14", "two seeds as well", update("reach", 2, **reach("two seeds", 1.5, 1.0)), FAILS, "of two seeds"),
    ("D14", "few draws", update("reach", 1, effective=[500.0, 9.0]), NOT_RUN, "equal draws"),
    ("D15", "scored by a program", put("scored_by", value="labels"), NOT_RUN, "nobody has scored"),
    ("D15", "people prefer the smaller", update("annotations", 2, **scored("PD_BA", 0.4, 0.35)), FAILS, ""),
]


@pytest.mark.parametrize(("claim", "plant"), [(claim, Plant(*rest)) for claim, *rest in PLANTS], ids=str)
def test_a_broken_claim_does_not_hold(claim, plant):
    """Evidence in which the claim is false while single numbers of it look right."""
    plant.check(judged(claim), MEASUREMENTS)


def test_without_counts_r3_decides():
    measured = {"by_count": {"error": "weights are known up to a factor only"}, "by_r3": ratio([1.0, 0.02, 0.01, 1.1])}
    Plant("no counts", update("sizes", **measured), HOLDS).check(judged("D5"), MEASUREMENTS)
