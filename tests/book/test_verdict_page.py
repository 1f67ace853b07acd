"""*How to read a verdict* names each outcome, and each label that the command puts before a sentence."""

from pathlib import Path

from provlab.report.decide import OUTCOMES
from provlab.report.findings import LABELS

PAGE = (Path(__file__).parents[2] / "book" / "reading_a_verdict.md").read_text(encoding="utf-8")
FIRST, _ = PAGE.split("\n## For the record\n")


def test_the_page_explains_every_label_of_the_command_before_the_record():
    assert [label for label in LABELS if f"**{label}**" not in FIRST] == []


def test_the_page_explains_every_outcome_before_it_shows_a_table_of_numbers():
    outcomes = FIRST.split("## A real one")[0]
    assert [outcome for outcome in OUTCOMES if f"| *{outcome}*" not in outcomes] == []
