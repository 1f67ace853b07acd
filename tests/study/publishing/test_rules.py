"""The digest of a claim's rule changes with the rule, and with nothing else."""

import importlib
import sys
import textwrap
from dataclasses import replace

import pytest

from provlab import statistics, zoo
from provlab_study.publishing import claims, rules

RULE = """
    from collections.abc import Sequence
    from provlab.inference import pvalues
    from provlab_study.publishing import evidence

    BAR = 0.5
    UNUSED = 1

    def judged(values: "Sequence[float]") -> bool:
        '''Whether it holds.'''
        from provlab_study.publishing.claims import words
        return helper(values) < BAR and bool(evidence.Bar) and bool(words)

    def helper(values):
        return sum(values)  # in floats

    def other():
        return pvalues.holm([0.0])
"""


@pytest.fixture
def digest_of(tmp_path, monkeypatch):
    """Return a function that takes the text of a module of the project and gives the digests of its `judged`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(rules, "_PACKAGES", ("provlab", "provlab_study", "a_chapter"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def digests(text):
        for name in [name for name in sys.modules if name.startswith("a_chapter")]:
            del sys.modules[name]
        (tmp_path / "a_chapter.py").write_text(textwrap.dedent(text), encoding="utf-8")
        importlib.invalidate_caches()
        rules._read.cache_clear()
        return rules.code_of_rule(importlib.import_module("a_chapter").judged)

    yield digests
    sys.modules.pop("a_chapter", None)
    rules._read.cache_clear()


def test_a_rule_is_what_its_predicate_reaches_by_name(digest_of):
    reached = digest_of(RULE)
    assert {"a_chapter.judged", "a_chapter.helper", "a_chapter.BAR"} <= set(reached)
    assert {"provlab_study.publishing.evidence.Bar", "provlab_study.publishing.claims.words"} <= set(reached)
    assert not {"a_chapter.other", "a_chapter.UNUSED"} & set(reached)
    assert not any(name.startswith("provlab.inference.pvalues.holm") for name in reached)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("'''Whether it holds.'''", "'''Another docstring.'''"),
        ("  # in floats", ""),
        ('"Sequence[float]"', "object"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("[0.0]", "[-1.0]"),
    ],
)
def test_words_and_what_is_not_reached_do_not_count(digest_of, was, becomes):
    assert was in RULE
    assert digest_of(RULE.replace(was, becomes)) == digest_of(RULE)


@pytest.mark.parametrize(("was", "becomes"), [("BAR = 0.5", "BAR = 0.6"), ("< BAR", "<= BAR"), ("sum(", "max(")])
def test_a_bar_a_comparison_or_a_helper_counts(digest_of, was, becomes):
    assert was in RULE
    assert digest_of(RULE.replace(was, becomes)) != digest_of(RULE)


INDIRECT = """
    import re
    from dataclasses import dataclass
    from functools import partial
    from pathlib import Path

    @dataclass
    class Limits:
        least: float

    def at_least(bar):
        def holds(value):
            return value > bar
        return holds

    LIMITS = Limits(0.1)
    LAMBDA, OTHER = (lambda v: v > 0.2), (lambda v: v > 0.3)
    CLOSURE = at_least(0.4)
    PARTIAL = partial(max, 0.5)
    PATTERN = re.compile("six")
    TABLE = {"first": 0.7, "by": LAMBDA}
    TABLE["second"] = 0.8
    SEEN = {}

    def judged(values, bar=0.9):
        SEEN[len(SEEN)] = object()
        text = Path(__file__).with_name("a_table.csv").read_text()
        return LIMITS, LAMBDA, OTHER, CLOSURE, PARTIAL, PATTERN, TABLE, SEEN, text
