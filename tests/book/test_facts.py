"""Facts that pages state in words and the library knows as numbers or rows: a page that differs from them fails."""

import json
import re
from pathlib import Path

import pytest
from scipy import stats

from provlab.statistics import flaws

ROOT = Path(__file__).resolve().parents[2]


def words(page: str) -> str:
    """All text of a page of the book, or of a notebook, with single spaces."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return re.sub(r"\s+", " ", text)


def test_the_two_papers_name_what_hides_from_each_statistic():
    hides = {}
    for disguise in flaws.DISGUISES:
        for transformation in {name for name in disguise.shown if re.fullmatch(r"T\d", name)}:
            for statistic in disguise.fooled & {"phi_u", "phi_h"}:
                hides.setdefault(statistic, set()).add(transformation)
    sentence = re.search(r"Together they hide a copy.*?\. ", words("book/two_papers.md"))[0]
    by_u, by_h = sentence.split("against $\\phi_U$")
    assert set(re.findall(r"T\d", by_u)) == hides["phi_u"]
    assert set(re.findall(r"T\d", by_h)) == hides["phi_h"]


@pytest.mark.parametrize("page", ["book/course/session_02.md", "notebooks/matching_and_pvalues.ipynb"])
def test_the_correlation_at_which_a_p_value_prints_as_zero(page):
    rho, units = float(re.search(r"a correlation of ([\d.]+) already", words(page))[1]), 11_008
    t = rho * ((units - 2) / (1 - rho**2)) ** 0.5
    assert stats.t.sf(t, units - 2) == 0.0
    assert stats.t.sf(t - 0.5, units - 2) > 0.0  # and not long before
