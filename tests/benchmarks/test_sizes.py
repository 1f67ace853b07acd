"""The committed sizes are of the statistics as they are: a row that names a version names the present one."""

import csv
from importlib import resources

import pytest
import sizes


def stale(rows):
    known = [row for row in rows if row["version"]]
    return [(row["statistic"], row["case"]) for row in known if row["version"] != sizes.version_of(row["statistic"])]


@pytest.fixture(scope="module")
def rows():
    with (resources.files("provlab_study.attack_lab") / "sizes.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_no_row_is_of_an_older_version(rows):
    assert stale(rows) == []
    assert all(row["commit"] and row["machine"] and row["date"] for row in rows if row["version"])
    assert any(row["version"] for row in rows)


def test_a_newer_version_makes_its_rows_stale(rows, monkeypatch):
    statistic = sizes.get("phi_u")
    monkeypatch.setattr(type(statistic), "version", statistic.version + 1)
    assert {name for name, _ in stale(rows)} >= {"phi_u"}


def test_rows_without_a_version_are_those_of_before_versions_were_kept(rows):
    assert all(row["date"] <= "2026-11-26" for row in rows if not row["version"])
