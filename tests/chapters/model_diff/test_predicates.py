"""Predicates of Model-diff: each holds on planted measurements, and fails for each of its reasons."""

import copy
import re

import pytest

from provlab.engine.store import Store
from provlab.publishing import claims
from provlab.publishing.evidence import FAILS, HOLDS, NOT_RUN, WITHIN_SPREAD, Evidence

PREDICATES = {row["predicate"]["name"]: claims.predicate(row) for row in claims.load_claims() if "predicate" in row}


def ratio(value, spread=0.1):
    return {
        "reference": "PD_AB",
        "value": value,
        "low": [v * (1 - spread) for v in value],
        "high": [v * (1 + spread) for v in value],
    }


def comparison(value):
    return {
        "z": [2.0, 3.0],
        "n": [900, 800],
        "n_common": [30, 20],
        "effective": [500.0, 90.0],
        "log10_inputs": [20.1, 20.2],
        "log10_common": [18.5, None],
        "extent_a": [-1.5, 0.2],
        "extent_b": [-0.2, 1.4],
        "below_a": [0.98, 0.97, 0.99],
        "below_b": [0.01, 0.0, 0.02],
        "by_r3": ratio(value, 0.5),
        "by_count": ratio(value),
    }


def side(pair, kind, below_a, below_b):
    return comparison([1.0, 0.5, 0.5, 1.0]) | {"pair": pair, "kind": kind, "below_a": below_a, "below_b": below_b}


def copies():
    return [
        side("noise 0.001", "noise", [0.9, 0.8, 0.95], [0.8, 0.7, 0.9]),
        side("noise 1e-05", "noise", [0.7, 0.6, 0.8], [0.7, 0.6, 0.8]),
        side("stranger", "stranger", [0.99, 0.98, 1.0], [0.02, 0.0, 0.1]),
    ]


MEASUREMENTS = {
    "sizes": comparison([1.0, 0.02, 0.01, 1.1]),
    "long": comparison([1.0, 0.0, 0.0, 9.0]),
    "capability": [
        {
            "models": ["small", "large"],
            "held_out": [3.2, 2.8],
            "apart": [-0.4, -0.5, -0.3],
            "log10_more": [0.2, 0.1, 0.3],
        }
    ],
    "repetition": [{"model": "small", "nll": 0.4, "lowest": 0.8, "in_z": 0.1, "text": 0.05}],
    "domains": {"code_side": 0.9, "prose_side": 0.3, "gap": [0.6, 0.5, 0.7], "accuracy": 0.85}
    | {"code_rise": [0.2, 0.1, 0.3], "prose_rise": [0.0, -0.1, 0.1]},
    "sides": copies(),
    "sweep": [],
    "ways": [
        {"pair": pair, "what": what, "generation": [0.95, 0.94, 0.96], "exchange": [0.96, 0.94, 0.98]}
        for pair in ("sizes", "generations")
        for what in ("number, A", "number, B", "share, A", "share, B")
    ],
}
ARGUMENTS = {
    "disagreement_far_above": {"measurement": "sizes", "most": 0.1, "ways": "ways"},
    "larger_disagrees_more": {"measurement": "long", "least": 3},
    "maps_more_inputs": {"measurement": "capability"},
    "low_loss_repeats": {"measurement": "repetition", "z": "sizes", "least": 0.5},
    "composition_tells": {"measurement": "domains", "least": 0.2},
    "one_sided_copies": {"measurement": "sides", "sweep": "sweep", "levels": 2, "draws": 1},
}


def verdict(tmp_path, name, spoil=lambda m: None):
    measurements = copy.deepcopy(MEASUREMENTS)
    spoil(measurements)
    experiment = {"name": "planted", "profile": "default", "pairs": [], "measurements": measurements}
    return PREDICATES[name](Evidence(experiment, Store(tmp_path)), **ARGUMENTS[name])


@pytest.mark.parametrize("name", ARGUMENTS)
def test_planted_measurements_hold(tmp_path, name):
    judged = verdict(tmp_path, name)
    assert judged.status == HOLDS
    assert judged.ours
    assert judged.why


