"""Claims as a table, and as the README's picture: each status in words, and nothing of a claim lost."""

import calendar
import html
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from provlab.errors import InputError
from provlab.plots import legible
from provlab_study.publishing.claims import load_claims, words
from provlab_study.publishing.confirmation import Confirmation, Frozen, Row, of_study, read_frozen
from provlab_study.publishing.evidence import STATUSES
from provlab_study.publishing.scoreboard import (
    claims_in_short,
    confirmed_so_far,
    denied,
    fresh_draws,
    history,
    made_by,
    scoreboard_table,
    tiles,
)

BOOK = Path(__file__).parents[3] / "book"

CLAIMS = [
    {"id": "I1", "status": "holds", "statement": "a < b", "published": "1", "ours": "2"},
    {"id": "I2", "status": "fails", "statement": "c", "published": None, "ours": "", "why": "too small"},
    {"id": "I3", "status": "not run", "statement": "d", "published": "3", "ours": None, "link": "x.html"},
    {
        "id": "I4",
        "status": "holds, bar set after data",
        "statement": "e",
        "margin": "8 below <-30>",
        "same_records": ["I5", "I6"],
    },
    {"id": "I5", "status": "within_its_spread", "statement": "f", "replicates": "3 of 5"},
]


EXPERIMENTS = [
    {"machine": "one CPU, 2 cores", "commit": "0123456789abcdef+changes", "finished": "2026-05-02T10:00:00+00:00"},
    {"commit": None, "finished": "2026-05-01T10:00:00+00:00"},
]


@pytest.fixture(scope="module")
def pictures():
    return runpy.run_path(str(BOOK / "readme_pictures.py"))


def test_a_picture_says_where_its_records_come_from(pictures):
    label = made_by(EXPERIMENTS)
    assert label == (
        "a machine that was not recorded; one CPU, 2 cores · commit 012345678+changes, unknown · "
        "2026-05-01 to 2026-05-02"
    )
    assert made_by(EXPERIMENTS[1:]).endswith("commit unknown · 2026-05-01")
    figure = pictures["scoreboard"](CLAIMS, label)
    assert label in " ".join(text.get_text() for text in figure.figure.axes[0].texts)
    assert label in figure.caption


README = BOOK.parent / "README.md"
MADE_BY = re.compile(r"(\d+ claims: [^.]*)\. .* · commit (\S+) · .*\d{4}-\d\d-\d\d\.$")


def stated(title):
    """Counts, commit and day of a scoreboard's title, as the README writes them."""
    counts, commit = MADE_BY.match(title).group(1, 2)
    year, month, day = title.rstrip(".")[-10:].split("-")
    return counts, commit, f"{int(day)} {calendar.month_name[int(month)]} {year}"


def test_readme_says_what_its_pictures_show():
    """``make pictures`` draws them; its counts, commit and day are then to be written into the README."""
    words = " ".join(README.read_text(encoding="utf-8").split())
    title = Image.open(BOOK / "_assets" / "readme" / "scoreboard.png").text["Title"]
    counts, commit, day = stated(title)
    number, _, statuses = counts.partition(" claims: ")
    assert f"of {day} at commit {commit}, judged {number} claims: {statuses}." in words
    heatmap = Image.open(BOOK / "_assets" / "readme" / "heatmap.png").text
    pairs = re.search(r"of (\d+) pairs", heatmap["Title"])[1]
    assert f"Heatmap of all {pairs} pairs" in words
    assert "there is none" in heatmap["Title"]  # no mistake, as "they mirror each other" says


def test_readme_says_what_fresh_draws_said():
    """Word for word as the front page, whose sentences are computed from the table of fresh draws."""
    said = confirmed_so_far(of_study(), read_frozen()).split("</p>")
    words = " ".join(README.read_text(encoding="utf-8").split())
    for paragraph in filter(None, said):
        assert html.unescape(re.sub("<[^>]+>", "", paragraph)) in words


def test_readme_pictures_hold_the_claims_that_there_are():
    """Those of the last whole run; the README names each that came since."""
    shown = Image.open(BOOK / "_assets" / "readme" / "scoreboard.png").text["Description"]
    ids = re.findall(r"([IDO]\d+) ", shown)
    words = " ".join(README.read_text(encoding="utf-8").split())
    since = re.search(r"claims? \(([IDO\d, ]+)\) came since", words)
    assert sorted(ids + (since[1].split(", ") if since else [])) == sorted(claim["id"] for claim in load_claims())


