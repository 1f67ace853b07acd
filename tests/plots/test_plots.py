"""Figures are held to what they promise in words (counts, frames, floors), not to pixels.

Expected counts are written down from the small data below, by hand.
"""

import base64
import itertools
import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from provlab import plots
from provlab.errors import InputError
from provlab.plots import legible, style
from provlab_study.llama_tree import figures
from provlab_study.shared import curves, nulls

NAMES = ["oak", "oak-chat", "elm", "elm-chat", "fir"]
FAMILIES = {"oak": "oak", "oak-chat": "oak", "elm": "elm", "elm-chat": "elm", "fir": "fir"}
FLOOR = -500.0
#: of the longest names, as many as a pair has at most
SHOWN = ["phi_u", "phi_h", "phi_l2", "phi_match", "phi_match_unsigned", "phi_unseen", "phi_match_all", "phi_anchor"]


def frame(values: dict[tuple[str, str], float], default=np.nan) -> pd.DataFrame:
    out = pd.DataFrame(default, index=NAMES, columns=NAMES)
    for (a, b), value in values.items():
        out.loc[a, b] = out.loc[b, a] = value
    return out


@pytest.fixture
def log10_p():
    return frame({("oak", "oak-chat"): FLOOR, ("elm", "elm-chat"): -40.0}, default=-0.5)


@pytest.fixture
def truth():
    return frame({("oak", "oak-chat"): True, ("elm", "elm-chat"): True}, default=False).astype(bool)


def frames(figure: plots.Figure) -> int:
    """Count the black frames that mark wrong cells (two for each wrong pair)."""
    black = [p for p in figure.figure.axes[0].patches if isinstance(p, Rectangle) and not p.get_fill()]
    return sum(p.get_edgecolor()[:3] == (0, 0, 0) and p.get_zorder() == 5 for p in black)


def dots(figure: plots.Figure) -> int:
    return sum(line.get_marker() == "." for line in figure.figure.axes[0].lines)


def test_a_figure_needs_words():
    for words in ({"caption": "a", "alt": " "}, {"caption": "", "alt": "a"}):
        with pytest.raises(InputError, match="is empty"):
            plots.Figure(Canvas(), **words)


def test_a_figure_shows_itself_once_with_its_words():
    drawn = plt.figure(figsize=(2, 1))
    figure = plots.Figure(drawn, "what <to> see", 'a "b" & c')
    assert plt.get_fignums() == []  # pyplot would show it a second time at the end of the cell
    data, metadata = figure._repr_mimebundle_()
    assert 'alt="a &quot;b&quot; &amp; c"' in data["text/html"]
    assert "<figcaption>what &lt;to&gt; see</figcaption>" in data["text/html"]
    png = base64.b64decode(data["image/png"])
    assert png.startswith(b"\x89PNG")
    assert base64.b64decode(re.search(r"base64,([^\"]+)", data["text/html"])[1]) == png
    assert metadata["image/png"]["alt"] == figure.alt


def test_the_same_data_give_the_same_bytes(tmp_path, log10_p, truth):
    first, second = (plots.pair_heatmap(log10_p, FAMILIES, statistic="phi_u", truth=truth) for _ in range(2))
    assert first.save(tmp_path / "a.png").read_bytes() == second.png()
    with pytest.raises(InputError, match=r"saved as \.png"):
        first.save(tmp_path / "a.jpg")


def test_no_setting_is_left_behind():
    before = dict(mpl.rcParams)
    nulls.separation({"dependent": [1.0], "independent": [2.0]}, xlabel="x")
    assert dict(mpl.rcParams) == before


