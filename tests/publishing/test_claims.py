"""The claims as data, and their predicates: each must be able to hold, and to fail for each of its reasons."""

import inspect
import json
from datetime import date
from itertools import combinations
from pathlib import Path
from shutil import get_terminal_size

import numpy as np
import pytest

from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab.publishing import claims
from provlab.publishing.evidence import Evidence
from provlab.publishing.results import Results
from provlab.publishing.scoreboard import scoreboard_table
from provlab.statistics import order

ROWS = claims.load_claims()
IDS = [row["id"] for row in ROWS]
PREDICATES = {row["predicate"]["name"]: claims.predicate(row) for row in ROWS}
FAMILIES = {"a": "A", "a1": "A", "a2": "A", "a11": "A", "b": "B", "c": "C", "d": "D", "e": "E"}
SIBLINGS = {("a1", "a2"), ("a2", "a11")}
BLOCKS = 4
ORDER = order.described({"norm": np.random.default_rng(0).normal(size=32)}, np.arange(32.0))  # of units left unsorted


# The table -----------------------------------------------------------------------------------------------------------


def test_ids_are_unique_and_all_claims_are_there():
    expected = [f"I{i}" for i in range(1, 26)] + [f"D{i}" for i in range(1, 14)] + [f"O{i}" for i in range(1, 4)]
    assert expected == IDS


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_every_row_is_whole(row):
    claims.check_row(row)
    assert row["paper"] in ("independence", "model-diff", "ours")
    assert row["statement"]
    assert row["source"]
    assert set(row["profiles"]) <= {"smoke", "default", "paper"}
    arguments = {key: value for key, value in row["predicate"].items() if key != "name"}
    inspect.signature(claims.predicate(row)).bind(None, **arguments)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"margins": "none"}, "claim I1 has the unknown key 'margins'"),
        ({"source": None}, "claim I1: source must be str"),
        ({"settled": {"rule": "wider", "look": "it failed"}}, "claim I1: settled lacks date"),
        ({"settled": {"rule": "wider", "look": "it failed", "date": "May"}}, "claim I1: settled: date must be date"),
        ({"settled": {"rule": "wider", "look": "", "date": date(2026, 5, 1), "by": "me"}}, "the unknown key 'by'"),
        ({"settled": "after a look"}, "claim I1: settled must be dict"),
        ({"same_records": "I2"}, "claim I1: same_records must be list"),
    ],
)
def test_a_row_with_a_fault_is_refused(fault, words):
    with pytest.raises(ParameterError, match=words):
        claims.check_row({**ROWS[IDS.index("I1")], **fault})


def test_rows_on_the_same_records_name_one_another():
    named = {row["id"]: set(row.get("same_records", [])) for row in ROWS}
    assert named["I4"] == {"I8", "I9"}
    assert all(name in named[other] for name, others in named.items() for other in others)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_published_values_resolve(row):
    shown = claims.published(row)
    assert shown.strip()
    assert "{" not in shown
    assert "}" not in shown


@pytest.mark.parametrize(
    "lookup",
    [
        {"table": "independence_table2", "where": {"theta_2": "none"}, "column": "p_U"},
        {"table": "independence_table2", "where": {}, "column": "p_U"},
    ],
    ids=["no cell", "several cells"],
)
def test_a_lookup_that_is_not_one_cell_is_refused(lookup):
    with pytest.raises(ParameterError, match=r"claim X1: .* matches [03] published values, not one"):
        claims.published({"id": "X1", "published": {"text": "{x}", "values": {"x": lookup}}})


def test_values_that_stand_in_the_paper():
    """By hand from the paper: Section 4.1 (69 pairs), Table 1 (log JSD), the abstract (37.5%)."""
    shown = {row["id"]: claims.published(row) for row in ROWS}
    assert shown["I4"].startswith("69 of 69 pairs, each p <2.2e-308; 141 independent")
    assert shown["I7"] == "log JSD of a dependent pair up to -10.24, of an independent pair down to -11.10"
    assert "37.5%" in shown["I9"]
    assert shown["I10"] == "p <2.2e-308; the other two 0.571 and 0.539"
    assert "750B" in shown["I9"]


def test_of_an_empty_store_nothing_was_run(tmp_path):
    rows = claims.evaluate(Results(tmp_path))
    assert [row["id"] for row in rows] == IDS
    assert {row["status"] for row in rows} == {"not run"}
    assert all(row["why"] and row["ours"] == "" and row["profile"] is None for row in rows)
    assert rows[3]["why"] == "run it: provlab run llama_tree"
    json.dumps(rows, allow_nan=False)
    text = claims.as_text(rows)
    assert text.startswith("41 claims: 0 hold, 0 hold post hoc, 0 within their spread, 0 fail, 41 not run")


