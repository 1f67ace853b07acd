"""Pictures of blocks and units: their words are counts of what is drawn, and data that do not fit are refused."""

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle

from provlab.chapters.pruning_forensics import figures
from provlab.chapters.pruning_forensics.measure import MapRecord
from provlab.engine.localise import BlockMap, UnitMap
from provlab.errors import InputError
from provlab.zoo.prune import Kept

KEPT = [0, 2, 5]


def child(log10_p, kept=KEPT, related=True):
    return MapRecord("zoo:p", "zoo:c", related, [], kept if related else None, log10_p, -400.0)


@pytest.fixture
def small():
    """A child that kept three of six blocks, of which one is missed, and one wrong call."""
    log10_p = np.full((6, 3), -0.3)
    log10_p[KEPT, range(3)] = [-300.0, -40.0, -1.0]
    log10_p[4, 2] = -9.0
    return log10_p


def arrows(figure):
    return [patch for axes in figure.figure.axes for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def test_an_arrow_for_each_call(small):
    figure = figures.block_arrows([child(small)], level=0.01)
    drawn = arrows(figure)
    assert len(drawn) == 3
    assert drawn[0].get_linewidth() > drawn[1].get_linewidth()  # the smaller p is the wider arrow
    assert sorted(one.get_linestyle() for one in drawn) == ["-", "-", "--"]  # the wrong one
    assert "c: 3 of its 3 blocks found (1 missed, 1 wrong)" in figure.caption
    assert figure.figure.axes[0].get_title() == "p to\nc"
    figure.png()  # warnings are errors: the layout holds


def test_without_a_truth_nothing_is_wrong(small):
    figure = figures.block_arrows([child(small, kept=None)], level=0.01)
    assert {one.get_linestyle() for one in arrows(figure)} == {"-"}
    assert "wrong" not in figure.caption


def frames(figure):
    return [patch for axes in figure.figure.axes for patch in axes.patches if isinstance(patch, Rectangle)]


def test_the_matrix_frames_truth_and_mistakes(small):
    figure = figures.block_matrices([child(small), child(np.full((6, 3), -0.3), related=False)], level=0.01)
    edges = [patch.get_edgecolor() for patch in frames(figure)]
    black = sum(edge[:3] == (0, 0, 0) for edge in edges)
    assert (len(edges), black) == (5, 2)  # three kept, one of them missed, one wrong
    assert "c: 3 of 18 called (1 missed, 1 wrong); c / p: 0 of 18 called." in figure.caption
    figure.png()


@pytest.mark.parametrize("shapes", [[(32, 28), (32, 16), (32, 32)], [(2, 1)]])
def test_models_of_any_depth_fit_on_a_page(shapes):
    maps = [child(np.full(shape, -1.0), kept=None) for shape in shapes]
    for figure in (figures.block_matrices(maps, level=0.01), figures.block_arrows(maps, level=0.01)):
        assert figure.figure.get_figwidth() <= 6.51
        figure.png()


def test_the_weakest_call_is_drawn_beside_a_pair_that_is_not_called(small):
    units = {
        (old, new): UnitMap(np.array([old, 2, 5]), np.array([old, 3, 5]), width=9) for old, new in np.ndindex(6, 3)
    }
    found = BlockMap("p", "c", small, small, -400.0, units)
    kept = Kept([0, 2, 4], [0], [[1, 2, 3]] * 3, [])
    figure = figures.units_of_weakest_call(found, kept, level=0.01)
    assert [axes.get_title() for axes in figure.figure.axes[::2]] == ["block 4 to block 2", "block 4 to block 0"]
    truth = figure.figure.axes[0].lines[0].get_ydata().tolist()
    assert truth == [1, 2, 3]
    found = BlockMap("p", "c", np.zeros((6, 3)), small, -400.0, units)
    assert figures.units_of_weakest_call(found, None, level=0.01) is None


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
        (lambda: figures.block_matrices([], level=0.01), "nothing to draw"),
        (lambda: figures.block_arrows([], level=0.01), "nothing to draw"),
        (lambda: figures.unit_maps({"c": [1]}, {"c": [True]}, {}, width=3), "must name equal panels"),
        (lambda: figures.evidence_by_change({"c": [1.0]}, {}, threshold=-3), "must name the same children"),
        (lambda: figures.evidence_by_change({"c": [1.0]}, {"c": [-1, -2]}, threshold=-3), "of one length"),
        (lambda: figures.unit_maps({"c": [1]}, {"c": [True, False]}, {"c": None}, width=3), "of one length"),
    ],
)
def test_data_that_do_not_fit_are_refused(draw, said):
    with pytest.raises(InputError, match=said):
        draw()
