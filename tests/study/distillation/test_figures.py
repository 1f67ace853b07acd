"""Pictures of distilled MLPs: what they draw and say, and what they refuse."""

import numpy as np
import pandas as pd

from provlab_study.distillation import figures
from provlab_study.shared.groups import Groups


def recipes():
    return {
        "as in the paper": Groups([-0.1, -0.4, -2.0], [-0.5, -40.0]),
        "penalised": Groups([-0.2, -0.3, -0.9], [-0.5, -0.7]),
    }


def test_size_and_power_counts_what_lies_beyond():
    figure = figures.size_and_power(recipes(), caption="Students.")
    assert "as in the paper: 1 of 3 independent and 1 of 2 dependent" in figure.alt
    assert figure.caption.startswith("Students. Dashed: p = 0.05")
    axes = figure.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(recipes())
    drawn = np.concatenate([line.get_xdata() for line in axes.lines if line.get_marker() in "oD"])
    assert sorted(drawn)[-1] == 40.0
    assert {"1 of 3", "1 of 2", "0 of 3", "0 of 2"} == {text.get_text() for text in axes.texts}


def frames():
    dial = pd.DataFrame(
        [
            {"teachers": teachers, "cosine": c, "median": m, "low": m - 1, "high": m + 0.2}
            for teachers in ("the models' rows", "random rows")
            for c, m in ((0.0, -0.3), (0.8, -20.0), (1.0, -1166.0))
        ]
    )
    trained = pd.DataFrame([{"recipe": "penalised", "cosine": 0.1, "log10_p": -0.3}])
    return dial, trained


def test_parallel_rows_says_how_far_it_goes():
    figure = figures.parallel_rows(*frames(), caption="By hand.")
    assert "random rows: from \N{MINUS SIGN}0.3 to \N{MINUS SIGN}1,166.0" in figure.alt.replace("-", "\N{MINUS SIGN}")
    assert "smallest and the largest" in figure.caption
    named = {text.get_text() for text in figure.figure.legends[0].get_texts()}
    assert named == {"by hand, the models' rows", "by hand, random rows", "students, penalised"}
