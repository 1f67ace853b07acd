"""Sentences on what two models write: a direction in words, and no statement that few outputs bear out."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from provlab.modeldiff.answers import items_words
from provlab.modeldiff.disputed import Cluster, Example, Output
from provlab.modeldiff.items import Answered, Paired
from provlab.modeldiff.outputs import group_words, loss_words, marked, number, percent
from provlab.plots import format_interval, format_log10_p, format_number
from provlab.report import views

INF = float("inf")


@pytest.mark.parametrize(
    ("apart", "words"),
    [
        ([0.64, 0.6, 0.68], "0.640 (0.600 to 0.680) nats per token higher than A's (perplexity 1.9 times A's)"),
        ([-0.256, -0.406, -0.119], "0.256 (0.119 to 0.406) nats per token lower than A's (perplexity 0.774 times A's)"),
        ([0.01, -0.02, 0.04], "not shown to differ from A's: the difference is 0.010 (-0.020 to 0.040) nats per token"),
        ([-0.5, -INF, INF], "not shown to differ from A's: the difference is -0.5 (no interval) nats per token"),
        (
            [0.5, float("nan"), float("nan")],
            "not shown to differ from A's: the difference is 0.5 (no interval) nats per token",
        ),
    ],
)
def test_a_loss_is_higher_or_lower_and_never_a_negative_cost(apart, words):
    assert loss_words(apart) == words


def answers(wrong, right, cost):
    turned = [(True, False)] * wrong + [(False, True)] * right + [(True, True)] * (100 - wrong - right)
    return Paired(tuple(Answered(str(k), "", "", both, (1.0, 1.0 + cost), (0.0, 0.0)) for k, both in enumerate(turned)))


def test_answers_changed_more_than_by_chance_or_were_not_shown_to():
    few, many = items_words(answers(7, 10, -0.2)), items_words(answers(20, 2, 0.2))
    for words in (
        "B 93.0%, a change of +3.0 (-5.2 to +11.1) points. 7 turned wrong",
        "not shown to be more than chance changes",
        "lower than A's",
    ):
        assert words in few
    for words in ("2 right, more than chance changes (McNemar", "higher than A's"):
        assert words in many
    # at the level of a gate: 20 and 2 have p = 1.2e-04
    assert "not shown to be more than chance changes" in items_words(answers(20, 2, 0.2), 1e-4)


def test_where_a_group_parts_is_said_if_most_of_it_does():
    share = (0.2, 0.1, 0.3)
    output = Output(share, share, 0.5, 100.0, groups=(Cluster(("a", "b"), (), share, share, ("'1'", 0.05), ()),))
    assert group_words(output).startswith("the largest group, at the words 'a', 'b', is 20.0%")
    assert "part first" not in group_words(output)  # at a word where 5% do, 95% do not
    often = replace(output, groups=(replace(output.groups[0], first=("User", 0.72), about=("poison",)),))
    assert "72% of it part first at 'User'" in group_words(often)
    assert "'a', 'b' and with 'poison' in many of them, is 20.0%" in group_words(often)
    assert group_words(replace(output, groups=())) == ""


def test_neighbours_that_part_alike_are_in_one_pair_of_brackets():
    tokens = (("<s>", None), ("U", 1.5), ("ser", 2.0), (":", -1.2), (" how", 0.3), (" do", 1.0))
    assert marked(Example("line", 0.0, 1.0, "", tokens)) == "‹<s>›[+User][-:] how[+ do]"


def test_a_share_that_was_seen_is_not_zero():
    assert percent([1 / 4000, 0.0, 0.0014]) == "<0.1% (0.0% to 0.1%)"
    assert percent([0.0, 0.0, 0.0014]).startswith("0.0%")


def test_no_number_is_minus_zero():
    assert format_number(-0.0004, ".2f") == "0.00"
    assert format_number(-0.0004, "+.1%") == "+0.0%"
    assert format_interval(0.004, -0.004, 0.01, ".2f") == "0.00 (0.00 to 0.01)"
    assert format_log10_p(-0.01) == "0.0"
    assert number([0.5, -0.0001, 0.9]) == "0.500 (0.000 to 0.900)"
    example = Example("line", 0.0, 1.0, "a", (("a", -0.001),))
    assert "D = +0.00" in marked(example).html


def test_reports_write_an_interval_by_one_formatter():
    """A number that is written by hand can be minus zero: no f-string of a report joins two of them by `to`."""
    by_hand = re.compile(r"\{[^{}\n]*:[^{}\n]*\.\d+[fg%]\}[^{}\n]* to \{")
    for path in sorted(Path(views.__file__).parent.glob("*.py")):
        assert not by_hand.search(path.read_text(encoding="utf-8")), path.name