def test_a_claim_is_not_judged_in_another_profile(tmp_path):
    store = Results(tmp_path)
    store.put_experiment("llama_tree", {"name": "llama_tree", "profile": "own", "pairs": [], "measurements": {}})
    row = next(row for row in claims.evaluate(store) if row["id"] == "I4")
    assert (row["status"], row["why"]) == ("not run", "cannot be judged in the profile own")


# Planted records -----------------------------------------------------------------------------------------------------


class Planted:
    """An experiment with good records, to be spoilt in one place."""

    def __init__(self, root):
        self.store = Results(root)
        self.rng = np.random.default_rng(5)
        self.measurements = {}
        self.units = {}  # (statistic, a, b) -> list of unit dicts
        self.errors = {}

    def pairs(self):
        return list(combinations(FAMILIES, 2))

    @staticmethod
    def dependent(a, b):
        return FAMILIES[a] == FAMILIES[b]

    def fill(self, statistic):
        uniform = iter(self.rng.permutation((np.arange(400) + 0.5) / 400))
        for a, b in self.pairs():
            self.units[statistic, a, b] = [
                self.unit(statistic, block, self.dependent(a, b), next(uniform)) for block in range(BLOCKS)
            ]
        return self

    @staticmethod
    def unit(statistic, block, dependent, p):
        log10_p = -20.0 if dependent else float(np.log10(p))
        unit = {
            "block": block,
            "value": 0.9,
            "log10_p": log10_p,
            "detail": {"floor": -60.0, "paper_log10_p": log10_p},
            "parameters": {},
        }
        if statistic == "phi_l2":
            rank = 0 if dependent else 5
            distances = [1.0] + [0.5] * rank + [2.0] * (99 - rank)
            unit["detail"] = {"distances": distances, "floor": -2.0, "order": [ORDER] * 2, "stream": [ORDER] * 2}
            unit["parameters"] = {"n_permutations": 99}
        if statistic == "phi_jsd":
            unit |= {"block": None, "value": 0.5 + 0.3 * p, "log10_p": None}
        return unit

    def set_p(self, statistic, a, b, log10_p):
        """Let every block of a pair have this p-value."""
        for unit in self.units[statistic, a, b]:
            unit["log10_p"] = log10_p

    def evidence(self):
        pairs = []
        for (statistic, a, b), units in self.units.items():
            error = self.errors.get((statistic, a, b))
            keys = [Results.key(statistic=statistic, a=a, b=b, block=unit["block"]) for unit in units]
            for key, unit in zip(keys, units, strict=True):
                self.store.put(key, unit)
            pairs.append(
                {
                    "a": a,
                    "b": b,
                    "statistic": statistic,
                    "dependent": self.dependent(a, b),
                    "siblings": (a, b) in SIBLINGS,
                    "error": error,
                    "keys": [] if error else keys,
                }
            )
        experiment = {"name": "planted", "profile": "default", "pairs": pairs, "measurements": self.measurements}
        return Evidence(json.loads(json.dumps(experiment)), self.store)


def tree(planted):
    for statistic in ("phi_u", "phi_h", "phi_l2", "phi_l2_blocks"):
        planted.fill(statistic)
    for a, b in planted.pairs():  # outputs do not tell: all pairs are equally far apart
        planted.units["phi_jsd", a, b] = [planted.unit("phi_jsd", None, False, 0.5)]
    planted.measurements = {
        "chain_of_trees": [["a", "b"], ["b", "c"], ["c", "d"], ["d", "e"]],
        "long_training": {"base": "a", "child": "a1", "grandchild": "a11", "share": 0.5},
        "ks_by_symmetry": {"phi_u": {"p": 0.4}, "phi_h": {"p": 0.4}},
        "example_one": {
            "independent": [(1 + i % 10) / 10 for i in range(500)],
            "dependent": [0.1] * 50,
            "n_permutations": 9,
        },
        "roles": {"base": "a", "leak": "a1", "controls": ["b", "c"]},
        "tail": tails([2001 / 10000, 4990 / 10000, 9010 / 10000]),
        "matchings": uniform(0.3, 0.8),
    }
    return planted


def tails(permtest):
    """Three matchings whose t tail is 0.2, 0.5 and 0.9, with these p-values by PERMTEST."""
    where = {"a": "a", "b": "b", "block": 0, "statistic": "phi_u", "T": 9999}
    return [
        {**where, "log10_p_t": np.log10(t), "log10_p_permtest": np.log10(p)}
        for t, p in zip((0.2, 0.5, 0.9), permtest, strict=True)
    ]


