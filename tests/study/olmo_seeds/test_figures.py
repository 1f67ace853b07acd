"""The strips of pairs by budget: what they say in words. No outside reference."""

import pandas as pd

from provlab_study.olmo_seeds import figures


def pairs() -> pd.DataFrame:
    rows = [
        {"statistic": statistic, "tokens": tokens, "start": start, "log10_p": log10_p, "floor": -500.0}
        for statistic in ("phi_u", "phi_match")
        for tokens in (100, 10_000)
        for start, log10_p in (("own seeds", -0.3), ("own seeds", -1.1), ("same initialisation", -400.0))
    ]
    return pd.DataFrame(rows)


def test_the_figure_says_what_it_shows() -> None:
    figure = figures.pairs_by_budget(pairs(), caption="Pairs.")
    assert figure.caption == "Pairs. Dashed: p = 0.01. Dotted: the floor of the statistic."
    assert "φ_U, own seeds: log10 p from -1.1 to -0.3" in figure.alt
    assert "φ_MATCH, same initialisation: log10 p from -400.0 to -400.0" in figure.alt
    panels = figure.figure.axes
    assert [axes.get_xlabel() for axes in panels] == ["tokens seen"] * 2
    heights = sorted(y for line in panels[0].lines[:2] for y in line.get_ydata())
    assert heights == [0.3, 0.3, 1.1, 1.1, 400.0, 400.0]
    figure.png()  # warnings are errors: the layout holds
