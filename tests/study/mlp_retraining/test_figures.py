"""Figures of retrained blocks: what they say in words, and what they refuse. No outside reference."""

import pandas as pd

from provlab_study.mlp_retraining import figures


def blocks() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "block": [0, 1],
            "phi_match": [-39.0, -17.0],
            "phi_match_unsigned": [-198.0, -77.0],
            "a stranger": [-0.1, -0.8],
        }
    )


def test_blocks_say_what_they_show() -> None:
    figure = figures.retrained_blocks(blocks(), bar=-12, half=-65.1, caption="Blocks.")
    assert figure.caption == "Blocks. Dashed: 12, the bar. Dotted: 65.1, where half of the units agree."
    assert "φ_MATCH log10 p from -39.0 to -17.0" in figure.alt
    assert "φ_|MATCH| log10 p from -198.0 to -77.0" in figure.alt
    assert "a stranger log10 p from -0.8 to -0.1" in figure.alt
    drawn = [list(line.get_ydata()) for line in figure.figure.axes[0].lines[:3]]
    assert drawn == [[39.0], [198.0], [0.1]]  # the first block
    figure.png()  # warnings are errors: the layout holds


def test_the_frontier_runs_from_coarse_to_fine() -> None:
    late = blocks().assign(relative=[0.01, 0.02])
    early = blocks().assign(relative=[0.1, 0.2], phi_match=[-9.0, -1.0])
    figure = figures.retraining_frontier(pd.concat([late, early]), bar=-12, half=-65.1)
    axes = figure.figure.axes[0]
    assert list(axes.lines[0].get_xdata()) == [0.1, 0.01]
    assert list(axes.lines[0].get_ydata()) == [9.0, 39.0]
    assert axes.xaxis_inverted()
    assert "φ_MATCH at the best fits from -39.0 to -17.0" in figure.alt


def test_signs_are_counted() -> None:
    figure = figures.unit_signs({"block 0": [-0.9, -0.8, 0.9, 1.0], "block 1": [0.5]}, caption="Units.")
    assert figure.caption == "Units. block 0: 50% of 4 with the opposite sign; block 1: 0% of 1 with the opposite sign."
    heights = [bar.get_height() for bar in figure.figure.axes[0].patches]
    assert sum(heights) == 4
    assert sum(heights[:20]) == 2  # below zero
