"""Spots lie where the picture shows what they say: the picture's own pixels are asked."""

import io
import re

import check_axe
import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from provlab import plots
from provlab.modeldiff.marks import densities
from provlab.plots import explore, style
from provlab_study.llama_tree.figures import lineage_tree
from provlab_study.matching_and_pvalues.figures import partners

NAMES = ["oak", "oak-chat", "elm", "fir"]
KIN = {("oak", "oak-chat"), ("oak-chat", "oak")}


def heatmap():
    pairs = pd.DataFrame({b: {a: -300.0 if (a, b) in KIN else -0.5 for a in NAMES} for b in NAMES})
    truth = pd.DataFrame({b: {a: (a, b) in KIN for a in NAMES} for b in NAMES})
    families = {"oak": "oak", "oak-chat": "oak", "elm": "elm", "fir": "fir"}
    return plots.pair_heatmap(pairs, families, statistic="phi_u", truth=truth)


def drawn(figure, at=0.5):
    """Return the picture's pixels, and (text, [a place in each box, in pixels]) of each spot of its overlay."""
    pixels = image.imread(io.BytesIO(figure.png()))[:, :, :3]
    svg = explore.overlay(figure.figure, figure.spots)
    width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())
    scale = pixels.shape[1] / width
    assert pixels.shape[0] == pytest.approx(height * scale, abs=2)
    result = []
    for outline, text in re.findall(r'<path d="([^"]+)"><title>([^<]+)</title>', svg):
        boxes = re.findall(r"M([\d.-]+),([\d.-]+)h([\d.]+)v([\d.]+)h", outline)
        places = [tuple(map(float, box)) for box in boxes]
        result.append((text, [(int((y + h * at) * scale), int((x + w * at) * scale)) for x, y, w, h in places]))
    return pixels, result


def test_each_cell_of_the_heatmap_says_its_pair_and_the_truth_opposite():
    pixels, spots = drawn(heatmap(), at=0.15)  # beside the numbers
    assert len(spots) == 6
    by_text = {text: [pixels[place] for place in places] for text, places in spots}
    kin, other = (
        by_text["oak-chat and oak: φ_U, log10 p = -300.0, dependent at 0.01; by lineage dependent"],
        by_text["fir and elm: φ_U, log10 p = -0.5, not called dependent at 0.01; by lineage independent"],
    )
    assert kin[0].mean() < 0.5 < other[0].mean()  # strong evidence is dark
    assert other[1] == pytest.approx(np.asarray(to_rgb("#d6e6f2")), abs=0.02)  # the truth above the diagonal


def test_spots_follow_a_scatter_of_points():
    pixels, spots = drawn(partners({"copy": np.arange(24), "shuffled": np.arange(24)[::-1]}, caption="Two pairs."))
    assert spots[3][0] == "copy: unit 3 is matched with unit 3, its own place"
    assert spots[27][0] == "shuffled: unit 3 is matched with unit 20"
    for (_, places), color in ((spots[3], style.DEPENDENT), (spots[27], style.INDEPENDENT)):
        row, column = places[0]  # of the mark's middle, which is hollow
        around = pixels[row - 6 : row + 7, column - 6 : column + 7].reshape(-1, 3)
        assert np.abs(around - to_rgb(color)).sum(axis=1).min() < 0.1


def test_densities_say_every_model_of_a_bin():
    rows = {"x": [1.0, 2.0], "y": [3.0, 9.0], "low": [2.5, 8.5], "high": [3.5, 9.5], "seen": [2.0, 2.0]}
    other = {**rows, "y": [np.nan, 8.0], "seen": [1.0, 2.0]}
    figure = densities({"oak": pd.DataFrame(rows), "elm": pd.DataFrame(other)}, xlabel="NLL", caption="Two models.")
    assert [spot.text for spot in figure.spots] == [
        "NLL 1.00: oak 10^3.0 (10^2.5 to 10^3.5); elm at least the 10 that were drawn",
        "NLL 2.00: oak 10^9.0 (10^8.5 to 10^9.5); elm 10^8.0 (10^8.5 to 10^9.5)",
    ]


def test_print_takes_the_still_picture():
    data, _ = heatmap()._repr_mimebundle_()
    assert {"image/png", "text/html"} <= set(data)
    assert "<svg" in data["text/html"]
    assert 'aria-hidden="true"' in data["text/html"]


def test_the_tree_is_a_list_on_a_phone():
    parents = {"oak": None, "oak-chat": "oak", "oak-<b>": "oak-chat", "elm": None}
    figure = lineage_tree(parents, {name: name[:3] for name in parents}, {"oak-chat": "chat tune"})
    assert figure.narrow == (
        "<ul><li><strong>oak</strong><ul><li>oak-chat <span>chat tune</span><ul><li>oak-&lt;b&gt;</li></ul></li></ul>"
        "</li><li><strong>elm</strong></li></ul>"
    )
    assert figure.narrow in figure.to_html()


@pytest.mark.skipif(check_axe.installed() is None, reason="no Chromium on this machine")
def test_the_book_s_script_answers_a_mouse_and_keys(tmp_path):
    assets = check_axe.Path(check_axe.__file__).parents[2] / "book" / "_assets"
    page = tmp_path / "index.html"
    page.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"/><script>{(assets / "provlab.js").read_text(encoding="utf-8")}</script>'
        f"<style>{(assets / 'provlab.css').read_text(encoding='utf-8')}</style>{heatmap().to_html()}",
        encoding="utf-8",
    )
    message = "document.querySelector('.provlab-readout output').textContent"
    with check_axe.browser(check_axe.installed()) as chromium:
        chromium.screen(check_axe.DESKTOP)
        chromium.open(page)
        x, y = chromium.value(
            "(box => [box.x + box.width / 2, box.y + box.height / 2])"
            "(document.querySelectorAll('.provlab-spots path')[5].getBoundingClientRect())"
        )
        chromium.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        pointed = chromium.value(message)
        chromium.value("document.querySelector('.provlab-readout input').focus()")
        pressed = {}
        for key in ("Home", "ArrowRight", "ArrowDown", "ArrowUp"):
            for kind in ("keyDown", "keyUp"):
                chromium.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])
            pressed[key] = chromium.value(message).split(":")[0]
    assert pointed.startswith("fir and elm: φ_U, log10 p = -0.5")
    assert pressed == {
        "Home": "oak-chat and oak", "ArrowRight": "elm and oak", "ArrowDown": "fir and oak", "ArrowUp": "elm and oak"
    }  # fmt: skip


KEYS = {"Home": 36, "ArrowRight": 39, "ArrowDown": 40, "ArrowUp": 38}