def put(*path, value):
    def spoil(measurements):
        target = measurements
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return spoil


@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        ("disagreement_far_above", put("sizes", "by_count", value=ratio([1.0, 0.2, 0.01, 1.1])), "PA_AB for one of"),
        ("disagreement_far_above", put("sizes", "by_count", value=ratio([1.0, 0.01, 0.2, 1.1])), "PA_BA for one of"),
        (
            "disagreement_far_above",
            put("ways", 2, "exchange", value=[0.90, 0.89, 0.91]),
            "two ways to draw differ in share, A of sizes by 3.5 joint intervals",
        ),
        (
            "larger_disagrees_more",
            put("long", "by_count", value=ratio([1.0, 0, 0, 2.0])),
            r"1 below 3 .* 1.8 to 2.2",
        ),
        ("maps_more_inputs", put("capability", 0, "held_out", value=[2.8, 3.2]), "inputs of small, of lower loss"),
        ("low_loss_repeats", put("repetition", 0, "lowest", value=0.4), "repetition of small at the lowest loss: 0.1"),
        ("low_loss_repeats", put("repetition", 0, "in_z", value=0.9), "no more repetition"),
        ("composition_tells", put("domains", "gap", value=[0.1, 0.05, 0.15]), "difference of the two sides: 0.1 below"),
        ("composition_tells", put("domains", "accuracy", value=0.7), "right on held-out text: 0.1 below 0.8"),
        ("one_sided_copies", put("sides", 0, "below_b", value=[0.4, 0.3, 0.45]), "B's inputs below 0, noise 0.001"),
        ("one_sided_copies", put("sides", 1, "below_a", value=[0.4, 0.3, 0.45]), "A's inputs below 0, noise 1e-05"),
        ("one_sided_copies", put("sides", 2, "below_b", value=[0.7, 0.6, 0.8]), "B's inputs below 0, stranger"),
    ],
)
def test_each_reason_to_fail_is_seen(tmp_path, name, spoil, words):
    judged = verdict(tmp_path, name, spoil)
    assert judged.status == FAILS
    assert re.search(words, judged.why)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("disagreement_far_above", put("sizes", "by_count", "high", 1, value=0.2)),
        ("disagreement_far_above", put("sizes", "by_count", "high", 2, value=None)),
        ("larger_disagrees_more", put("long", "by_count", "low", 3, value=2.5)),
        ("larger_disagrees_more", put("long", "by_count", "low", 3, value=None)),
        ("maps_more_inputs", put("capability", 0, "log10_more", value=[0.2, -0.1, 0.3])),
        ("composition_tells", put("domains", "gap", value=[0.6, 0.1, 0.7])),
        ("one_sided_copies", put("sides", 0, "below_b", value=[0.6, 0.4, 0.8])),
        ("one_sided_copies", put("sides", 2, "below_b", value=[0.4, 0.3, 0.6])),
    ],
)
def test_a_bar_inside_the_interval_is_neither_passed_nor_missed(tmp_path, name, spoil):
    assert verdict(tmp_path, name, spoil).status == WITHIN_SPREAD


