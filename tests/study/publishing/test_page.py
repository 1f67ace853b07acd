"""An executed notebook as a page: the opening picture moves once, what is folded stays, a page without it is whole."""

from copy import deepcopy

import nbformat
import pytest
from myst_nb.ext.glue import extract_glue_data_cell
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from small_notebooks import write

from provlab_study.publishing import runner
from provlab_study.publishing.evidence import FAILS, HOLDS, WITHIN_SPREAD, ClaimStatus
from provlab_study.publishing.experiment import Run
from provlab_study.publishing.judgement import Judgement, Shown, truth
from provlab_study.publishing.marks import MARKS, UNDECIDED
from provlab_study.publishing.page import WIDGET, arrange
from provlab_study.publishing.results import Results

TITLE = "# A tree\n\nEvery pair is\nfound.\n\n**What the paper claims.** Much.\n\n## Parameters"
FIGURE = '<figure class="provlab-figure"><img alt="x"/><figcaption>What to see.</figcaption></figure>'


def shown(html):
    return new_output("display_data", data={"text/html": html, "text/plain": "x"})


def notebook(*outputs, title=TITLE):
    return new_notebook(
        cells=[
            new_markdown_cell(title),
            new_code_cell("seed: int = 0", metadata={"tags": ["parameters"]}),
            new_code_cell("seed = 1", metadata={"tags": ["injected-parameters"]}),
            new_code_cell('run = provlab_study.begin("tree", globals())'),
            new_markdown_cell("## Result"),
            new_code_cell("draw()", metadata={"tags": ["hide-input", "opening"]}, outputs=list(outputs)),
            new_code_cell("run.finish()"),
        ]
    )


def glued(page):
    """What the book finds under the name, by its own reader."""
    cells = (cell for cell in deepcopy(page.cells) if cell.cell_type == "code")
    return dict(pair for cell in cells for pair in extract_glue_data_cell(cell))["opening"].data


def outputs_of(page):
    return [o.data["text/html"] for cell in page.cells for o in cell.get("outputs", []) if "data" in o]


def test_the_picture_stands_under_the_finding_and_nowhere_else():
    page = notebook(shown("<table>1</table>"), shown(FIGURE), shown(FIGURE.replace("What", "And what")))
    arrange(page)
    nbformat.validate(page)
    title, picture, rest = page.cells[:3]
    assert title.source == "# A tree\n\nEvery pair is\nfound."
    assert picture.outputs[0].data["text/html"] == f'<div id="opening">{FIGURE}</div>'
    assert "remove-input" in picture.metadata.tags
    assert FIGURE in glued(page)["text/html"]  # other pages can show it
    assert len(picture.outputs) == 1
    assert rest.source == "**What the paper claims.** Much.\n\n## Parameters"
    assert sum(FIGURE in html for html in outputs_of(page)) == 1
    # the fold of its code says where it went; the cell's other outputs keep their order
    (drawn,) = (cell for cell in page.cells if cell.source == "draw()")
    assert drawn.outputs[0].data["text/html"] == "<table>1</table>"
    assert "And what" in drawn.outputs[1].data["text/html"]
    assert drawn.metadata.mystnb.code_prompt_show == "Show the code of the picture at the top of this page"


@pytest.mark.parametrize("outputs", [[], [new_output("stream", text="too few models")], [shown("<table>1</table>")]])
def test_a_page_without_its_picture_stays_whole(outputs):
    page = notebook(*outputs)
    arrange(page)
    nbformat.validate(page)
    assert [cell.source for cell in page.cells] == [cell.source for cell in notebook().cells]
    *kept, named = page.cells[5].outputs
    assert kept == outputs
    assert all(kind.startswith("application/papermill.record/") for kind in named.data)  # for other pages alone
    assert glued(page)["text/markdown"] == "*No picture could be drawn of these models.*"


def test_a_glued_picture_is_not_the_one_that_is_shown():
    kept = new_output("display_data", data={"application/papermill.record/text/html": FIGURE})
    page = notebook(kept, shown(FIGURE))
    arrange(page)
    (drawn,) = (cell for cell in page.cells if cell.source == "draw()")
    assert drawn.outputs[0] == kept
    assert FIGURE in page.cells[1].outputs[0].data["text/html"]


def test_no_widget_is_left():
    """A page would fetch scripts from a network to show one."""
    bar = new_output("display_data", data={WIDGET: {"model_id": "1"}})
    page = notebook(bar, shown(FIGURE))
    page.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    arrange(page)
    assert "widget" not in nbformat.writes(page)
    assert FIGURE in "".join(outputs_of(page))