def test_numbers():
    assert plots.format_log10_p(-7520.2) == "-7,520.2"
    assert plots.format_log10_p(-0.04) == "0.0"
    assert plots.format_log10_p(float("nan")) == "–"
    assert plots.format_interval(0.05, 0.041, 0.0614) == "0.050 (0.041 to 0.061)"
    assert plots.format_count(3785821) == "3,785,821"
    assert [plots.format_ratio(x) for x in (2.54, 41.4)] == ["2.5x", "41x"]
    seconds = (0.4211, 3.14, 75, 720, 12_300, 440_000)
    assert list(map(plots.format_duration, seconds)) == ["0.42 s", "3.1 s", "75 s", "12 min", "3.4 h", "5.1 days"]


def test_statistics_are_written_as_symbols_from_either_writing():
    assert style.symbol("phi_u: x") == style.symbol("φ_U: x") == r"$\phi_U$: x"
    assert style.word("phi_l2 PERMTEST") == "φ_ℓ2 PERMTEST"
    assert style.word("phi_under") == "phi_under"


def test_families_keep_their_colours_and_never_share_one():
    colors = style.family_colors(FAMILIES)
    assert list(colors) == ["oak", "elm", "fir"]
    assert colors.items() <= style.family_colors({**FAMILIES, "yew": "yew"}).items()
    many = style.family_colors({str(i): str(i) for i in range(20)})
    assert len(set(many.values())) == 20


@pytest.mark.parametrize("color", [*style.FAMILY_COLORS, "#ffffff"])
def test_ink_reads_on_white(color):
    rgb = np.asarray(mpl.colors.to_rgb(style.ink(color)))
    # WCAG 2.1, contrast of 4.5 against white
    assert 1.05 / (style._luminance(rgb) + 0.05) >= 4.49


def test_the_scale_is_linear_to_fifty_and_rises_above():
    norm = style.evidence_norm(2000.0)
    low = norm([0.0, 10.0, 20.0, 40.0])
    assert np.allclose(np.diff(low[:3]), low[1] - low[0])
    assert np.all(np.diff(norm([40.0, 50.0, 60.0, 500.0, 2000.0])) > 0)
    assert norm(2000.0) == pytest.approx(1.0)
    assert np.allclose(norm.inverse(norm(np.array([10.0, 50.0, 700.0]))), [10.0, 50.0, 700.0])
    # both sides of 50 meet with one slope
    assert (norm(50.01) - norm(50.0)) == pytest.approx(norm(50.0) - norm(49.99), rel=1e-2)
    assert style.evidence_norm(2.0).vmax == 2.0


def test_a_right_heatmap_has_no_frame_and_marks_the_floor(log10_p, truth):
    figure = plots.pair_heatmap(log10_p, FAMILIES, statistic="phi_u", floor=FLOOR, truth=truth)
    assert frames(figure) == 0
    assert dots(figure) == 1
    assert "φ_U rejects independence for 2 of 10 pairs at level 0.01" in figure.caption
    assert "no mistake: there is none." in figure.caption
    assert "-500.0" in figure.caption


def test_a_wrong_cell_is_framed_in_both_triangles(log10_p, truth):
    log10_p.loc["elm", "elm-chat"] = log10_p.loc["elm-chat", "elm"] = -1.0  # missed
    log10_p.loc["fir", "oak"] = log10_p.loc["oak", "fir"] = -9.0  # accused
    figure = plots.pair_heatmap(log10_p, FAMILIES, statistic="phi_u", truth=truth)
    assert frames(figure) == 4
    assert "2 wrongly judged (outlined)" in figure.caption
    assert "elm-chat and elm" in figure.alt
    assert "fir and oak" in figure.alt


def test_calls_follow_the_adjusted_p_values(log10_p, truth):
    adjusted = log10_p.copy()
    adjusted.loc["elm", "elm-chat"] = adjusted.loc["elm-chat", "elm"] = -1.9
    figure = plots.pair_heatmap(log10_p, FAMILIES, statistic="phi_u", truth=truth, adjusted=adjusted)
    assert frames(figure) == 2
    assert "for 1 of 10" in figure.caption


