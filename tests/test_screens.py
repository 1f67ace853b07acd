"""Screens of 80 columns: each command answers first, nothing is wider than the terminal, and no word is broken."""

import re
from itertools import product

import pytest

from provlab.cli import COMMANDS

WORDS = re.compile(r"[\w-]+")


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of so many columns."""

    def columns(width):
        monkeypatch.setenv("COLUMNS", str(width))

    return columns


def widest(text):
    return max(map(len, text.splitlines()))


LISTS = ["help", *(f"help {name}" for name in COMMANDS), "zoo list", "disguise --list", "run --list", "claims -v"]


@pytest.mark.parametrize(("line", "width"), [*product(LISTS, (80, 120)), ("run --list", 40)])
def test_nothing_is_wider_than_the_terminal_and_words_are_whole(run, terminal, monkeypatch, tmp_path, line, width):
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path))
    terminal(1000)
    _, wide, _ = run(*line.split())
    terminal(width)
    status, out, _ = run(*line.split())
    assert status == 0
    assert widest(out) <= width
    assert not re.search(r" $", out, re.MULTILINE)
    assert {*WORDS.findall(out)} <= {*WORDS.findall(wide)}


@pytest.mark.parametrize(
    ("line", "most"), [("zoo list", 23), ("run --list", 39), ("claims", 23), ("zoo list striped", 23)]
)
def test_a_list_is_read_in_one_screen(run, terminal, monkeypatch, tmp_path, line, most):
    """A screen has 24 lines, and the prompt takes one; all pages of the study need one of 40."""
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path))
    terminal(80 if most == 23 else 120)
    assert len(run(*line.split())[1].splitlines()) <= most


def test_answers_come_first(run, terminal):
    terminal(80)
    assert re.match(
        r"\d+ attacks keep the outputs \(exact\), \d+ change them \(lossy\)\.\n", run("disguise", "--list")[1]
    )
    assert re.match(
        r"\d+ of \d+ models of the edition smoke are built\.\n", run("zoo", "list", "--edition", "smoke")[1]
    )
    planned = " ".join(run("plan", "shape:tiny*2", "--statistic", "phi_u")[1].split())
    assert re.match(r"2 models: about .* with .* of memory, .* to fetch\. models 2 units of work", planned)
    assert re.match(r"about .* on this machine's cores[^;]*; .* of memory", run("plan", "shape:tiny*2", "--diff")[1])
    assert run("help", "compare")[1].splitlines()[:7] == [
        "Usage: provlab compare [OPTIONS] A B",
        "",
        "Were two models trained independently? One sentence, the tests, and what would",
        "fool them.",
        "",
        "example: provlab compare zoo:oak zoo:oak-chat --statistic phi_u",
        "",
    ]


def test_a_disguise_says_what_it_keeps_and_what_to_ask(run, models, tmp_path, terminal):
    terminal(80)
    status, out, _ = run("disguise", models["base"], tmp_path / "new", "--with", "T2")
    assert status == 0
    words = " ".join(out.split())
    assert words.startswith(f"{tmp_path / 'new'}: {models['base']} by T2, outputs unchanged. proof outputs up to")
    assert words.endswith("says what is found")
    assert widest(out) <= 80


def test_a_word_that_fits_is_not_broken_where_another_column_could_be_narrower(run, terminal, capsys):
    from provlab.cli.screen import show
    from provlab.report.card import Card
    from provlab.report.views import Table

    terminal(60)
    name = "an-organisation/a-model-of-some-size"
    show(Card("Here.", body=[Table(("model", "what it does"), [(name, "says a few things " * 9)])]))
    out = capsys.readouterr().out
    assert name in out
    assert widest(out) <= 60


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (80, ["test", "log10 p", "to its floor", "floor", "units agree"]),
        (59, ["test", "log10 p", "floor", "units agree"]),
        (40, ["test", "log10 p", "units agree"]),
        (30, ["test", "log10 p"]),
    ],
)
def test_a_narrow_terminal_loses_bars_first_then_floors_and_no_name_folds(terminal, capsys, width, kept):
    from provlab.cli.screen import show
    from provlab.report.card import BarCell, Card
    from provlab.report.views import Table

    terminal(width)
    names = ("phi_u", "phi_match_unsigned")
    rows = [(name, "-1,086.6", BarCell.of(0.5), "-1,802.7", "95.1%") for name in names]
    header = ("test", "log10 p", "to its floor", "floor", "units agree")
    show(Card("Here.", body=[Table(header, rows, right=(1, 3, 4))]))
    out = capsys.readouterr().out
    assert widest(out) <= width
    assert all(re.search(rf"^{name} ", out, re.MULTILINE) for name in names)
    assert ("━" in out) == ("to its floor" in kept)
    assert ("-1,802.7" in out) == ("floor" in kept)
    assert ("95.1%" in out) == ("units agree" in kept)
    assert out.count("-1,086.6") == 2


def test_a_name_stays_whole_where_words_behind_it_must_break(terminal, capsys):
    from provlab.cli.screen import show
    from provlab.report.card import Card
    from provlab.report.views import Table

    terminal(40)
    show(
        Card(
            "Here.", body=[Table(("page", "title"), [("an_experiment_of_a_name", "incomprehensibilities everywhere")])]
        )
    )
    out = capsys.readouterr().out
    assert "an_experiment_of_a_name" in out
    assert widest(out) <= 40