NAN = float("nan")
PLANTS = {
    "D5 and D7: hardly any disagreement on B's inputs": (
        "disagreement_far_above",
        put("sizes", "by_count", value=ratio([1.0, 0.02, 0.05, 0.01])),
    ),
    "D5 and D7: one draw of each model": ("disagreement_far_above", put("sizes", "effective", value=[1.0, 1.0])),
    "D5 and D7: replica exchange gives no number": ("disagreement_far_above", put("ways", value=[])),
    "D5 and D7: replica exchange finds another number of inputs": (
        "disagreement_far_above",
        put("ways", 0, "exchange", value=[1.3, 1.25, 1.35]),
    ),
    "D5 and D7: both ways are of another pair": ("disagreement_far_above", lambda m: m.update(ways=m["ways"][4:])),
    "D5 and D7: a way gives no number": ("disagreement_far_above", put("ways", 1, "exchange", value=[NAN, NAN, NAN])),
    "D5 and D7: no number": ("disagreement_far_above", put("sizes", "by_count", "high", 1, value=NAN)),
    "D6: one draw of each model": ("larger_disagrees_more", put("long", "effective", value=[900.0, 1.0])),
    "D6: no number": ("larger_disagrees_more", put("long", "by_count", "low", 3, value=NAN)),
    "D8: no pair": ("maps_more_inputs", put("capability", value=[])),
    "D8: one pair twice": (
        "maps_more_inputs",
        lambda m: m["capability"].append(m["capability"][0]),
    ),
    "D8: held-out losses that differ by chance": (
        "maps_more_inputs",
        put("capability", 0, "apart", value=[-0.01, -0.05, 0.03]),
    ),
    "D8: no number": ("maps_more_inputs", put("capability", 0, "log10_more", value=[NAN, NAN, NAN])),
    "D9: no model": ("low_loss_repeats", put("repetition", value=[])),
    "D9: text repeats as much": ("low_loss_repeats", put("repetition", 0, "text", value=0.9)),
    "D9: losses that are typical": ("low_loss_repeats", put("repetition", 0, "nll", value=2.5)),
    "D9: no number": ("low_loss_repeats", put("repetition", 0, "lowest", value=NAN)),
    "D10: both sides are mostly code": (
        "composition_tells",
        lambda m: m["domains"].update(code_side=0.99, prose_side=0.7, gap=[0.29, 0.25, 0.33]),
    ),
    "D10: the more disputed, the less of its kind": (
        "composition_tells",
        put("domains", "code_rise", value=[-0.2, -0.3, -0.1]),
    ),
    "D10: no number": ("composition_tells", put("domains", "gap", value=[NAN, NAN, NAN])),
    "D12: no pair that is no copy": ("one_sided_copies", put("sides", value=copies()[:2])),
    "D12: one level of noise": ("one_sided_copies", lambda m: m["sides"].pop(1)),
    "D12: another draw of the noise lies on the other side": (
        "one_sided_copies",
        lambda m: m["sides"].append(side("noise 0.001, 2", "noise", [0.3, 0.2, 0.4], [0.4, 0.3, 0.45])),
    ),
    "D12: one copy twice": ("one_sided_copies", lambda m: m["sides"].append(m["sides"][0])),
    "D12: strangers are one-sided, the other way": (
        "one_sided_copies",
        put("sides", 2, "below_a", value=[0.05, 0.0, 0.1]),
    ),
    "D12: no number": ("one_sided_copies", put("sides", 2, "below_b", value=[NAN, NAN, NAN])),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_broken_claim_does_not_hold(tmp_path, plant):
    """Evidence in which the claim is false while single numbers of it look right."""
    assert verdict(tmp_path, *PLANTS[plant]).status != HOLDS


def test_without_counts_r3_decides(tmp_path):
    def spoil(measurements):
        measurements["sizes"] |= {"by_count": {"error": "weights are known up to a factor only"}}
        measurements["sizes"]["by_r3"] = ratio([1.0, 0.02, 0.01, 1.1])

    assert verdict(tmp_path, "disagreement_far_above", spoil).status == HOLDS


@pytest.mark.parametrize("name", ["disagreement_far_above", "larger_disagrees_more"])
def test_without_any_ratio_it_was_not_run(tmp_path, name):
    def spoil(measurements):
        for way in ("by_r3", "by_count"):
            measurements[ARGUMENTS[name]["measurement"]][way] = {"error": "R3 is empty"}

    judged = verdict(tmp_path, name, spoil)
    assert judged.status == NOT_RUN
    assert "R3 is empty" in judged.why


def test_without_copies_the_pattern_was_not_run(tmp_path):
    assert verdict(tmp_path, "one_sided_copies", put("sides", value=copies()[2:])).status == NOT_RUN
    assert verdict(tmp_path, "one_sided_copies", put("sides", value=copies()[:2])).status == NOT_RUN
