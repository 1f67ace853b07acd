"""A result in one screen: the answer first, at the terminal's width, whole words, plain in a pipe."""

import io
import re
import sys

import pytest
from planted import comparison, record, says, sentence

from provlab.attest.kin import NOT_TESTED, TESTS, Kin
from provlab.cli import screen
from provlab.forest.result import BRIDGE, MERGE, Edge, Family, Forest
from provlab.report import card
from provlab.report.findings import WORDS
from provlab.report.lineage import Lineage
from provlab.report.study_report import StudyReport
from provlab.statistics.options import Options

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


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_a_card_does_not_grow_with_what_qualifies_it(columns, monkeypatch):
    reason = "no weights at this place are stored in a form that can be read, " * 8
    notes = [f"A note {k} on the files of this model, {reason}" for k in range(9)]
    report = comparison({**KIN, **{f"phi_{k}": f"{k} {reason}" for k in ("e", "jsd")}}, about={"notes": notes})
    lines = shown(report, monkeypatch, columns)
    assert len(lines) <= 22
    assert max(map(len, lines)) <= columns
    assert " ".join(lines).count("more: -v)") == 2


def test_by_order_alone_says_first_that_no_cause_is_named_and_what_to_ask_too(monkeypatch):
    text = " ".join(" ".join(shown(comparison({"phi_u": -250.0}), monkeypatch)).split())
    first, *_ = WORDS["may be"]["which"].split("{")
    assert f"may be {first}{WORDS['may be']['order']}" in text
    assert f"beside it {WORDS['beside it']['not_made']} may be" in text
    assert "ask too phi_match_unsigned, phi_match_all" in text


def test_the_card_names_whom_a_test_outside_the_family_would_accuse(monkeypatch):
    report = comparison({"phi_match_unsigned": -0.1, "phi_u": -250.0}, primary="phi_match_unsigned")
    assert says(report, "mind", "small", small="phi_u")
    text = " ".join(" ".join(shown(report, monkeypatch)).split())
    assert "saw nothing" not in text
    assert re.search(f"/a and /b: {sentence('answer', 'small', small='phi_u')}", text)


def test_what_was_refused_is_said_and_what_follows_from_it(monkeypatch):
    text = " ".join(" ".join(shown(comparison(STRANGERS), monkeypatch)).split())
    assert "not run" in text
    assert "needs a gate" in text
    assert re.search(sentence("answer", "untested"), text)


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


def test_neither_colours_nor_trailing_blanks_in_a_pipe(monkeypatch):
    for report in (comparison(KIN), comparison(STRANGERS), forest(), kin(20)):
        for verbose in (False, True):
            lines = shown(report, monkeypatch, verbose=verbose)
            assert lines == [line.rstrip() for line in lines]
            assert "\x1b" not in "".join(lines)


def test_the_whole_result_leaves_out_nothing_of_its_text(monkeypatch):
    """At a width at which no cell is folded, and without the dashes of rules and lists."""
    for report in (comparison(KIN), comparison(STRANGERS), forest(), kin(20)):
        whole = "".join(shown(report, monkeypatch, 400, verbose=True))
        assert [letter for letter in whole if letter not in " -"] == [
            letter for letter in str(report) if letter not in " -\n"
        ]


def kin(n):
    """The first ten of a shelf of n models are kin, and the others are not."""
    tests = [
        {
            "source": f"m{k}",
            "digest": f"d{k}",
            "test": test,
            "log10_p": -90.0,
            "agree": 40,
            "n": 64,
            "note": "",
            "error": None,
        }
        | {"adjusted_log10_p": -80.0 - k if k < 10 else 0.0, "same": "" if k else "identical"}
        for k in range(n)
        for test in TESTS
    ]
    return Kin("new", "d0", tuple(tests), ("m0",))


@pytest.mark.parametrize("columns", [80, 120])
def test_kin_on_a_large_shelf_take_one_screen(columns, monkeypatch):
    lines = shown(kin(300), monkeypatch, columns)
    assert len(lines) <= 22
    assert lines[0].startswith("new: kin of m0, m1, m2")
    text = "\n".join(lines)
    assert "\nm0     identical" in text
    assert "\nm7     kin" in text
    assert "m8  " not in text
    assert "Found 10 of 300 models of the shelf; 2 more: -v." in text
    assert "m0 is the same model, file by file" in text
    whole = "\n".join(shown(kin(300), monkeypatch, columns, verbose=True))
    assert "m299" in whole
    assert " ".join(whole.split()).count(NOT_TESTED[0]) == 1


def test_lists_of_the_whole_result_have_their_further_lines_set_in(monkeypatch):
    lines = shown(kin(1), monkeypatch, verbose=True)
    at = lines.index("Not tested") + 1
    assert lines[at].startswith("  - other blocks")
    assert lines[at + 1].startswith("    ")
    assert sum(line.startswith("  - ") for line in lines[at:]) == len(NOT_TESTED)


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
        for name, value in {"phi_u": -250.0, "phi_match_unsigned": -240.0}.items()
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
    assert "Not rejected: a, c; b, c." in lines


def test_a_long_sentence_is_cut_between_words_and_says_how_many_more_there_are():
    text = card.in_short(["word " * 60, "another"], 40)
    assert text == "word word word word ... (1 more: -v)" or text.endswith("... (1 more: -v)")
    assert len(text) <= 40
    assert card.in_short([]) == ""


def test_whole_sentences_are_taken_while_they_fit():
    assert card.in_short(["One.", "Two."]) == "One. Two."
    assert card.in_short(["one thing", "two things", "three things"], 34) == "one thing; two things (1 more: -v)"