"""


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("Limits(0.1)", "Limits(0.11)"),
        ("v > 0.2", "v > 0.22"),
        ("v > 0.3", "v > 0.33"),
        ("at_least(0.4)", "at_least(0.44)"),
        ("value > bar", "value >= bar"),
        ("max, 0.5", "max, 0.55"),
        ('"six"', '"seven"'),
        ('"first": 0.7', '"first": 0.77'),
        ("= 0.8", "= 0.88"),
        ("bar=0.9", "bar=0.99"),
    ],
)
def test_a_bar_counts_wherever_it_stands(digest_of, was, becomes):
    assert INDIRECT.count(was) == 1
    before = digest_of(INDIRECT)
    assert digest_of(INDIRECT) == before
    assert digest_of(INDIRECT.replace(was, becomes)) != before


def test_a_table_that_a_rule_reads_counts_and_what_ran_before_does_not(digest_of, tmp_path):
    (tmp_path / "a_table.csv").write_text("bar\n0.5\n", encoding="utf-8")
    before = digest_of(INDIRECT)
    sys.modules["a_chapter"].judged([])
    rules._read.cache_clear()
    assert rules.code_of_rule(sys.modules["a_chapter"].judged) == before
    (tmp_path / "a_table.csv").write_text("bar\n0.6\n", encoding="utf-8")
    assert digest_of(INDIRECT) != before


def test_the_rules_are_the_same_when_statistics_were_loaded():
    claim = next(claim for claim in claims.load_claims() if claim["id"] == "I11")
    before = rules.rule_digest(claim, "default")
    for name in statistics.USUAL:
        statistics.get(name)
    rules._read.cache_clear()
    assert rules.rule_digest(claim, "default") == before


def test_a_claims_words_bars_and_budgets_count(monkeypatch):
    claim = next(claim for claim in claims.load_claims() if claim["id"] == "I1")
    before = rules.rule_digest(claim, "default")
    assert rules.rule_digest(dict(claim), "default") == before
    assert rules.rule_digest({**claim, "statement": claim["statement"] + " mostly"}, "default") != before
    assert rules.rule_digest({**claim, "predicate": {**claim["predicate"], "smallest": 0.5}}, "default") != before
    assert rules.rule_digest({**claim, "settled": {"rule": "a word about its history"}}, "default") == before
    monkeypatch.setattr(
        rules, "_plan", lambda profile: {"experiments": [{"notebook": "exchangeability", "parameters": {"n_pairs": 3}}]}
    )
    caches = (rules._budgets, rules._recipes, rules._judging)
    for cache in caches:
        cache.cache_clear()
    try:
        assert rules.rule_digest(claim, "default") != before
    finally:
        for cache in caches:
            cache.cache_clear()


def test_how_models_are_made_and_what_is_handed_to_the_predicate_count(monkeypatch):
    """Of the models that the page names, and their ancestors; the draw moves seeds, and no rule."""
    claim = next(claim for claim in claims.load_claims() if claim["id"] == "I22")
    recipes = zoo.families("default")
    cells = rules.judging(rules.find_notebook("pruning_forensics"), "I22")
    assert len(cells) == 1

    def told(cells=cells, **changed):
        made = {name: replace(recipe, **changed.get(name.replace("-", "_"), {})) for name, recipe in recipes.items()}
        monkeypatch.setattr(zoo, "families", lambda edition: made)
        monkeypatch.setattr(rules, "judging", lambda path, claim: cells)
        rules._recipes.cache_clear()
        rules._judging.cache_clear()
        return rules.rule_digest(claim, "default")

    before = told()
    assert told([f"{cells[0]}  # a comment"], spruce={"seed": 100_011}, toy_large={"steps": 1}) == before
    assert told(spruce={"steps": 1}) != before
    assert told([f"{cells[0]}\nmore = 1"]) != before
    rules._recipes.cache_clear()
    rules._judging.cache_clear()


def test_every_claim_has_a_rule():
    found = rules.rule_digests("default")
    assert set(found) == {claim["id"] for claim in claims.load_claims() if "default" in claim["profiles"]}
    assert len(set(found.values())) == len(found)