def uniform(all_pairs, disjoint, n_copies=999):
    """p-values of the tests that matchings of independent models are uniform: over all pairs, and disjoint ones."""
    rows = (("all pairs, per block", 24, all_pairs, n_copies), ("disjoint pairs", 2, disjoint, 0))
    return [
        {"statistic": "phi_u", "over": over, "n_pairs": n, "ks_p": p, "ks_p_law": p, "n_copies": copies}
        for over, n, p, copies in rows
    ]


ARGUMENTS = {
    "separates": {"statistic": "phi_u", "log10_p": -30, "level": 0.01, "ks": 0.01},
    "permtest_at_minimum": {
        "whole": "phi_l2",
        "by_block": "phi_l2_blocks",
        "measurement": "chain_of_trees",
        "fisher_log10_p": -4,
        "level": 0.01,
    },
    "does_not_separate": {"statistic": "phi_jsd", "level": 0.01},
    "siblings_found": {"statistics": ["phi_u", "phi_h"], "log10_p": -30, "level": 0.01},
    "long_training_found": {
        "measurement": "long_training",
        "statistics": ["phi_u", "phi_h"],
        "log10_p": -30,
        "share": 0.375,
        "level": 0.01,
    },
    "derives_from": {"measurement": "roles", "statistic": "phi_u", "log10_p": -30, "level": 0.01, "controls": 1},
    "permtest_uniform": {
        "measurement": "example_one",
        "min_pairs": {"smoke": 200, "default": 300},
        "min_tunes": 50,
        "smallest": 0.1,
    },
    "tail_agrees": {"measurement": "tail", "matchings": "matchings", "level": 0.01},
}


def fails_to_run(statistic):
    def spoil(planted):
        planted.errors[statistic, "b", "c"] = "no memory"

    return spoil


def set_p(statistic, a, b, log10_p):
    return lambda planted: planted.set_p(statistic, a, b, log10_p)


def measure(name, **entries):
    return lambda planted: planted.measurements[name].update(entries)


def only(*kept):
    def spoil(planted):
        planted.units = {key: units for key, units in planted.units.items() if {key[1], key[2]} <= set(kept)}

    return spoil


def jsd(dependent, independent):
    def spoil(planted):
        for a, b in planted.pairs():
            value = dependent if planted.dependent(a, b) else independent
            planted.units["phi_jsd", a, b][0]["value"] = value

    return spoil


def rank(a, b, below):
    def spoil(planted):
        for unit in planted.units["phi_l2", a, b]:
            unit["detail"]["distances"] = [1.0] + [0.5] * below + [2.0] * (99 - below)

    return spoil


FAULTS = [
    # predicate, what is spoilt, words of the reason
    (
        "separates",
        set_p("phi_u", "a", "a1", -1.0),
        "largest phi_u of a dependent pair: 28.3 above -30",
    ),
    ("separates", set_p("phi_u", "a", "b", -9.0), "Holm at 0.01 rejects 1 of 22 independent pairs by phi_u"),
    (
        "separates",
        measure("ks_by_symmetry", phi_u={"p": 0.004}),
        "KS p of the independent pairs: 0.006 below 0.01",
    ),
    ("separates", fails_to_run("phi_u"), "1 pairs could not be compared"),
    ("permtest_at_minimum", rank("a", "a1", 1), "1 dependent pairs"),
    ("permtest_at_minimum", set_p("phi_l2_blocks", "a", "a1", -0.5), "Fisher"),
    ("permtest_at_minimum", fails_to_run("phi_l2"), "1 pairs could not be compared"),
    ("does_not_separate", jsd(0.1, 0.5), "area under the curve: 0.01 above 0.99"),
    ("does_not_separate", jsd(0.5, 0.1), "area under the curve: 0.01 above 0.99"),
    ("does_not_separate", fails_to_run("phi_jsd"), "1 pairs could not be compared"),
    ("siblings_found", set_p("phi_u", "a1", "a2", -2.0), "largest phi_u of siblings"),
    ("siblings_found", set_p("phi_h", "a2", "a11", -2.0), "largest phi_h of siblings"),
    ("long_training_found", set_p("phi_h", "a", "a11", -2.0), "largest phi_h of the chain"),
    ("long_training_found", set_p("phi_u", "a", "a1", -2.0), "largest phi_u of the chain"),
    ("long_training_found", measure("long_training", share=0.2), "the child saw only 20.0% of its base's tokens"),
    ("derives_from", set_p("phi_u", "a", "a1", -2.0), "phi_u of a and a1: "),
    ("derives_from", set_p("phi_u", "a", "b", -9.0), "smallest phi_u of a control, by Holm: "),
    ("derives_from", set_p("phi_u", "b", "c", -9.0), "smallest phi_u of a control, by Holm: "),
    ("derives_from", measure("roles", leak="d"), "a and d are known to be independent"),
    ("derives_from", measure("roles", controls=["a2"]), "a and a2 are known to be related"),
    ("derives_from", fails_to_run("phi_u"), "phi_u has no value for"),
    ("permtest_uniform", measure("example_one", independent=[0.1] * 200 + [0.9] * 300), "p of uniformity"),
    ("permtest_uniform", measure("example_one", independent=[0.5] * 500), "p of uniformity"),
    ("permtest_uniform", measure("example_one", dependent=[0.1] * 49 + [0.2]), "1 fine-tunes above 1/10"),
    (
        "tail_agrees",
        lambda planted: planted.measurements.update(tail=tails([0.1, 0.5, 0.9])),
        "PERMTEST and the t tail differ by more than chance",
    ),
    (
        "tail_agrees",
        lambda planted: planted.measurements.update(matchings=uniform(0.001, 0.8)),
        "matchings of independent models are not uniform: phi_u, all pairs, per block",
    ),
    (
        "tail_agrees",
        lambda planted: planted.measurements.update(matchings=uniform(0.3, 0.001)),
        "matchings of independent models are not uniform: phi_u, disjoint pairs",
    ),
    (
        "tail_agrees",
        lambda planted: planted.measurements.update(matchings=uniform(0.3, 0.8, n_copies=99)),
        "too few copies for any of 2 tests to reject at 0.01",
    ),
]

