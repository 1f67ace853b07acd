"""A result in one screen: the answer first, at the terminal's width, whole words, plain in a pipe."""

import io
import sys

import pytest
from planted import comparison, record

from provlab.cli import screen
from provlab.engine.lineage import Lineage
from provlab.forest.result import BRIDGE, MERGE, Edge, Family, Forest
from provlab.report import card
from provlab.report.study_report import StudyReport
from provlab.statistics.base import Options

KIN = {"phi_u": -250.0, "phi_h": -251.0, "phi_l2": -2.0, "phi_match": -240.0, "phi_unseen": -90.0}
STRANGERS = {"phi_u": -0.4, "phi_h": -0.1, "phi_l2": -0.3, "phi_match": -0.2, "phi_match_unsigned": "needs a gate"}


def shown(report, monkeypatch, columns=80, verbose=False, encoding="utf-8"):
    """What a terminal of so many columns would get from a pipe, a line each."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", str(columns))
    screen.show(report, verbose=verbose)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding).splitlines()


@pytest.mark.parametrize("columns", [80, 100, 140])
@pytest.mark.parametrize("log10_p", [KIN, STRANGERS, {"phi_u": -250.0}, {"phi_unseen": -90.0, "phi_u": -0.1}])
def test_the_answer_takes_one_screen_at_any_width_and_breaks_no_word(log10_p, columns, monkeypatch):
    report = comparison(log10_p)
    lines = shown(report, monkeypatch, columns)
    assert len(lines) <= 20
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("/a and /b: ")
    words = set(str(report).split()) | {"no", "-v"}
    for name in log10_p:
        assert any(line.split()[0] == name for line in lines if line), words


def test_what_was_refused_is_said_and_what_follows_from_it(monkeypatch):
    text = " ".join(" ".join(shown(comparison(STRANGERS), monkeypatch)).split())
    assert "not run" in text
    assert "needs a gate" in text
    assert "could not be tested; this is no acquittal" in text


def test_the_whole_result_is_one_option_away(monkeypatch):
    report = comparison(KIN)
    assert "Assumed by" not in "\n".join(shown(report, monkeypatch))
    whole = "\n".join(shown(report, monkeypatch, verbose=True))
    assert "Assumed by" in whole
    assert " ".join(report.verdict().split()) in " ".join(whole.split())


def test_a_stream_of_few_letters_gets_bars_and_trees_of_its_own(monkeypatch):
    assert "━" in "\n".join(shown(comparison(KIN), monkeypatch))
    assert "################" in "\n".join(shown(comparison(KIN), monkeypatch, encoding="ascii"))
    assert "`-- b" in "\n".join(shown(forest(), monkeypatch, encoding="ascii"))


def test_no_colour_in_a_pipe(monkeypatch):
    assert "\x1b" not in "\n".join(shown(comparison(KIN), monkeypatch))


def forest():
    edges = (Edge("a", "b", "later", "rows", "rows", ""), Edge("b", "c", "near", "estimated", None, ""))
    families = (Family(("a", "b", "c"), edges, ("a",), ("A note.",)), Family(("d",)))
    return Forest((), families, ("phi_u",), (), 2.0, (), Options())


def test_a_tree_is_drawn_as_one(monkeypatch):
    lines = shown(forest(), monkeypatch)
    assert lines[0] == "4 models: 1 family of related models, 1 alone."
    assert lines[2:5] == ["a", "└── b  (later; parent may not be given)", "    └── c  (near; parent may not be given)"]


def test_each_parent_of_each_merge_and_both_families_of_a_bridge_are_drawn(monkeypatch):
    """Two merges in one family: each edge once, in the tree or below it."""
    near = [Edge("a", other, "later", "rows", "rows", "") for other in "bc"]
    merged = [Edge(parent, merge, MERGE, "rows", "rows", "") for merge in "mn" for parent in "cb"]
    between = tuple(Edge(other, "x", BRIDGE, "families", None, "") for other in ("b", "d"))
    families = (Family((*"abcmn",), (*near, *merged), ("a",)), Family(("d", "e")), Family(("x",), between))
    lines = shown(Forest((), families, ("phi_u",), (), 2.0, (), Options()), monkeypatch)
    tree = [line.strip("│├└─ ").partition("  (")[0] for line in lines[2:] if line]
    assert tree[:5] == ["a", "b", "m", "n", "c"]
    assert tree[5:10] == [
        *("m is a merge of c", "n is a merge of c"),
        *("x", "x is related to the family of b", "x is related to the family of d"),
    ]


def test_a_study_names_families_then_pairs_and_also_those_that_are_not_rejected(monkeypatch):
    records = tuple(
        record(name, value if pair == ("a", "b") else -0.3, pair)
        for pair in (("a", "b"), ("a", "c"), ("b", "c"))
        for name, value in {"phi_u": -250.0, "phi_match": -240.0}.items()
    )
    models = tuple({"source": source, "name": source, "digest": source} for source in "abc")
    report = StudyReport(
        models, records, Options(), sources=("a", "b", "c"), statistics=("phi_u", "phi_match"), lineage=Lineage.of(())
    )
    lines = shown(report, monkeypatch)
    assert lines[0].startswith("3 models, 3 pairs: ")
    assert "family: a, b" in lines
    assert sum("Holm" in line for line in lines) == 1
    assert any(line.startswith("a, b ") for line in lines)


def test_a_long_sentence_is_cut_between_words_and_says_how_many_more_there_are():
    text = card.in_short(["word " * 60, "another"], 40)
    assert text == "word word word word ... (1 more: -v)" or text.endswith("... (1 more: -v)")
    assert len(text) <= 40
    assert card.in_short([]) == ""