def test_a_short_title_keeps_all_its_words():
    page = notebook(shown(FIGURE), title="# A tree")
    arrange(page)
    assert page.cells[0].source == "# A tree"
    assert page.cells[1].id == "opening-picture"
    assert page.cells[2].source.startswith("seed")


def test_parameters_and_set_up_are_folded():
    page = notebook()
    arrange(page)
    folded = {cell.source: (cell.metadata.tags, cell.metadata.mystnb.code_prompt_show) for cell in page.cells[1:4]}
    assert folded == {
        "seed: int = 0": (["parameters", "hide-input"], "Show the parameters"),
        "seed = 1": (["injected-parameters", "hide-input"], "Show the parameters of this run"),
        'run = provlab_study.begin("tree", globals())': (["hide-cell"], "Show the set-up"),
    }


def test_a_notebook_that_ran_is_a_page(tmp_path):
    path = write(tmp_path / "tree.ipynb", "1 + 1")
    runner.run(path, {"seed": 3}, tmp_path / "page.ipynb", progress=False)
    page = nbformat.read(tmp_path / "page.ipynb", as_version=4)
    assert [cell.metadata.tags[-1] for cell in page.cells[:2]] == ["hide-input"] * 2
    assert page.cells[1].source.startswith("# Parameters\nseed = 3")


def test_a_solution_in_cells_is_one_box_of_the_page():
    page = new_notebook(
        cells=[
            new_markdown_cell("```{exercise} Sums\n:label: sums\n\nAdd.\n```"),
            new_markdown_cell("```{solution-start} sums\n:class: dropdown\n```\n\nTwo."),
            new_code_cell("1 + 1  # 2", metadata={"tags": ["solution", "skip-execution"]}),
            new_markdown_cell("And again."),
            new_code_cell("1 + 1 + 1  # 3", metadata={"tags": ["solution", "skip-execution"]}),
            new_markdown_cell("```{solution-end}\n```"),
            new_code_cell("run.finish()"),
        ]
    )
    arrange(page)
    nbformat.validate(page)
    assert [cell.source for cell in page.cells] == [
        "```{exercise} Sums\n:label: sums\n\nAdd.\n```",
        "````{solution} sums\n:class: dropdown\n\nTwo.\n\n```python\n1 + 1  # 2\n```\n\nAnd again.\n\n"
        "```python\n1 + 1 + 1  # 3\n```\n````",
        "run.finish()",
    ]


@pytest.mark.parametrize(("holds", "mark"), MARKS.items())
def test_a_lead_and_a_sentence_that_the_records_contradict_are_marked(holds, mark, tmp_path):
    near = Judgement({}, ClaimStatus(WITHIN_SPREAD, "", ""), {}, "default")
    support = near if holds == UNDECIDED else Shown("Counts", holds, "3 of 4; 7 in all")
    sentence = Run("tree", {}, Results(tmp_path)).summary(support, (Shown("Counts", truth(support)), "All agree."))
    data, metadata = sentence._repr_mimebundle_()
    page = notebook(shown(FIGURE), new_output("display_data", data=data, metadata=metadata))
    arrange(page)
    nbformat.validate(page)
    seen = " *Seen: 3 of 4.*" if holds is False else ""  # a lead that is denied says what the run has in its place
    assert page.cells[0].source == f"# A tree\n\n{mark}Every pair is\nfound.{seen}"
    assert f"- {mark}All agree." in [cell.source for cell in page.cells]
    assert not any(
        "text/markdown" in output.get("data", {}) for cell in page.cells for output in cell.get("outputs", [])
    )


def test_the_summary_ends_the_first_reading_with_its_heading_and_its_words(tmp_path):
    sentence = Run("tree", {}, Results(tmp_path)).summary(True, (Shown("Counts", True), "All agree."))
    data, metadata = sentence._repr_mimebundle_()
    page = new_notebook(
        cells=[
            new_markdown_cell("# A tree\n\nEvery pair is found."),
            new_markdown_cell("## What this does not show\n\nMuch.\n\n## For the record\n\nMore counts.\n\n## Counts"),
            new_markdown_cell("## Exercises\n\nOne.\n\n## Summary\n\nA rejection is no guilt."),
            new_code_cell("run.summary(...)", outputs=[new_output("display_data", data=data, metadata=metadata)]),
            new_markdown_cell("## References"),
        ]
    )
    arrange(page)
    nbformat.validate(page)
    assert [cell.source for cell in page.cells if cell.cell_type == "markdown"] == [
        "# A tree\n\nEvery pair is found.",
        "## What this does not show\n\nMuch.",
        "## Summary\n\nA rejection is no guilt.\n\n- All agree.",
        "## For the record\n\nMore counts.\n\n## Counts",
        "## Exercises\n\nOne.",
        "## References",
    ]


