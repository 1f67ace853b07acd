"""Pictures of costs."""

from importlib import resources

import pandas as pd
import pytest

from provlab_study.how_it_scales.figures import (
    SMALL,
    bills,
    goals_table,
    growth,
    growths,
    vocabulary_table,
    whole_table,
)

TIMES = pd.DataFrame(
    {"kind": kind, "rows": n, "ours": n**2 / 1e6, "reference": 20 * n**2 / 1e6}
    for kind in ("independent", "noisy copy")
    for n in (256, 512, 1024)
)
EXPONENTS = {(kind, way): 2.0 for kind in ("independent", "noisy copy") for way in ("provlab", "reference")}


ABOUT = {"status": 0, "commit": "abc1234", "date": "2026-11-27", "machine": "x86_64, 2 cores"}


def of_vocabulary(exponent=1.0):
    """Rows of `benchmarks/vocabulary.py`: five seconds and so many more; and two blocks of a true shape."""
    rows = [
        {
            "work": work,
            "shape": SMALL,
            "vocabulary": n,
            "cpu": 5 + 10 * (n / 32_000) ** exponent,
            "memory": 500 + n / 100,
        }
        for work in ("compare", "diff")
        for n in (512, 32_000, 128_256, 262_144)
    ]
    return pd.DataFrame(rows).assign(**ABOUT)


def of_goals(*on_gpu, without=()):
    keys = [("pair", "tiny", "cpu"), ("phi_u", "tiny", "cpu"), ("all", "zoo", "cpu")]
    keys += [(work, "llama-2-7b", "cuda") for work in on_gpu]
    keys += [(work, "llama-2-7b", "cpu") for work in without]
    frame = pd.DataFrame(keys, columns=["work", "shape", "device"]).assign(**ABOUT, cpu=7.0, seconds=3060.0, host=9000)
    return frame.assign(on_device=frame["device"].map({"cpu": None, "cuda": 40_000}), blocks=32)


def test_growth_is_one_where_time_grows_as_the_vocabulary_does_and_more_where_it_grows_faster():
    assert growths(of_vocabulary())["compare"] == pytest.approx(1.0)
    assert growths(of_vocabulary(2.0))["compare"] > 2.5
    assert growths(of_vocabulary().assign(cpu=lambda rows: rows["cpu"] / 100)).isna().all()
    assert "1.00" in vocabulary_table(of_vocabulary(), caption="")._repr_html_()


def test_a_goal_that_nobody_measured_says_so_beside_its_command():
    shown = goals_table(of_goals(), of_vocabulary(), caption="").frame.set_index("work")
    assert len(shown) <= 8
    unmeasured = shown[shown["here"] == "not run here"]
    assert len(unmeasured) == 5
    assert unmeasured["command"].str.contains("--device cuda|--shape llama-2-7b").all()
    assert (unmeasured["measured"] == "").all()
    some = of_goals(without=["pair"])
    shown = goals_table(some, of_vocabulary(), caption="").frame.set_index("work")
    assert shown.loc["default tests, a pair of 7B, no GPU", "here"] == "51.0 min, 9.0 GB"
    trial = goals_table(some.assign(blocks=8), of_vocabulary(), caption="").frame.set_index("work")
    assert trial.loc["default tests, a pair of 7B, no GPU", "here"] == "not run here"
    measured = goals_table(of_goals("pair", "study"), of_vocabulary(), caption="").frame.set_index("work")
    assert "3,060 s, 9 GB, 40 GB on it" in measured.loc["default tests, a pair of 7B, one GPU", "here"]
    assert (measured["here"] == "not run here").sum() == 3


def test_what_was_measured_beside_the_page_names_its_commit():
    folder = resources.files("provlab_study.how_it_scales")
    for name in ("goals.csv", "vocabulary.csv"):
        rows = pd.read_csv(folder / name)
        assert not rows["commit"].str.contains("dirty").any()
        assert (rows["status"] == 0).all()
        assert rows[["date", "machine", "commit"]].notna().all(axis=None)
    assert growths(rows[rows["shape"] == SMALL]).max() < 2  # a linear cost has 1, a quadratic one 3
    goals_table(pd.read_csv(folder / "goals.csv"), rows, caption="")


def test_growth_says_the_ratio_at_the_largest_size():
    figure = growth(TIMES, exponents=EXPONENTS, caption="What to see.")
    assert "reference over provlab: 20x at 1,024 independent rows, 20x at 1,024 noisy copy rows" in figure.alt
    figure.png()


def test_bills_are_read_out():
    hours = pd.DataFrame(
        {"read": [1 / 60, 0.5], "compare": [1.0, 0.0]},
        index=["here\n2 cores", "there"],
    )
    figure = bills(hours, caption="What to see.")
    assert "here 2 cores: 1.0 h; there: 0.5 h" in figure.alt
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