NOT_RUN = [
    ("separates", lambda planted: planted.measurements.pop("ks_by_symmetry"), "not tested by relabelling trees"),
    ("separates", only("a", "a1"), "no pair of known dependence and independence"),
    ("permtest_at_minimum", only("b", "c"), "no pair of known dependence and independence"),
    ("does_not_separate", only("b", "c"), "no pair of known dependence and independence"),
    ("siblings_found", only("a", "a1"), "hold no siblings"),
    (
        "long_training_found",
        lambda planted: planted.measurements.update(long_training=None),
        "hold no child that is known to be trained on for so long",
    ),
    ("long_training_found", only("a", "b", "a2"), "was not compared"),
    ("derives_from", only(), "phi_u was not run on"),
    ("derives_from", measure("roles", controls=[]), "it takes the leak, its base and 1 controls"),
    ("permtest_uniform", measure("example_one", independent=[0.5] * 20), "20 pairs, 50 fine-tunes, T = 9; 300, 50"),
    (
        "tail_agrees",
        lambda planted: planted.measurements.update(tail=[]),
        "no pair of independent models was run through PERMTEST",
    ),
    (
        "tail_agrees",
        lambda planted: planted.measurements.update(matchings=[]),
        "no pair of independent models was run through PERMTEST",
    ),
]


@pytest.fixture
def planted(tmp_path):
    return tree(Planted(tmp_path))


def test_every_predicate_is_tested():
    """Here, or in the tests of the chapter, which plant faults for its predicates."""
    assert {name for name, *_ in FAULTS} == set(ARGUMENTS)
    beside = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("chapters/*/test_predicates.py")
    )
    assert [name for name in PREDICATES if name not in ARGUMENTS and name not in beside] == []


@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_a_good_record_holds(name, planted):
    verdict = PREDICATES[name](planted.evidence(), **ARGUMENTS[name])
    assert verdict.status == "holds", verdict
    assert verdict.ours
    assert verdict.why


@pytest.mark.parametrize(("name", "spoil", "reason"), FAULTS, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(FAULTS)])
def test_a_planted_fault_fails(name, spoil, reason, planted):
    spoil(planted)
    verdict = PREDICATES[name](planted.evidence(), **ARGUMENTS[name])
    assert verdict.status == "fails", verdict
    assert reason in verdict.why
    assert verdict.ours


@pytest.mark.parametrize(("name", "spoil", "reason"), NOT_RUN, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(NOT_RUN)])
def test_too_little_is_not_judged(name, spoil, reason, planted):
    spoil(planted)
    verdict = PREDICATES[name](planted.evidence(), **ARGUMENTS[name])
    assert (verdict.status, verdict.ours) == ("not run", "")
    assert reason in verdict.why


