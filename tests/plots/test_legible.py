"""Words of a picture that cannot be read are named, each way once; a picture that reads well names none."""

import pytest
from matplotlib.figure import Figure as Canvas

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.legible import faults


@style.styled
def drawn(change=lambda axes: None, layout=None):
    figure = Canvas(figsize=(4, 2), layout=layout)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1])
    axes.set(xlabel="step", ylabel="loss")
    change(axes)
    return Figure(figure, "A line.", "A line that rises.")


def named(figure):
    figure.png()
    return faults(figure.figure)


def test_a_picture_that_reads_well():
    assert named(drawn(layout="constrained")) == []
    assert "data-illegible" not in drawn(layout="constrained").to_html()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda axes: axes.figure.text(0.8, 0.5, "a text that goes on and on"), "'a text that goes on and on' leaves"),
        (lambda axes: axes.set_ylabel("inputs of toy-early-small in the range Z"), "is longer than its axis"),
        (lambda axes: (axes.text(0.2, 0.5, "one here"), axes.text(0.22, 0.52, "two there")), "lie on each other"),
        (lambda axes: axes.set_xticks([0.5, 0.52], ["a long tick", "another tick"]), "lie on each other"),
    ],
)
def test_each_fault_is_named(change, fault):
    figure = drawn(change, layout="constrained")
    assert any(fault in line for line in named(figure)), named(figure)
    assert 'class="provlab-figure" data-illegible="' in figure.to_html()


def test_the_name_of_an_axis_that_is_off_is_not_drawn():
    def off(axes):
        axes.set_xlabel("a name that is longer than the picture is wide, and goes on and on beyond it")
        axes.set_axis_off()

    assert named(drawn(off)) == []


def test_what_is_not_drawn_is_no_fault():
    def change(axes):
        axes.text(0.9, 0.5, "a text that goes on and on").set_visible(False)
        axes.set_xticks([0, 0.5, 1, 40, 40.1], ["0", "half", "1", "far away", "far away too"])
        axes.set_xlim(0, 1)

    assert named(drawn(change, layout="constrained")) == []
