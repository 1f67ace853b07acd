"""The committed sizes are of the statistics as they are: each row names the present version, and where it was made."""

import csv
import json
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import sizes
import torch

from provlab.reading.checkpoint import Checkpoint

UNKNOWN_RULES = [
    case for case in (*sizes.CASES, *sizes.ZOO) if case.removeprefix("zoo-").removeprefix("sorted-") in sizes.UNKNOWN
]


def stale(rows):
    """Rows that name no version, or another than the present one."""
    return [(r["statistic"], r["case"]) for r in rows if r["version"] != sizes.version_of(r["statistic"])]


def unnamed(rows):
    """Rows that do not say when, of which commit and on which machine they were made."""
    made = ("date", "commit", "machine")
    return [(r["statistic"], r["case"]) for r in rows if not all(r[name] for name in made)]


@pytest.fixture(scope="module")
def rows():
    with (resources.files("provlab_study.attack_lab") / "sizes.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_row_is_of_the_present_version(rows):
    assert stale(rows) == []
    assert unnamed(rows) == []


@pytest.mark.parametrize("version", ["", "1"])
def test_a_row_without_a_version_is_stale_as_one_of_an_older_is(rows, version):
    planted = rows[0] | {"version": version}
    assert stale([planted, *rows[1:]]) == [(planted["statistic"], planted["case"])]


@pytest.mark.parametrize("name", ["date", "commit", "machine"])
def test_a_row_that_does_not_say_where_it_was_made_is_found(rows, name):
    assert len(unnamed([rows[0] | {name: ""}, *rows[1:]])) == 1


def test_a_newer_version_makes_its_rows_stale(rows, monkeypatch):
    statistic = sizes.get("phi_u")
    monkeypatch.setattr(type(statistic), "version", statistic.version + 1)
    assert {name for name, _ in stale(rows)} >= {"phi_u", "compare", "compare_by_order"}


@pytest.mark.parametrize("name", [*sizes.STATISTICS, "identify", "identify_kin", "compare", "compare_block"])
def test_every_test_and_the_verdict_have_their_plain_case(rows, name):
    """A row that goes missing would be no stale one."""
    assert (name, "plain") in {(row["statistic"], row["case"]) for row in rows}


def test_no_order_of_strangers_makes_the_verdict_rejected_more_often_than_its_level(rows):
    """Rules of sorting that the check of order does not know; 99% of samples stay below the bound.

    Planted: the rate of *by order alone*, which is far above it.
    """
    sorted_by = [row for row in rows if row["case"] in UNKNOWN_RULES]
    assert len({row["case"] for row in sorted_by if row["statistic"] == "compare"}) >= 5

    def too_often(row):
        bounds = {level: level + 2.33 * (level * (1 - level) / int(row["pairs"])) ** 0.5 for level in sizes.LEVELS}
        return any(float(row[f"at {level}"]) > bound for level, bound in bounds.items())

    of_verdicts = [row for row in sorted_by if row["statistic"] in sizes.WAYS]
    assert [(row["statistic"], row["case"]) for row in of_verdicts if too_often(row)] == []
    assert any(too_often(row) for row in sorted_by if row["statistic"] == "compare_by_order")


def test_the_levels_of_a_verdict_are_those_of_its_words():
    """-3 by order and -1 by units in any order, Holm over two tests: by order from -2.7 on, rejected from -1 on."""
    rejected, accused = sizes.smallest_levels({"phi_u": -3.0, "phi_match": -1.0, "phi_h": None})
    assert rejected == pytest.approx(-1)
    assert accused == pytest.approx(-3 + 0.30103)
    assert sizes.smallest_levels({"phi_u": None}) == [None, None]
    assert sizes.smallest_levels({"phi_u": -9.0}) == [0.0, -9.0]


def test_a_rule_sorts_a_trained_model_and_changes_no_output(new_model, save_model, tmp_path):
    """Both models of a pair are sorted so, and phi_U would accuse strangers by that alone."""
    model = new_model(1)
    sources = [save_model(model, tmp_path / "plain")]
    sources.append(sizes.sorted_copy(str(sources[0]), sizes.UNKNOWN["first"], tmp_path / "sorted"))
    tokens = torch.arange(60).reshape(2, 30)
    with torch.no_grad():
        before, after = (type(model).from_pretrained(source)(tokens).logits for source in sources)
    assert torch.allclose(before, after, atol=1e-5)
    up = Checkpoint.open(sources[1]).array("model.layers.0.mlp.up_proj.weight")
    assert (np.diff(up[:, 0]) >= 0).all()


def test_every_cell_that_the_script_means_to_fill_is_filled_or_named_as_missing(rows):
    """1,000 pairs, or as many as there are; planted: a row that is taken out is found."""
    page = json.loads(Path("notebooks/status.ipynb").read_text(encoding="utf-8"))
    words = "".join(line for cell in page["cells"] for line in cell["source"])
    missing = {
        (name, case)
        for name, cases in re.findall(r"`(\w+)` of ((?:`[\w.-]+`(?:, )?)+)", words)
        for case in re.findall(r"`([\w.-]+)`", cases)
    }

    def short(rows):
        """Cells that were not measured, or on fewer pairs, and that the page does not name."""
        pairs = {(row["statistic"], row["case"]): int(row["pairs"]) for row in rows}
        cells = [(name, case) for name in (*sizes.STATISTICS, *sizes.TOGETHER) for case in sizes.meant(name)]
        few = {cell for cell in cells if pairs.get(cell, 0) < sizes.enough(cell[1], 1000)}
        return few - missing, missing - few

    assert short(rows) == (set(), set())
    assert short(rows[1:]) == ({(rows[0]["statistic"], rows[0]["case"])}, set())
