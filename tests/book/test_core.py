"""A first reading of a page stays short: the rest folds, and opens for a link into it and for a printer."""

import json
import sys
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[2] / "book"
ROWS = "".join(f"<tr><td>{i}</td></tr>" for i in range(9))
TABLE = f"""<div class="cell_output"><table><caption>Nine</caption><tbody>{ROWS}</tbody></table>
<table id="unnamed"><tbody>{ROWS}</tbody></table></div>"""
CODE = '<div class="cell_input"><pre>' + "x = 1\n" * 12 + "</pre></div>"
PAGE = f"""<!DOCTYPE html><html lang="en"><head><title>x</title>
<link rel="stylesheet" href="{(BOOK / "_assets" / "provlab.css").as_uri()}"></head>
<body><article><section id="page"><h1>Page</h1>
<p>The finding.</p><p>What the paper claims. Much.</p><p>What you will learn</p><ul><li>how</li></ul><p>Needs: time.</p>
<section id="parameters"><h2>Parameters</h2>{CODE}</section>
<section id="method"><h2>Method</h2><p>A formula.</p>{CODE}{TABLE}
<section id="aside"><h3>Aside<a class="headerlink" href="#aside">#</a></h3><p id="in-aside">More.</p></section>
</section>
<section id="limits"><h2>What this does not show</h2><p>Much.</p></section>
<section id="for-the-record"><h2>For the record</h2><p>Counts.</p></section>
<section id="counts"><h2>Counts</h2><p id="in-counts">3</p>{CODE}
<section id="deep"><h3>Deep</h3><p>4</p></section></section>
<section id="exercises"><h2>Exercises</h2><p>Try.</p></section>
</section></article><script src="{(BOOK / "_assets" / "provlab.js").as_uri()}"></script></body></html>"""


@pytest.fixture(scope="module")
def chromium():
    sys.path.insert(0, str(BOOK))
    try:
        import browser
    finally:
        sys.path.remove(str(BOOK))
    if browser.installed() is None:
        pytest.skip("no Chromium on this machine")
    with browser.browser(browser.installed()) as started:
        yield started


@pytest.fixture
def page(chromium, tmp_path):
    """The page, opened; what a script gives on it."""
    path = tmp_path / "page.html"
    path.write_text(PAGE, encoding="utf-8")
    chromium.open(path)
    return chromium.value


def test_a_first_reading_has_the_finding_the_method_and_the_limits(page):
    assert page("[...document.querySelectorAll('details')].some((one) => one.open)") is False
    titles = page("[...document.querySelectorAll('details > summary')].map((one) => one.textContent.trim())")
    assert titles == [
        "Aims, needs, parameters and set-up",
        "Nine (9 rows)",
        "Aside",
        "Counts",
    ]
    open_words = page(
        "[...document.querySelectorAll('p')].filter((p) => !p.closest('details')).map((p) => p.textContent)"
    )
    assert open_words == ["The finding.", "What the paper claims. Much.", "A formula.", "Much.", "Counts.", "Try."]


def test_long_code_of_a_first_reading_shows_its_first_lines_until_somebody_asks(page):
    clipped = "[...document.querySelectorAll('pre.clipped')].map((one) => one.closest('section').id)"
    assert page(clipped) == ["parameters", "method"]
    page("document.querySelector('#method .provlab-all').click()")
    assert page(clipped) == ["parameters"]


def test_a_long_table_that_no_caption_names_shows_its_first_rows(page):
    shown = "[...document.querySelectorAll('#unnamed tr')].filter((row) => row.checkVisibility()).length"
    assert page(shown) == 5
    asks = "document.querySelector('#unnamed + .provlab-all')"
    assert page(f"{asks}.getBoundingClientRect().height") >= 24  # pixels that a finger needs
    page(f"{asks}.click()")
    assert page(shown) == 9


@pytest.mark.parametrize("name", ["parameters", "in-aside", "in-counts"])
def test_a_link_opens_the_fold_that_it_leads_into(page, name):
    listens = "addEventListener('hashchange', () => setTimeout(done, 50))"
    page(f"new Promise((done) => {{ {listens}; location.hash = '{name}'; }})")
    assert page(f"document.getElementById('{name}').closest('details').open") is True


def test_a_printer_opens_all(page):
    page("dispatchEvent(new Event('beforeprint'))")
    assert page("[...document.querySelectorAll('details')].every((one) => one.open)") is True
    assert page("document.querySelectorAll('.clipped').length") == 0