def test_the_picture_of_all_claims_can_be_read(pictures):
    """Whatever the statuses: the longest words for one stand beside each statement."""
    longest = max(STATUSES, key=lambda status: len(words(status)))
    judged = [{"id": row["id"], "statement": row["statement"], "status": longest} for row in load_claims()]
    assert legible.faults(pictures["scoreboard"](judged, made_by(EXPERIMENTS)).figure) == []


def test_scoreboard_counts_and_says_each_status(pictures):
    figure = pictures["scoreboard"](CLAIMS, made_by(EXPERIMENTS))
    after_data = "1 hold by a bar set after data, 0 hold in an experiment changed after data"
    assert f"5 claims: 1 hold, {after_data}, 1 within their spread, 1 fail, 1 not run." in figure.caption
    shown = [t.get_text() for t in figure.figure.axes[0].texts]
    assert {"✓ holds", "(✓) holds, bar set after data", "≈ within its spread", "✗ fails", "– not run"} <= set(shown)
    with pytest.raises(
        InputError, match="none of holds, holds, bar set after data, holds, experiment changed after data, within"
    ):
        scoreboard_table([{**CLAIMS[0], "status": "maybe"}])


def test_scoreboard_table_is_safe_html_with_labels():
    table = scoreboard_table(CLAIMS)
    assert "a &lt; b" in table
    assert '<p class="why">too small</p>' in table
    assert '<a href="x.html">I3</a>' in table
    assert re.findall(r'<tr class="[a-z-]+" id="([^"]+)"', table) == [f"claim-I{i}" for i in range(1, 6)]
    assert table.count('data-label="Ours"') == 5
    for part in (
        '<tr class="holds-bar-set-after-data"',
        "(✓) holds, bar set after data",
        "margin: 8 below &lt;-30&gt;",
        "rests on the same records as I5, I6",
        '<tr class="within-its-spread"',
        "≈ within its spread",
        "holds in 3 of 5 replicates",
    ):
        assert part in table


def test_claims_in_short_fold_out_to_all_that_is_said():
    claims = [{**CLAIMS[0], "ours": "69 of 69 < 70; and more"}, *CLAIMS[1:]]
    table = claims_in_short(claims)
    assert "<details><summary>69 of 69 &lt; 70</summary><dl>" in table
    assert "<dd>69 of 69 &lt; 70; and more</dd>" in table
    assert "a &lt; b" in table
    assert re.findall(r'<tr class="[a-z-]+" id="([^"]+)"', table) == [f"claim-I{i}" for i in range(1, 6)]
    for claim in CLAIMS:
        for what in ("published", "ours", "margin", "why"):
            if claim.get(what):
                assert f"<dd>{html.escape(str(claim[what]))}</dd>" in claims_in_short([claim])
    strip = tiles(claims)
    assert re.findall(r'href="#([^"]+)"', strip) == [f"claim-I{i}" for i in range(1, 6)]
    assert 'aria-label="I1: ' in strip


def test_fresh_draws_stand_by_claim_and_draw():
    assert "<strong>0 of 1 claims are confirmed.</strong> Their rules are not frozen" in fresh_draws(
        {"I1": Confirmation(())}, ()
    )
    frozen = Frozen("2026-01-01", "a" * 40, "default", {"I1": "one", "I2": "two"})
    draws = frozen.draws
    assert "<table" not in fresh_draws({"I1": Confirmation(())}, (frozen,))
    statuses = {
        "I1": ["holds, experiment changed after data"] * 5,
        "I2": ["holds", "fails", "holds", "within_its_spread"],
    }
    confirmed = {
        claim: Confirmation(
            tuple(
                Row(
                    claim,
                    n,
                    one,
                    "0.8 < 1",
                    ".2 below",
                    "",
                    f"page_of_{claim}",
                    90.0,
                    "a" * 40,
                    "one CPU",
                    "2026-01-02",
                )
                for n, one in zip(draws, of, strict=False)
            )
        )
        for claim, of in statuses.items()
    }
    table = fresh_draws(confirmed, (frozen,))
    assert "<strong>1 of 2 claims are confirmed</strong> by fresh draws" in table
    assert "(2026-01-01, commit aaaaaaaaa)" in table
    assert f"1 on draw {max(draws)}" in table
    assert ": 1 hold in each of their draws, 0 in none, 1 in some." in table
    assert "It takes 5 draws at least." in table
    assert table.count("</summary>0.8 &lt; 1; margin: .2 below</details>") == 9
    assert f"<p>Draw {draws[0]}: 2 pages that ran 3 minutes one by one, beside others · one CPU · commit" in table
    assert "holds in half of them with 0.03: of 2 claims of the last kind, 0.1 on average" in table
    first, second = re.findall(r'<tr><th scope="row">(.*?)</tr>', table)
    assert first.count("✓ holds") == 5  # its rule was settled before these draws
    assert first.startswith('<a href="#claim-I1">I1</a>')
    assert first.endswith("<td>confirmed: holds in 5 of 5 fresh draws</td>")
    assert [second.count(word) for word in ("✓ holds", "✗ fails", "≈ within its spread", "– not run")] == [2, 1, 1, 1]
    assert second.endswith("<td>not confirmed: holds in 2 of 4 fresh draws</td>")


