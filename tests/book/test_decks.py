"""The two decks of the front page: the p-value is the library's, and each button changes what is said."""

import check_axe
import numpy as np
import pytest

from provlab.inference import pvalues

ASSETS = check_axe.AXE.parents[3] / "book" / "_assets"
PAGE = """<!DOCTYPE html><html lang="en"><head><title>Decks</title><meta charset="utf-8"/></head><body><main>
<div id="provlab-decks"></div><script src="{script}"></script></main></body></html>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if (program := check_axe.installed()) is None:
        pytest.skip("no Chromium on this machine")
    path = tmp_path_factory.mktemp("decks") / "index.html"
    path.write_text(PAGE.format(script=(ASSETS / "decks.js").as_uri()), encoding="utf-8")
    with check_axe.browser(program) as chromium:
        chromium.open(path)
        yield chromium


def test_the_decks_p_value_is_that_of_the_library(page):
    rng = np.random.default_rng(3)
    for _ in range(30):
        order = rng.permutation(8)
        there = page.value(f"provlabDecks.judged({order.tolist()}, provlabDecks.orders(8))")
        here = pvalues.spearman(order)
        assert there["all"] == 40320
        assert there["rho"] == pytest.approx(here.rho, abs=1e-12)
        assert np.log10(there["better"] / there["all"]) == pytest.approx(here.log10_p, abs=1e-9)


def test_the_buttons_move_cards_and_say_what_that_means(page):
    text = "document.querySelector('#provlab-decks .said').textContent"
    shuffle, exchange, same = (f"document.querySelectorAll('#provlab-decks button')[{i}].click()" for i in range(3))
    assert "1 of all 40,320 orders agrees at least so well: p = 2.5e-5" in page.value(text)  # 1 / 8!
    page.value(f"{exchange}; 1")
    # 1 - 6 * 2 / (8 * 63), which the order itself and seven exchanges of neighbours reach
    assert "= 0.98. 8 of all 40,320 orders agree at least so well: p = 2.0e-4" in page.value(text)
    page.value(f"{shuffle}; 1")
    assert "the smallest" not in page.value(text)
    page.value(f"{same}; 1")
    assert "the smallest that 8 cards can give" in page.value(text)
