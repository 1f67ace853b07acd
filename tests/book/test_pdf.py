"""The book as one PDF: HTML of the pages becomes LaTeX's own, nothing is lost unseen, and no LaTeX is one line."""

import base64
import importlib
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from docutils import nodes
from sphinx import addnodes

BOOK = Path(__file__).parents[2] / "book"
PNG = base64.b64encode(b"a picture").decode()


@pytest.fixture(scope="module", autouse=True)
def scripts():
    sys.path.insert(0, str(BOOK))
    yield
    sys.path.remove(str(BOOK))


@pytest.fixture
def printed():
    return importlib.import_module("printed")


@pytest.fixture
def pdf():
    return importlib.import_module("pdf")


def found(made, kind):
    return [node for one in made for node in one.findall(kind)]


def test_a_table_keeps_every_cell_its_caption_and_the_side_of_its_numbers(printed):
    made = printed.blocks(
        "<table class=provlab-table><caption>Two &amp; two</caption>"
        "<thead><tr><th>pair</th><th>log10 p</th></tr></thead><tbody>"
        "<tr><td>oak</td><td class=number>-2.0</td></tr><tr><td>elm</td></tr></tbody></table>"
    )
    assert [row.astext() for row in found(made, nodes.entry)] == ["pair", "log10 p", "oak", "-2.0", "elm", ""]
    assert found(made, nodes.title)[0].astext() == "Two & two"
    assert len(found(made, nodes.thead)[0].children) == 1
    assert found(made, addnodes.tabular_col_spec)[0]["spec"] == "lr"


def test_a_wide_table_is_set_smaller_and_folds_within_the_page(printed):
    text = "a sentence that says what was found and why " * 20
    size, spec, lines = printed.columns(
        [["name"] * 6, ["a_long_name_of_a_model/with_a_path", *[text] * 5]], [False] * 6
    )
    parts = [int(part) for part in re.findall(r"X\{(\d+)\}\{1000\}", spec)]
    assert size in list(printed.SIZES)[1:]
    assert len(parts) == 6
    assert 20 < lines < 100
    assert sum(parts) <= 1003


def test_a_table_too_wide_for_any_size_is_turned_and_not_made_illegible(printed):
    cells = "".join("<td>77/77 (0.99 to 1.00); 0/7 (0.00 to 0.41)</td>" for _ in range(8))
    made = printed.blocks(f"<table><tr><td>identity=1+T1+T2</td>{cells}</tr></table>")
    assert [node.astext() for node in made if isinstance(node, nodes.raw)] == list(printed.TURNED)
    assert "tiny" not in printed.SIZES


def test_a_narrow_column_is_counted_in_the_words_that_fit_its_lines(printed):
    assert printed._folded("configuration and tokenizer, cosine", 13) == 4  # 35 letters, but words are not cut
    others = ["minilm-l6 and e5-pruned", "-25,353.5", "9,216 of 9,216", "-827.3", "384 of 384", "dependent"]
    accused = "7 of 7: configuration and tokenizer, cosine of norm weights, spread of all projections, sketches"
    size, _, lines = printed.columns([[*others, accused]] * 12, [False] * 7)
    assert size != "small"
    assert lines > printed.ONE_PAGE


def test_long_words_can_be_broken_and_numbers_cannot(printed):
    assert printed.broken_up("models/llama_tree").split(printed.BREAK) == ["models/", "llama_", "tree"]
    assert printed.broken_up("0123456789abcdef" * 4).count(printed.BREAK) == 3
    assert printed.broken_up("-1,234,567.8901") == "-1,234,567.8901"


def test_a_long_table_runs_over_pages(printed):
    rows = "<tr><td>a</td></tr>" * 40
    assert "longtable" in found(printed.blocks(f"<table>{rows}</table>"), nodes.table)[0]["classes"]


def test_details_pictures_and_lists_are_shown_and_what_a_browser_runs_is_not(printed):
    made = printed.blocks(
        f"<style>p {{}}</style><script>run()</script><div><p>One <b>bold</b></p>"
        f"<details><summary>More</summary><ul><li>two</li></ul></details>"
        f"<figure><img src='data:image/png;base64,{PNG}'/><figcaption>Seen</figcaption></figure></div>"
    )
    text = " ".join(node.astext() for node in made)
    assert all(word in text for word in ("One bold", "More", "two", "Seen"))
    assert "run()" not in text
    assert "{}" not in text
    assert len(found(made, nodes.image)) == 1