def test_ours_come_from_the_units_and_not_from_the_experiment(planted):
    """Values are aggregated again from the stored units by the statistic itself."""
    frame = planted.evidence().pairs.set_index(["statistic", "a", "b"])
    units = planted.units["phi_u", "b", "c"]
    expected = pvalues.fisher(np.array([unit["log10_p"] for unit in units]))
    assert frame.loc[("phi_u", "b", "c"), "log10_p"] == pytest.approx(expected)
    assert frame.loc[("phi_u", "b", "c"), "blocks"] == [unit["log10_p"] for unit in units]


def test_a_lost_unit_is_named(planted):
    evidence = planted.evidence()
    for path in planted.store.root.rglob("*.json"):
        path.unlink()
    with pytest.raises(
        ParameterError, match=r"unit [0-9a-f]{64} of experiment planted is no longer in .*; run it again"
    ):
        _ = evidence.pairs


def test_the_scoreboard_counts(planted):
    evidence = planted.evidence()
    experiment = {**evidence.experiment, "name": "llama_tree"}
    planted.store.put_experiment("llama_tree", experiment)
    rows = claims.evaluate(planted.store)
    statuses = {row["id"]: row["status"] for row in rows}
    assert [statuses[f"I{i}"] for i in range(4, 10)] == ["holds"] * 6
    assert statuses["I1"] == "not run"
    text = claims.as_text(rows)
    assert text.startswith("41 claims: 6 hold, 0 hold post hoc, 0 within their spread, 0 fail, 35 not run")
    assert max(map(len, text.splitlines())) <= get_terminal_size().columns
    assert len(text.splitlines()) == 2 + len(claims.load_claims())
    text = claims.as_text(rows, verbose=True)
    assert "published  " in text
    assert "ours         6 of 6 below -30" in text
    json.dumps(rows, allow_nan=False)


def test_a_rule_settled_after_a_look_is_told(planted, monkeypatch):
    planted.store.put_experiment("llama_tree", {**planted.evidence().experiment, "name": "llama_tree"})
    settled = {"rule": "the bar is -30", "date": date(2026, 5, 1), "look": "-12 was reached"}
    rows = [{**row, "settled": settled} if row["id"] in ("I1", "I4") else row for row in ROWS]
    monkeypatch.setattr(claims, "load_claims", lambda: rows)
    judged = {row["id"]: row for row in claims.evaluate(planted.store)}
    assert judged["I4"]["status"] == "holds_post_hoc"
    assert (judged["I4"]["rule"], judged["I4"]["date"]) == ("the bar is -30", "2026-05-01")
    assert "settled on 2026-05-01, after a look (-12 was reached): the bar is -30" in judged["I4"]["why"]
    assert judged["I4"]["same_records"] == ["I8", "I9"]
    assert judged["I1"]["status"] == "not run"  # only what holds can hold post hoc
    assert (judged["I5"]["status"], judged["I5"]["rule"], judged["I5"]["date"]) == ("holds", None, None)
    text = claims.as_text(list(judged.values()), verbose=True)
    assert "I4  holds post hoc" in text
    assert "records      rests on the same records as I8, I9" in text


def test_models_trained_once_are_named():
    """Models of one training and a verdict over replicates exclude each other, except where the sampler is repeated."""
    rows = {row["id"]: row for row in claims.load_claims()}
    assert rows["I4"]["trained_once"] == "the tree of 21 models"
    assert "trained once: the tree of 21 models" in scoreboard_table(
        [{"id": "I4", "status": "holds", "statement": "", "trained_once": rows["I4"]["trained_once"]}]
    )
    assert [name for name in ("I1", "I2", "I11", "I17", "I21", "I25") if "trained_once" in rows[name]] == []


def test_units_of_another_version_are_not_judged(planted):
    """A statistic aggregates a detail that its older units lack."""
    for a, b in planted.pairs():
        for unit in planted.units["phi_l2", a, b]:
            unit["detail"].pop("order")
    planted.store.put_experiment("llama_tree", {**planted.evidence().experiment, "name": "llama_tree"})
    row = next(row for row in claims.evaluate(planted.store) if row["id"] == "I6")
    assert row["status"] == "not run"
    assert row["why"] == "its records are those of another version: provlab run llama_tree"


def test_records_of_another_version_are_not_judged(tmp_path):
    """Fields that the chapter no longer measures: the claim says what to run, and the command goes on."""
    row = next(row for row in claims.load_claims() if row["id"] == "D5")
    experiment = {"name": "model_diff", "profile": "default", "pairs": [], "measurements": {"sizes": {"old": 1}}}
    verdict = claims._verdict(row, Evidence(experiment, Results(tmp_path)))
    assert verdict.status == "not run"
    assert verdict.why == "its records are those of another version: provlab run model_diff"
