"""Pictures of costs."""

from importlib import resources

import pandas as pd

from provlab_study.how_it_scales.figures import bills, growth, whole_table

TIMES = pd.DataFrame(
    {"kind": kind, "rows": n, "ours": n**2 / 1e6, "reference": 20 * n**2 / 1e6}
    for kind in ("independent", "noisy copy")
    for n in (256, 512, 1024)
)
EXPONENTS = {(kind, way): 2.0 for kind in ("independent", "noisy copy") for way in ("provlab", "reference")}


def test_growth_says_the_ratio_at_the_largest_size():
    figure = growth(TIMES, exponents=EXPONENTS, caption="What to see.")
    assert "reference over provlab: 20x at 1,024 independent rows, 20x at 1,024 noisy copy rows" in figure.alt
    figure.png()


def test_bills_are_read_out():
    hours = pd.DataFrame(
        {"read": [1 / 60, 0.5], "multiply": [0.0, 0.0], "assign": [1.0, 0.0], "at_most": [2.0, 0.5]},
        index=["here\n2 cores", "there"],
    )
    figure = bills(hours, caption="What to see.")
    assert "here 2 cores: 1.0 to 2.0 h; there: 0.5 h" in figure.alt
    assert figure.caption.startswith("What to see.")
    figure.png()


def test_whole_comparisons_are_shown_with_their_date_and_without_what_was_not_measured():
    rows = pd.read_csv(resources.files("provlab_study.how_it_scales") / "whole.csv")
    assert set(rows["vocabulary"]) >= {512, 32_000, 128_256}
    assert not rows["commit"].str.contains("dirty").any()
    assert rows[["date", "machine", "cpu"]].notna().all(axis=None)
    shown = whole_table(rows.assign(note=None), caption="What to see.")
    text = shown.frame.to_string()
    assert "nan" not in text.lower()
    assert "note" not in shown.frame.columns  # nothing is in it
    for commit in rows["commit"]:
        assert commit in text