def test_parts_of_a_cell_that_a_screen_sets_apart_do_not_run_together(printed):
    cell = "<details><summary>It holds</summary><dl><dt>Published</dt><dd>97</dd></dl></details>"
    made = printed.blocks(f"<table><tr><td>{cell}</td></tr></table>")
    assert found(made, nodes.entry)[0].astext().split() == ["It", "holds", "Published", "97"]


def test_tiles_are_printed_as_one_line(printed):
    made = printed.blocks("<ul><li><a href='#d1'>D1<span>holds</span></a></li><li>D2</li></ul>")
    assert [node.astext() for node in made] == ["D1 holds · D2"]


@pytest.mark.parametrize("glued", ["", "application/papermill.record/"])
def test_a_figure_is_printed_as_its_still_picture_with_its_caption_and_folded_code_is_left_out(pdf, glued):
    explorable = (
        "<figure><script>slide()</script><input type=range><figcaption>As the width grows</figcaption></figure>"
    )
    output = nbformat.v4.new_output("display_data", {f"{glued}image/png": PNG, f"{glued}text/html": explorable})
    cell = nbformat.v4.new_code_cell("draw()", outputs=[output], metadata={"tags": ["hide-input"]})
    pdf.printed(cell)
    html = cell.outputs[0].data[f"{glued}text/html"]
    assert PNG in html
    assert "As the width grows" in html
    assert "slide()" not in html
    assert cell.metadata.tags == ["remove-input"]


@pytest.fixture
def pages(pdf, tmp_path, monkeypatch):
    """A book of two pages with a picture, an equation and two headings."""
    monkeypatch.setattr(pdf, "contents", lambda: (["glossary", "experiments/tree"], {"glossary": "Look up"}))
    (tmp_path / "experiments").mkdir()
    (tmp_path / "index.md").write_text("# The book\n\nA page.\n")
    (tmp_path / "glossary.md").write_text("```{raw} latex\n\\part{Look up}\n```\n\n# Words & signs\n\n$$\np = 1\n$$\n")
    output = nbformat.v4.new_output("display_data", {"text/html": f"<figure><img src='data:image/png;base64,{PNG}'/>"})
    cells = [nbformat.v4.new_markdown_cell("# The tree"), nbformat.v4.new_code_cell("", outputs=[output])]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "experiments" / "tree.ipynb")
    return tmp_path


WHOLE = r"""\chapter{Words \& signs}
\begin{equation*}\end{equation*}
\chapter{The tree}
\sphinxincludegraphics{a.png}"""


def test_a_whole_book_has_no_fault(pdf, pages):
    assert pdf.expected(pages) == (1, 1, ["Words & signs", "The tree"])
    assert pdf.faults(pages, WHOLE, "Output written on book.xdv (7 pages, 100 bytes).") == []


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (r"\sphinxincludegraphics{a.png}", "1 of 1 pictures are missing"),
        (r"\begin{equation*}", "1 of 1 equations are missing"),
        (r"\chapter{The tree}", "no chapter 'The tree'"),
    ],
)
def test_what_is_lost_is_found(pdf, pages, lost, said):
    assert pdf.faults(pages, WHOLE.replace(lost, ""), "") == [said]


def test_an_open_reference_is_found(pdf, pages):
    log = "LaTeX Warning: Reference `eq:1' on page 3 undefined on input line 9."
    assert pdf.faults(pages, WHOLE, log) == ["Reference `eq:1' on page 3 undefined"]


def test_without_latex_one_line_says_what_to_install(tmp_path):
    made = subprocess.run(
        [sys.executable, BOOK / "pdf.py", "--tools"], capture_output=True, text=True, env={"PATH": str(tmp_path)}
    )
    assert made.returncode == 2
    assert made.stderr.count("\n") == 1
    assert "apt-get install latexmk texlive-xetex" in made.stderr


def test_pages_that_are_not_computed_are_named_in_one_line(pdf, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pdf, "missing", lambda: None)
    monkeypatch.setattr(pdf, "ROOT", tmp_path)
    assert pdf.main(["smoke"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "make notebooks PROFILE=smoke" in said