def test_a_p_value_of_exactly_the_level_rejects():
    # PERMTEST with T = 99 gives 1/100 at best, which must count at level 0.01
    values = frame({("oak", "oak-chat"): np.log10(1 / 100)}, default=-0.2)
    assert "for 1 of 10" in plots.pair_heatmap(values, FAMILIES, statistic="phi_l2", floor=-2.0).caption


def test_one_triangle_is_enough_and_a_missing_pair_is_said(log10_p, truth):
    whole = plots.pair_heatmap(log10_p, FAMILIES, statistic="phi_u", truth=truth)
    upper = log10_p.where(np.triu(np.ones((5, 5), dtype=bool), 1))
    assert plots.pair_heatmap(upper, FAMILIES, statistic="phi_u", truth=truth).png() == whole.png()
    upper.loc["oak", "fir"] = np.nan
    missing = plots.pair_heatmap(upper, FAMILIES, statistic="phi_u", truth=truth)
    assert "of 9 pairs" in missing.caption
    assert "Not compared (?): 1." in missing.caption


@pytest.mark.parametrize("n", [2, 7, 21, 40])
def test_heatmaps_of_any_size_fit_the_page(n):
    names = [f"model-{i}" for i in range(n)]
    values = pd.DataFrame(-1.0, names, names)
    figure = plots.pair_heatmap(values, dict.fromkeys(names, "a"), statistic="phi_u")
    assert figure.figure.get_figwidth() <= style.WIDTH
    assert figure.png()


def test_heatmap_refuses_frames_that_do_not_fit(log10_p, truth):
    with pytest.raises(InputError, match="same models"):
        plots.pair_heatmap(log10_p.iloc[:, ::-1], FAMILIES, statistic="phi_u")
    with pytest.raises(InputError, match="no family for fir"):
        plots.pair_heatmap(log10_p, {k: v for k, v in FAMILIES.items() if k != "fir"}, statistic="phi_u")
    with pytest.raises(InputError, match="at least two"):
        plots.pair_heatmap(log10_p.iloc[:1, :1], FAMILIES, statistic="phi_u")


def test_tree_says_all_that_it_draws():
    parents = {"oak": None, "oak-chat": "oak", "oak-chat-2": "oak-chat", "elm": None}
    families = {"oak": "oak", "oak-chat": "oak", "oak-chat-2": "oak", "elm": "elm"}
    figure = figures.lineage_tree(parents, families, {"oak-chat": "chat tune", "oak-chat-2": "pruned"})
    assert "4 models descend from 2 bases" in figure.caption
    assert "oak-chat from oak (chat tune); oak-chat-2 from oak-chat (pruned); elm is a base" in figure.alt
    shown = [t.get_text() for t in figure.figure.axes[0].texts]
    assert {"oak", "oak-chat", "oak-chat-2", "elm", "chat tune", "pruned"} <= set(shown)


@pytest.mark.parametrize(
    ("parents", "message"),
    [({"a": "b"}, "not in the tree"), ({"a": "b", "b": "a"}, "circle"), ({}, "no model")],
)
def test_tree_refuses_what_is_no_tree(parents, message):
    with pytest.raises(InputError, match=message):
        figures.lineage_tree(parents, dict.fromkeys(parents, "f"), {})


def test_null_quantiles_say_whether_the_points_stay_inside():
    uniform = np.log10((np.arange(141) + 0.5) / 141)
    small = uniform * 2  # p squared: far too small
    figure = nulls.null_quantiles({"phi_u": uniform, "phi_h": small}, caption_extra="Pairs of the zoo.")
    assert "φ_U: n = 141, KS p = 1, all inside the band" in figure.caption
    assert re.search(r"φ_H: n = 141, KS p = \S+e-\d+, leaves the band", figure.caption)
    assert "Pairs of the zoo." in figure.caption