def test_rules_that_were_frozen_again_have_draws_of_their_own():
    first = Frozen("2026-01-01", "a" * 40, "default", {"I1": "one", "I2": "two"})
    again = Frozen("2026-02-02", "b" * 40, "default", {"I2": "longer"}, "Its runs <stopped>.")
    rest = ("holds", "0.8", "", "", "page", 90.0, "a" * 40, "one CPU", "2026-01-02")
    drawn = [Confirmation((Row(claim, draw, *rest),)) for claim, draw in (("I1", 1111), ("I2", 2222))]
    said = fresh_draws(dict(zip(("I1", "I2"), drawn, strict=True)), (first, again))
    assert "frozen before (2026-01-01, commit aaaaaaaaa; those of I2 on 2026-02-02, commit bbbbbbbbb)" in said
    assert "have another chance, which is not counted here" in said
    assert "Draw 1111: 1 page that ran 2 minutes" in said
    one, two = said.split("Frozen: ")[1:]
    assert ("claim-I1" in one, "claim-I2" in one, ">1111</th>" in one, ">2222</th>" in one) == (
        True,
        False,
        True,
        False,
    )
    assert ("claim-I1" in two, "claim-I2" in two, ">1111</th>" in two, ">2222</th>" in two) == (
        False,
        True,
        False,
        True,
    )
    assert "follow from these rules. Its runs &lt;stopped&gt;.</p>" in two


def test_what_fresh_draws_deny_has_what_was_seen_and_the_reason():
    def drawn(claim, *statuses):
        values = [(n, status, f"{n} & more", "it is <off>" if n > 6 else "") for n, status in enumerate(statuses, 5)]
        rest = ("", "one", "page", 9.0, "a" * 40, "one CPU", "2026-01-02")
        return Confirmation(tuple(Row(claim, n, status, ours, *rest, why) for n, status, ours, why in values))

    confirmed = {
        "I1": drawn("I1", "holds", "holds", "holds"),
        "I2": drawn("I2", "fails", "fails"),
        "I3": drawn("I3", "holds", "not run", "fails"),
        "I4": drawn("I4"),
        "I5": replace(drawn("I5", "holds"), earlier=drawn("I5", "fails").rows),
    }
    table = denied([{"id": claim, "statement": "all", "on_draws": "by chance"} for claim in confirmed], confirmed)
    first, before, second = re.findall(r'<tr class="fails"><th scope="row">(.*?)</tr>', table)
    assert before.startswith("I5")  # by a rule that was frozen before
    assert "holds in 1 of 1 fresh draws; by an earlier rule in 0 of 1" in before
    assert first.startswith("I3")  # it holds on some
    assert "holds in 1 of 2 fresh draws" in first
    assert '<p class="why">by chance</p>' in first
    assert "<details><summary>7, fails: it is &lt;off&gt;</summary>7 &amp; more; it is &lt;off&gt;</details>" in first
    assert (
        "<details><summary>5, fails: 5 &amp; more</summary>5 &amp; more</details><details><summary>6, fails" in second
    )
    assert "by chance" not in second


def test_the_history_of_a_rule_stands_apart_from_its_claim():
    settled = {"changed": "experiment", "rule": "more <steps>", "look": "too few", "date": "2026-05-01"}
    table = history([CLAIMS[0], {**CLAIMS[3], **settled}])
    assert table.count("<tr class=") == 1
    assert "I4</th>" in table
    assert "more &lt;steps&gt;" in table
    assert "2026-05-01" in table
