"""The page *Write a statistic*: its code, as it stands, tests independence, with the guard against sorted models."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import provlab
from provlab import statistics
from provlab.statistics.options import Options

PAGE = Path(__file__).parents[2] / "book" / "your_statistic.md"


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setattr(statistics, "REGISTRY", dict(statistics.REGISTRY))
    monkeypatch.setattr(statistics, "_loaded", dict(statistics._loaded))
    names = {"__name__": "your_statistic"}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1], names)
    return names


def test_it_tells_kin_from_strangers(page, models):
    log10_p = {}
    for other in ("tuned", "other"):
        (record,) = provlab.compare(
            models["base"], models[other], statistics=["phi_down"], seed=3, progress=False
        ).records
        log10_p[other] = record.outcome.log10_p
    assert log10_p["tuned"] < -8  # a child moved by noise of a third of its weights
    assert log10_p["other"] > -3  # by the law, one independent pair in a thousand


def test_the_count_of_the_page_gives_the_rates_that_it_prints(page):
    text = PAGE.read_text(encoding="utf-8")
    counting = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1]
    exec(counting, page)
    printed = re.search(r"# ([\d.]+), ([\d.]+)$", counting, re.MULTILINE)
    assert [page["rates"][level] for level in (0.05, 0.01)] == [float(number) for number in printed.groups()]


def columns(page, rows):
    """Features, by the page, of a block whose down projection has these columns."""
    anatomy = SimpleNamespace(read=lambda *_: rows.T.astype(np.float32))
    return page["Columns"](SimpleNamespace(checkpoint=None, anatomy=anatomy)).block(0)


def test_two_sorted_strangers_get_no_p_value(page):
    """Each of them is sorted by the mean of its columns, which alone makes the test reject."""
    blocks = {"sorted": [], "as trained": []}
    rng = np.random.default_rng(0)
    statistic = page["PhiDown"]()
    for block in range(4):
        pair = [rng.standard_normal((512, 16)) + rng.standard_normal((512, 1)) for _ in range(2)]  # (h, d)
        for name, results in blocks.items():
            order = [np.argsort(rows.mean(axis=1)) if name == "sorted" else np.arange(512) for rows in pair]
            a, b = (columns(page, rows[by]) for rows, by in zip(pair, order, strict=True))
            results.append(statistic.compare_block(a, b, block, Options()))
    assert min(result.log10_p for result in blocks["sorted"]) < -10  # what the order alone does
    outcome = statistic.aggregate(blocks["sorted"])
    assert outcome.log10_p is None
    assert outcome.why is not None
    assert statistic.aggregate(blocks["as trained"]).log10_p > -3
