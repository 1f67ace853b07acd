"""Pictures of tensors and of power: captions say what the data say, and bad data are refused."""

import pandas as pd

from provlab_study.shared.power_curves import power_curves
from provlab_study.striped_hyena import figures

TESTS = pd.DataFrame(
    {
        "tensor": ["embed", "0.q", "0.o"],
        "partner": ["embed", "3.q", "1.o"],
        "log10_p": [-900.0, -88.0, -1.0],
        "taken": [True, False, False],
        "called": [True, True, False],
    }
)
POINTS = pd.DataFrame({"x": [1, 2], "y": [0.2, 0.9], "low": [0.1, 0.8], "high": [0.3, 1.0]})


def test_the_caption_counts_taken_and_called_tensors():
    figure = figures.tensor_evidence(TESTS, threshold=-4.5, caption="Rows.")
    assert "Rows. 1 of 1 taken tensors and 1 of 2 fresh ones are called" in figure.caption
    assert figure.caption.removeprefix("Rows. ") in figure.alt
    words = [text.get_text() for text in figure.figure.axes[0].texts]
    assert words == ["~ embed", "~ 3.q"]  # only what is called is named
    figure.png()  # warnings are errors: the layout holds


def test_measured_and_predicted_share_a_colour():
    figure = power_curves({"a": POINTS}, {"a": POINTS, "b": POINTS}, xlabel="x", ylabel="y", level=0.9, caption="C.")
    axes = figure.figure.axes[0]
    by_label = {}
    for line in axes.lines:
        by_label.setdefault(line.get_color(), []).append(line)
    assert len(by_label) == 3  # a, b, and the level
    assert "Points are measured, lines predicted" in figure.caption
    assert "y from 0.2 to 0.9 against x for a, b" in figure.alt