def test_the_opening_picture_stands_once_even_where_a_report_draws_it_again():
    picture, other = (FIGURE.replace("<img", f'<img src="data:{name}"') for name in ("one", "other"))
    page = notebook(shown(picture))
    page.cells[4:4] = [new_code_cell("report", outputs=[shown(f"<table>1</table>{picture}{other}")])]
    arrange(page)
    (report,) = (cell for cell in page.cells if cell.source == "report")
    html = report.outputs[0].data["text/html"]
    assert html.startswith("<table>1</table><p")
    assert 'href="#opening"' in html
    assert other in html
    assert sum(picture in html for html in outputs_of(page)) == 1


def test_a_fold_is_named_by_what_it_holds():
    page = notebook(shown(FIGURE))
    hidden = {"tags": ["hide-input"]}
    page.cells += [
        new_code_cell("table(parameters)", metadata=dict(hidden), outputs=[shown("<table>1</table>")]),
        new_code_cell("figure(parameters)", metadata=dict(hidden), outputs=[shown(FIGURE.replace("x", "y"))]),
        new_code_cell("measured = parameters"),
    ]
    arrange(page)
    named = {cell.source: cell.metadata.get("mystnb", {}).get("code_prompt_show") for cell in page.cells}
    assert named["draw()"] == "Show the code of the picture at the top of this page"
    assert named["table(parameters)"] == "Show the code of this table"
    assert named["figure(parameters)"] == "Show the code of this picture"
    assert named["measured = parameters"] is None  # a cell that names parameters is none of them
    assert page.cells[-1].metadata.tags == []


def test_a_first_reading_shows_results_and_folds_their_code():
    page = notebook(shown(FIGURE))
    by_hand = {"tags": ["by-hand", "remove-output"]}
    page.cells[6:] = [
        new_code_cell("measured = 1", outputs=[new_output("stream", text="1")]),
        new_code_cell("table", outputs=[shown("<table>1</table>")]),
        new_code_cell("1 / 6", metadata=by_hand),
        new_markdown_cell("## For the record\n\nCounts."),
        new_code_cell("counts"),
    ]
    arrange(page)
    tags = {cell.source: cell.metadata.tags for cell in page.cells if cell.cell_type == "code"}
    assert tags["measured = 1"] == tags["table"] == ["hide-input"]
    assert tags["1 / 6"] == by_hand["tags"]
    assert tags["counts"] == []
    assert tags['run = provlab_study.begin("tree", globals())'] == ["hide-cell"]
    (table,) = (cell for cell in page.cells if cell.source == "table")
    assert table.metadata.mystnb.code_prompt_show == "Show the code of this table"


def test_places_of_a_picture_are_no_text_of_the_page():
    svg = '<svg class="provlab-spots"><path d="M0,0h1z"><title>oak and &quot;elm&quot;: -3.1</title></path></svg>'
    page = notebook(shown(FIGURE.replace("<img", f"{svg}<img")))
    arrange(page)
    (html,) = (text for text in outputs_of(page) if "provlab-spots" in text)
    assert '<path d="M0,0h1z" data-says="oak and &quot;elm&quot;: -3.1"></path>' in html
    assert "<title>" not in html


def test_a_lead_names_the_claims_that_fail(tmp_path):
    run = Run("tree", {}, Results(tmp_path / "results"))
    run.judgements = {
        "I1": ClaimStatus(FAILS, "0 of 3 pairs are found; log10 p -1 to 0", ""),
        "I2": ClaimStatus(HOLDS, "all", ""),
    }
    summary = run.summary(True)
    assert summary.failing == ("Claim I1 fails: 0 of 3 pairs are found.",)
    page = notebook(shown(FIGURE))
    data, metadata = summary._repr_mimebundle_()
    page.cells.append(
        new_code_cell("run.summary()", outputs=[new_output("display_data", data=data, metadata=metadata)])
    )
    arrange(page)
    assert page.cells[0].source.endswith("Every pair is\nfound. **Claim I1 fails: 0 of 3 pairs are found.**")
    run.judgements.pop("I1")
    assert run.summary(True)._repr_mimebundle_()[1] == {"lead": True}
