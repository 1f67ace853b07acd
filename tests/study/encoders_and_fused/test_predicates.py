"""Claims I10, I13 and I14 (`derives_from`, `found_by_each`): they hold, and fail on evidence that breaks them."""

from itertools import combinations

import planted
import pytest

from provlab.engine.store import Store
from provlab_study.publishing.evidence import HOLDS, RunRecords

ROWS = {claim: planted.row(claim) for claim in ("I10", "I13", "I14")}
MODELS = ("base", "child", "other", "another")


class Planted:
    """log10 p of every pair of four models by every statistic, what is known of their origin, and their roles."""

    def __init__(self):
        self.log10_p = {frozenset(pair): -0.3 - i / 10 for i, pair in enumerate(combinations(MODELS, 2))}
        self.log10_p[frozenset(("base", "child"))] = -50.0
        self.known = dict.fromkeys(self.log10_p)
        self.controls = ["other", "another"]

    def set(self, first, second, value):
        self.log10_p[frozenset((first, second))] = value

    def judged(self, claim, folder):
        row, store, pairs = ROWS[claim], Store(folder), []
        statistics = row["predicate"].get("statistics", [row["predicate"].get("statistic")])
        for statistic in statistics:
            for pair, value in self.log10_p.items():
                a, b = sorted(pair)
                key = Store.key(a=a, b=b, statistic=statistic)
                detail = {"n": 256, "paper_log10_p": value, "agree": 3}
                kept = {"statistic": statistic, "block": 0, "value": 0.0, "log10_p": value, "detail": detail}
                kept["reach"] = -506.6
                store.put(key, {**kept, "parameters": {}})
                known = {"dependent": self.known[pair], "error": None}
                pairs.append({"a": a, "b": b, "statistic": statistic, "keys": [key], **known})
        others = "controls" if claim == "I10" else "strangers"
        roles = {"base": "base", "leak" if claim == "I10" else "child": "child", others: self.controls}
        measurements = {"roles": roles}
        return planted.judge(
            row, RunRecords({"profile": "default", "pairs": pairs, "measurements": measurements}, store)
        )


@pytest.mark.parametrize("claim", ROWS)
def test_a_pair_found_and_controls_left_alone_hold(claim, tmp_path):
    study = Planted()
    study.known[frozenset(("base", "child"))], study.known[frozenset(("base", "other"))] = True, False
    verdict = study.judged(claim, tmp_path)
    assert verdict.status == HOLDS
    assert "log10 p = -50.0, smallest of" in verdict.ours


def all_controls_at(value):
    def plant(study):
        for pair in study.log10_p:
            if pair != frozenset(("base", "child")):
                study.log10_p[pair] = value

    return plant


def known(first, second, dependent):
    return lambda study: study.known.__setitem__(frozenset((first, second)), dependent)


PLANTS = {
    "every control a little above Holm's first step": all_controls_at(-2.3),
    "every control at 0.011": all_controls_at(-1.96),
    "one control is found": lambda study: study.set("child", "other", -40.0),
    "the pair is not found": lambda study: study.set("base", "child", -20.0),
    "a control was not compared": lambda study: study.log10_p.pop(frozenset(("base", "other"))),
    "no control": lambda study: study.controls.clear(),
    "one control twice": lambda study: study.controls.__setitem__(1, "other"),
    "the child is its own control": lambda study: study.controls.__setitem__(1, "child"),
    "the pair is known to be independent": known("base", "child", False),
    "a control is known to be related": known("base", "other", True),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("claim", ROWS)
def test_a_broken_claim_does_not_hold(claim, plant, tmp_path):
    study = Planted()
    PLANTS[plant](study)
    assert study.judged(claim, tmp_path).status != HOLDS


def test_one_control_is_too_few_where_two_are_claimed(tmp_path):
    study = Planted()
    study.controls.pop()
    assert study.judged("I10", tmp_path).status != HOLDS
