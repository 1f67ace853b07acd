"""Pictures of blocks and units: their words are counts of what is drawn, and data that do not fit are refused."""

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle

from provlab.chapters.pruning_forensics import figures
from provlab.errors import InputError

KEPT = [0, 2, 5]


@pytest.fixture
def small():
    """A child that kept three of six blocks, of which one is missed, and one wrong call."""
    log10_p = np.full((6, 3), -0.3)
    log10_p[KEPT, range(3)] = [-300.0, -40.0, -1.0]
    log10_p[4, 2] = -9.0
    return log10_p, log10_p < -5


def arrows(figure):
    return [patch for axes in figure.figure.axes for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def test_an_arrow_for_each_call(small):
    log10_p, found = small
    figure = figures.block_arrows({"c": log10_p}, {"c": found}, {"c": KEPT}, parents={"c": "p"})
    drawn = arrows(figure)
    assert len(drawn) == found.sum() == 3
    assert drawn[0].get_linewidth() > drawn[1].get_linewidth()  # the smaller p is the wider arrow
    assert sorted(one.get_linestyle() for one in drawn) == ["-", "-", "--"]  # the wrong one
    assert "c: 3 of its 3 blocks found (1 missed, 1 wrong)" in figure.caption
    figure.png()  # warnings are errors: the layout holds


def test_without_a_truth_nothing_is_wrong(small):
    log10_p, found = small
    for truth in (None, {"c": None}):
        figure = figures.block_arrows({"c": log10_p}, {"c": found}, truth, parents={"c": "p"})
        assert {one.get_linestyle() for one in arrows(figure)} == {"-"}
        assert "wrong" not in figure.caption


def frames(figure):
    return [patch for axes in figure.figure.axes for patch in axes.patches if isinstance(patch, Rectangle)]


def test_the_matrix_frames_truth_and_mistakes(small):
    log10_p, found = small
    figure = figures.block_matrices(
        {"c": log10_p, "s": log10_p}, {"c": found, "s": found & False}, {"c": KEPT, "s": []}
    )
    edges = [patch.get_edgecolor() for patch in frames(figure)]
    black = sum(edge[:3] == (0, 0, 0) for edge in edges)
    assert (len(edges), black) == (5, 2)  # three kept, one of them missed, one wrong
    assert "c: 3 of 18 called (1 missed, 1 wrong); s: 0 of 18 called." in figure.caption
    figure.png()


@pytest.mark.parametrize("shapes", [[(32, 28), (32, 16), (32, 32)], [(2, 1)]])
def test_models_of_any_depth_fit_on_a_page(shapes):
    log10_p = {str(i): np.full(shape, -1.0) for i, shape in enumerate(shapes)}
    found = {name: values < -5 for name, values in log10_p.items()}
    for figure in (
        figures.block_matrices(log10_p, found),
        figures.block_arrows(log10_p, found, parents=dict.fromkeys(log10_p, "p")),
    ):
        assert figure.figure.get_figwidth() <= 6.51
        figure.png()


def test_units_by_both_and_by_up_alone():
    partners = np.array([3, 1, 4, 9])
    agreed = np.array([True, True, False, False])
    kept = {"a": [3, 1, 4, 5], "b": None}
    figure = figures.unit_maps({"a": partners, "b": partners}, {"a": agreed, "b": ~agreed & False}, kept, width=10)
    first = figure.figure.axes[0]
    lines = [line for line in first.lines if isinstance(line, Line2D)]
    assert [line.get_ydata().tolist() for line in lines] == [[3, 1, 4, 5], [4, 9], [3, 1]]  # truth, up alone, both
    assert "a: both matchings agree on 2 of 4 units; b: both matchings agree on 0 of 4 units" in figure.caption
    figure.png()


def test_evidence_by_change_counts_what_is_above_the_line():
    changes = {"young": [0.1, 0.2], "old": [1.0, 2.0]}
    figure = figures.evidence_by_change(changes, {"young": [-90, -50], "old": [-3.5, -0.5]}, threshold=-3.0)
    assert "3 of 4 lie above the dashed line" in figure.caption
    drawn = [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in figure.figure.axes[0].lines[:2]]
    assert drawn == [([0.1, 0.2], [90, 50]), ([1.0, 2.0], [3.5, 0.5])]
    figure.png()


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda p, f: figures.block_matrices({}, {}), "at least one"),
        (lambda p, f: figures.block_matrices({"c": p}, {"d": f}), "must name the same pairs"),
        (lambda p, f: figures.block_matrices({"c": p}, {"c": f[:2]}), "c: found must have the shape of log10_p"),
        (lambda p, f: figures.block_matrices({"c": p}, {"c": f}, {"c": [0, 1]}), "c: truth must name a block"),
        (lambda p, f: figures.unit_maps({"c": [1]}, {"c": [True]}, {}, width=3), "must name equal panels"),
        (lambda p, f: figures.evidence_by_change({"c": [1.0]}, {}, threshold=-3), "must name the same children"),
        (lambda p, f: figures.evidence_by_change({"c": [1.0]}, {"c": [-1, -2]}, threshold=-3), "of one length"),
        (lambda p, f: figures.unit_maps({"c": [1]}, {"c": [True, False]}, {"c": None}, width=3), "of one length"),
    ],
)
def test_data_that_do_not_fit_are_refused(small, draw, said):
    with pytest.raises(InputError, match=said):
        draw(*small)