@pytest.mark.parametrize("values", [[], [0.5], [np.nan, -1.0], [-np.inf]])
def test_null_quantiles_refuse_what_is_no_p_value(values):
    with pytest.raises(InputError, match="phi_u"):
        nulls.null_quantiles({"phi_u": values})


def test_groups_that_overlap_are_said_to():
    apart = nulls.separation({"dependent": [3.0, 4.0], "independent": [1.0, 2.0]}, xlabel="JSD")
    assert "The groups do not overlap." in apart.caption
    mixed = nulls.separation({"dependent": [1.5, 4.0], "independent": [1.0, 2.0]}, xlabel="JSD")
    assert "1 of 2 dependent values lie among the independent ones" in mixed.caption
    with pytest.raises(InputError, match="dependent and independent"):
        nulls.separation({"dependent": [1.0]}, xlabel="JSD")


def test_raw_against_permtest_shows_both():
    figure = nulls.raw_against_permtest(
        {"dependent": [1.5, 4.0], "independent": [1.0, 2.0]},
        {"dependent": [-2.0, -2.0], "independent": [-0.1, -1.0]},
        xlabel="phi_l2",
        n_permutations=99,
    )
    assert "Raw distance: the groups overlap" in figure.caption
    assert "PERMTEST p-value: the groups do not overlap" in figure.caption
    assert len(figure.figure.axes) == 2


def test_block_bars_hold_every_block():
    figure = plots.block_bars({"phi_u": [-500.0, -3.0], "phi_h": [-1.0, np.nan]}, {"phi_u": FLOOR})
    assert "φ_U from -3.0 to -500.0; φ_H all -1.0" in figure.caption
    heights = [bar.get_height() for bar in figure.figure.axes[0].patches]
    assert heights == [500.0, 3.0]


def test_block_bars_of_all_statistics_stand_in_rows_that_can_be_read():
    blocks = {name: [-500.0, -3.0, -1.0, -2.0] for name in SHOWN}
    figure = plots.block_bars(blocks, dict.fromkeys(SHOWN, FLOOR)).figure
    assert len(figure.axes) == len(SHOWN)
    assert {axes.get_position().y0 > 0.5 for axes in figure.axes} == {True, False}
    assert legible.faults(figure) == []


def test_names_at_the_ends_of_curves_do_not_overlap():
    same = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    figure = curves.curve(dict.fromkeys("abc", same), xlabel="x", ylabel="y", caption="One curve three times.")
    figure.figure.draw_without_rendering()
    axes = figure.figure.axes[0]
    boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == 3
    assert all(above.y0 >= below.y1 for below, above in itertools.pairwise(boxes))


def test_names_do_not_overlap_where_heights_are_far_apart():
    """Limits of 0 to 1 are those of axes that nobody has drawn: by them 8.1 and 8.2 are far from each other."""
    lines = {f"{n} units": pd.DataFrame({"x": [0.0, 90.0], "y": [0.0, n]}) for n in (8.13, 8.08, 5.1, 1.6)}
    figure = curves.curve(lines, xlabel="x", ylabel="y", caption="Two that end together.").figure
    assert legible.faults(figure) == []


@pytest.mark.parametrize("factor", [1.5, 2.0, 5.0, 15.0, 100.0])
def test_numbers_of_a_short_logarithmic_axis_do_not_overlap(factor):
    """Where at most one of 1, 2, 5, 10 lies on it, matplotlib's own rule names each small step."""
    data = pd.DataFrame({"x": 1600 * np.linspace(1, factor, 3), "y": 0.001 * np.linspace(1, factor, 3)})
    figure = curves.curve({"a": data}, xlabel="x", ylabel="y", caption="One curve.", logx=True, logy=True).figure
    assert legible.faults(figure) == []


def test_a_curve_is_drawn_on_a_logarithmic_axis():
    data = pd.DataFrame({"x": [2, 1], "y": [1.0, 2.0], "low": [0.5, 1.5], "high": [1.5, 2.5]})
    assert curves.curve({"a": data}, xlabel="steps", ylabel="loss", caption="Falls.", logx=True).png()