FORMULAS = r"""<!DOCTYPE html><html lang="en"><head><title>x</title>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<link rel="stylesheet" href="ASSETS/provlab.css">
<style>span.math { display: inline-flex; max-width: 100%; overflow: hidden }</style>
<script>window.MathJax = {options: {processHtmlClass: "math"}}</script>
<script defer src="ASSETS/mathjax/tex-svg.js"></script><script src="ASSETS/provlab.js"></script></head>
<body><article class="bd-article">
<p>By hand: <span class="math">\(6^{-4}\,(1 + 7.17 + 7.17^2/2 + 7.17^3/6 + 7.17^4/24)
= 0.073\)</span>.</p>
<p>So (<span class="math">\(x = \left(1, 2\right)\)</span>) it is.</p>
<div class="math">
\[\phi_{U^{(\ell)}}(\theta_1, \theta_2)
= \rho\big(\mathrm{MATCH}(U_1^{(\ell)}, U_2^{(\ell)}),[1, \dots, h]\big)\]</div>
<div class="math apart">
\[\phi_0 = \phi(\theta_1, \theta_2) \qquad\text{with}\qquad \phi_t = \phi(\pi_t(\theta_1), \theta_2),
\quad t = 1, \dots, T\]</div>
<div class="math apart">
\[\begin{split}W = \begin{pmatrix} G \\ U \end{pmatrix} \in \mathbb{R}^{2h \times d}, \qquad
f(x) = D\bigl(G x \odot U x\bigr)
\end{split}\]</div>
</article></body></html>""".replace("ASSETS", (BOOK / "_assets").as_uri())


def test_a_formula_keeps_its_result_on_a_phone(chromium, tmp_path):
    path = tmp_path / "formulas.html"
    path.write_text(FORMULAS, encoding="utf-8")
    chromium.screen((390, 844))
    chromium.open(path)
    drawn = chromium.value("document.querySelectorAll('mjx-container > svg').length")
    assert drawn > 3  # the long one in pieces
    # what opens and closes a sentence stays beside its formula
    assert chromium.value("[...document.querySelectorAll('p .math')].map((one) => one.textContent.at(-1))") == [
        ".",
        ")",
    ]
    # statements that stood apart, one below the other
    stand = (
        "[...document.querySelectorAll('.apart mjx-container > svg')].map((one) => one.getBoundingClientRect().height)"
    )
    assert min(chromium.value(stand)) > 60
    edges = "[...document.querySelectorAll('mjx-container > svg')].map((one) => one.getBoundingClientRect().right)"
    assert max(chromium.value(edges)) <= 390


@pytest.mark.parametrize(
    ("tex", "pieces"),
    [
        ("p = 1/6", ["p = 1/6"]),  # short: in one piece
        (r"\log_{10} p = -12 \times 3.25 = -39.0", [r"\log_{10} p ={}", r" -12 \times 3.25 ={}", " -39.0"]),
        (r"\left(x = 1, y = 2222222222222222\right)", [r"\left(x = 1, y = 2222222222222222\right)"]),
        (r"\frac{a = b = c = d = e = f = g}{x}", [r"\frac{a = b = c = d = e = f = g}{x}"]),
        (  # an index stays with its sum
            r"2\sum_i \langle W_{1,i}, W_{2,\pi(i)}\rangle + 1111111111 + 2222222222",
            [r"2\sum_i \langle W_{1,i},", r" W_{2,\pi(i)}\rangle +{}", " 1111111111 +{}", " 2222222222"],
        ),
        (
            r"\theta = (11.1, 22.2, 33.3, 44.4, 55.5)",
            [r"\theta ={}", " (11.1,", " 22.2,", " 33.3,", " 44.4,", " 55.5)"],
        ),
    ],
)
def test_a_long_formula_breaks_behind_a_relation_and_nowhere_within_brackets_that_tex_keeps(page, tex, pieces):
    assert page(f"pieces({json.dumps(tex)})") == pieces


def test_on_a_phone_a_table_that_goes_on_says_so_and_names_stay_whole(chromium, tmp_path):
    wide = "".join(f"<td>{'9' * 9}</td>" for _ in range(9))
    table = f"<table><tr><td>phi_match_unsigned</td>{wide}</tr></table>"
    path = tmp_path / "page.html"
    page = PAGE.replace("<p>A formula.</p>", f"<main><div class='comparison'>{table}</div></main>")
    path.write_text(page.replace("<head>", "<head><meta name='viewport' content='width=device-width'>"))
    chromium.screen((390, 844))
    try:
        chromium.open(path)
        assert chromium.value("document.querySelector('.provlab-swipe')?.textContent").startswith("The table goes on")
        assert chromium.value("document.querySelector('.comparison td').getClientRects()[0].height") < 40
        assert chromium.errors() == []
    finally:
        chromium.screen((1280, 900))
