"""Pictures of blocks and units: their words are counts of what is drawn, and data that do not fit are refused."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import FancyArrowPatch, Rectangle

from provlab_study.pruning_forensics import figures
from provlab_study.pruning_forensics.measure import MapRecord
from provlab_study.shared.block_map import UnitMap

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
    assert sorted(arrow.get_linestyle() for arrow in drawn) == ["-", "-", "--"]  # the wrong one
    assert "c: 3 of its 3 blocks found (1 missed, 1 wrong)" in figure.caption
    assert figure.figure.axes[0].get_title() == "p to\nc"
    figure.png()  # warnings are errors: the layout holds


def test_without_a_truth_nothing_is_wrong(small):
    figure = figures.block_arrows([child(small, kept=None)], level=0.01)
    assert {arrow.get_linestyle() for arrow in arrows(figure)} == {"-"}
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


def test_units_by_both_and_by_up_alone():
    by_up = np.array([3, 1, 4, 9])
    units = {"a": UnitMap(np.array([3, 1, 0, 0]), by_up, width=10), "b": UnitMap(by_up[::-1], by_up, width=10)}
    figure = figures.unit_maps(units, {"a": [3, 1, 4, 5], "b": None})
    first, margin = figure.figure.axes[:2]
    # truth, up alone, both
    assert [line.get_ydata().tolist() for line in first.lines] == [[3, 1, 4, 5], [4, 9], [3, 1]]
    assert [len(lines.get_segments()) for lines in margin.collections] == [4, 2]  # kept, found
    assert "a: both matchings agree on 2 of 4 units; b: both matchings agree on 0 of 4 units" in figure.caption
    figure.png()


def test_evidence_by_change_counts_points_above_the_line():
    points = pd.DataFrame(
        {"child": ["young", "young", "old", "old"], "change": [0.1, 0.2, 1, 2], "log10_p": [-90, -50, -3.5, -0.5]}
    )
    figure = figures.evidence_by_change(points, threshold=-3.0)
    assert "3 of 4 lie above the dashed line" in figure.caption
    drawn = figure.figure.axes[0].collections[0].get_offsets()
    assert drawn.tolist() == [[0.1, 90], [0.2, 50], [1, 3.5], [2, 0.5]]
    figure.png()