@pytest.mark.parametrize(("low", "times"), [(1.6e3, 2.0), (1.2e5, 1.3), (1.1e-4, 6.0), (1.6, 12.0), (1.3e3, 50.0)])
def test_a_short_logarithmic_axis_has_two_numbers_that_can_be_read(low, times):
    data = pd.DataFrame({"x": np.geomspace(low, times * low, 4), "y": np.geomspace(100, 4000, 4)})
    figure = curves.curve({"a": data}, xlabel="draws", ylabel="y", caption="Grows.", logx=True, logy=True).figure
    assert legible.faults(figure) == []
    axis = figure.axes[0].xaxis
    bottom, top = axis.get_view_interval()
    assert sum(bottom <= place <= top for place in axis.get_majorticklocs()) >= 2


def test_every_figure_has_words(log10_p, truth):
    drawn = [
        plots.pair_heatmap(log10_p, FAMILIES, statistic="phi_u", truth=truth),
        nulls.null_quantiles({"phi_u": [-0.5, -0.1]}),
    ]
    assert all(len(figure.alt) > 30 and "$" not in figure.alt + figure.caption for figure in drawn)


def test_a_table_writes_numbers_as_everywhere():
    frame = pd.DataFrame(
        {
            "model": ["oak", "<elm>"],
            "parent": [None, "oak"],
            "steps": [900, 1240],
            "log10 p": [-7520.2, float("nan")],
            "loss": [3.0, 2.456],
        }
    )
    shown = plots.table(frame, caption="What & why")._repr_html_()
    rows = re.findall(r"<tr>(.*?)</tr>", shown)
    assert re.findall(r"<th scope='col'>(.*?)</th>", rows[0]) == list(frame.columns)  # a plain numbering is left out
    cells = [re.findall(r"<td(.*?)>(.*?)</td>", row) for row in rows[1:]]
    number, text = " class=number", ""
    assert cells[0] == [(text, "oak"), (text, "–"), (number, "900"), (number, "-7,520.2"), (number, "3.00")]
    assert cells[1] == [(text, "&lt;elm&gt;"), (text, "oak"), (number, "1,240"), (text, "–"), (number, "2.46")]
    assert "<caption>What &amp; why</caption>" in shown


def test_a_table_keeps_named_rows():
    frame = pd.DataFrame({"p": [0.5]}, index=pd.Index(["phi_u"], name="statistic"))
    shown = plots.table(frame)._repr_html_()
    assert "<th scope='col'>statistic</th><th scope='col'>p</th>" in shown
    assert "<th scope='row'>phi_u</th>" in shown


def test_rows_with_a_named_number_keep_it():
    """Evenly spaced labels are a RangeIndex to pandas, as mere row numbers are."""
    named = pd.DataFrame({"size": [0.05, 0.06]}, index=pd.RangeIndex(6, 10, 2, name="units"))
    assert "<th scope='row'>8</th>" in plots.table(named)._repr_html_()
    assert "scope='row'" not in plots.table(named.reset_index(drop=True))._repr_html_()


def test_a_caption_shows_what_to_see_and_folds_how_it_was_made():
    canvas, _ = plt.subplots()
    drawn = plots.Figure(
        canvas, "All meet at p = 0.01. See the line. Bars: 95%. n = 3.", "$-\\log_{10}\\,p$ against bits"
    )
    shown = drawn.to_html()
    made = "<details><summary>How it was made</summary>Bars: 95%. n = 3.</details>"
    assert f"<figcaption>All meet at p = 0.01. See the line.{made}</figcaption>" in shown
    assert 'alt="-log10 p against bits"' in shown
    assert "<details>" not in plots.Figure(canvas, "All meet. See the line.", "x").to_html()
