"""An executed notebook as a reader meets it: a picture under the finding, set-up folded, nothing from a network.

In the notebook itself, and in JupyterLab, everything stands where it is computed.
"""

import re
from collections.abc import Iterable

import nbformat
from nbformat import NotebookNode

from provlab_study.publishing.marks import MARKS, folded

OPENING = "opening"  # the tag of the cell whose picture opens the page, and the name under which other pages show it
PICTURE = "provlab-figure"  # the class of a picture's HTML
FOR_THE_RECORD, SUMMARY = "## For the record", "## Summary"  # headings: where a first reading ends, what it ends with
WIDGET = "application/vnd.jupyter.widget-view+json"  # of progress bars; a page would fetch scripts to show them
RECORD = "application/papermill.record/"  # what myst_nb keeps under a name and does not show
# what folded cells offer, by tag or, for the one that begins the experiment, by what it calls
PROMPTS = {
    "parameters": "the parameters",
    "injected-parameters": "the parameters of this run",
    "provlab_study.begin(": "the set-up",
}

# tags of cells whose code stays, or is folded or left out already
SHOWN = {"by-hand", "hide-input", "hide-cell", "remove-input", "remove-cell"}

# what a folded cell's code makes, by what its output holds
MADE = {PICTURE: "this picture", "<table": "this table"}
ABOVE = f'<p class="provlab-note">Shown at the <a href="#{OPENING}">top of this page</a>.</p>'
_SAID = re.compile(r"<title>([^<]*)</title></path>")  # of a place in a picture: `provlab.plots.explore`
_DRAWN = re.compile(rf'(?s)<figure class="{PICTURE}.*?</figure>')
_BOX = re.compile(r"(?s)```\{solution-start\} (.*?)\n```\n(.*?)\s*```\{solution-end\}\n```\s*")


def boxed(cells: Iterable[NotebookNode]) -> list[NotebookNode]:
    """Merge the cells of a solution, ``{solution-start}`` to ``{solution-end}``, into one box of words and code."""
    merged: list[NotebookNode] = []
    box: list[NotebookNode] = []
    for cell in cells:
        if not box and not cell.source.startswith("```{solution-start}"):
            merged.append(cell)
            continue
        box.append(cell)
        if "```{solution-end}" in cell.source:
            text = "\n\n".join(fenced(cell) if cell.cell_type == "code" else cell.source for cell in box)
            text = _BOX.sub(r"````{solution} \1\n\2\n````", text)
            merged.append(nbformat.v4.new_markdown_cell(text, id=box[0].id))
            box = []
    return merged + box


def fenced(cell: NotebookNode) -> str:
    """Code of a cell as a block within words."""
    return f"```python\n{cell.source}\n```"


def arrange(notebook: NotebookNode) -> None:
    """Move the opening picture under the finding, box solutions, fold parameters and set-up, drop widgets, in place."""
    notebook.metadata.pop("widgets", None)
    _summarise(notebook)
    notebook.cells = boxed(notebook.cells)
    first_reading = next((i for i, cell in enumerate(notebook.cells) if _has(cell, FOR_THE_RECORD)), 0)
    for i, cell in enumerate(notebook.cells):
        _fold(cell, first_reading=i < first_reading)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    _open(notebook)
    _once(notebook)
    _quieten(notebook)


def _quieten(notebook: NotebookNode) -> None:
    """Let the places of a picture say what they show to the book's script alone.

    Titles are text of the page: hundreds of them are what a search finds and a screen reader may read out.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if 'class="provlab-spots"' in (html := data.get("text/html", "")):
                data["text/html"] = re.sub(r"(<path [^>]*)>" + _SAID.pattern, r'\1 data-says="\2"></path>', html)


def _open(notebook: NotebookNode) -> None:
    """Move the opening picture under the finding."""
    drawing = next((cell for cell in notebook.cells if OPENING in cell.metadata.get("tags", [])), None)
    if drawing is None:
        return
    i = next((i for i, output in enumerate(drawing.outputs) if _is_picture(output)), None)
    if i is None:  # the models given may be too few for it; pages that show it say so
        drawing.outputs.append(
            _named({f"{RECORD}text/markdown": "*No picture could be drawn of these models.*"}, RECORD)
        )
        return
    picture = drawing.outputs.pop(i)  # the fold of its code says where it went
    html = f'<div id="{OPENING}">{picture.data["text/html"]}</div>'
    shown = _named({**picture.data, "text/html": html})
    shown.metadata.update(picture.metadata)
    # a cell without any source would be left out of the book
    opening = nbformat.v4.new_code_cell("# drawn below", id="opening-picture", outputs=[shown])
    opening.metadata["tags"] = ["remove-input"]
    # the first cell is the title, the finding, and what the paper claims: the picture goes behind the finding
    first = notebook.cells[0]
    parts = re.split(r"\n\s*\n", first.source, maxsplit=2) if first.cell_type == "markdown" else []
    first.source = "\n\n".join(parts[:2]) if parts else first.source
    rest = [nbformat.v4.new_markdown_cell(text, id="behind-opening") for text in parts[2:]]
    notebook.cells[len(parts[:1]) : len(parts[:1])] = [opening, *rest]


def _once(notebook: NotebookNode) -> None:
    """Say where a picture stands, in place of the opening picture's second and later copies."""
    first = next((cell for cell in notebook.cells if cell.get("id") == "opening-picture"), None)
    source = first and re.search('src="([^"]+)"', first.outputs[0].data["text/html"])
    if not source:
        return
    for cell in notebook.cells:
        for output in cell.get("outputs", []) if cell is not first else []:
            if source[1] in (html := output.get("data", {}).get("text/html", "")):
                again = _DRAWN.sub(lambda drawn: ABOVE if source[1] in drawn[0] else drawn[0], html)
                output.data["text/html"] = again


def _summarise(notebook: NotebookNode) -> None:
    """Turn the summary of a run into words of the page, and mark a lead that its records contradict or leave open.

    It stands before *For the record*, where a first reading ends; the code that decides its sentences stays
    where it ran.
    """
    for i, cell in enumerate(notebook.cells):
        outputs = [output for output in cell.get("outputs", []) if "lead" in output.get("metadata", {})]
        if outputs:
            (summary,) = outputs
            cell.outputs.remove(summary)
            cell.metadata["mystnb"] = {
                "code_prompt_show": "Show how the summary was decided",
                "code_prompt_hide": "Hide how the summary was decided",
            }
            words = nbformat.v4.new_markdown_cell(summary.data["text/markdown"], id="summary")
            notebook.cells.insert(i + 1, words)
            title, lead, *rest = notebook.cells[0].source.split("\n\n")
            failing = "".join(f" **{sentence}**" for sentence in summary.metadata.get("failing", []))
            # a lead that the run denies says the first of what was seen; the summary has the rest
            against = summary.metadata.get("against", "").split("; ")[0]
            opening = [MARKS[summary.metadata.lead] + lead + (failing or (f" *Seen: {against}.*" if against else ""))]
            if found := summary.metadata.get("own"):  # of a reader's models: what was found of them, the study's folds
                opening = [" ".join(found), folded("What the study found of its own models", [lead]).strip()]
            notebook.cells[0].source = "\n\n".join([title, *opening, *rest])
            _before_the_record(notebook, words)
            return


def _before_the_record(notebook: NotebookNode, words: NotebookNode) -> None:
    """Move the summary with its heading from the end of a page to the end of its first reading."""
    record = next((cell for cell in notebook.cells if _has(cell, FOR_THE_RECORD)), None)
    headed = next((cell for cell in notebook.cells if _has(cell, SUMMARY)), None)
    if record is None or headed is None:
        return
    kept, _, behind = headed.source.partition(SUMMARY)
    headed.source = kept.rstrip()
    words.source = "\n\n".join(part for part in (SUMMARY, behind.strip(), words.source) if part)
    notebook.cells.remove(words)
    before, _, after = record.source.partition(FOR_THE_RECORD)
    at = notebook.cells.index(record)
    record.source = FOR_THE_RECORD + after
    core = [nbformat.v4.new_markdown_cell(before.rstrip(), id="before-summary")] if before.strip() else []
    notebook.cells[at:at] = [*core, words]
    notebook.cells = [cell for cell in notebook.cells if cell.source.strip() or cell.cell_type == "code"]


def _has(cell: NotebookNode, heading: str) -> bool:
    return cell.cell_type == "markdown" and heading in cell.source.splitlines()


def _is_picture(output: NotebookNode) -> bool:
    return PICTURE in output.get("data", {}).get("text/html", "")


def _named(data: dict[str, str], prefix: str = "") -> NotebookNode:
    """An output that other pages can show, as ``{glue} opening``."""
    name = {"name": OPENING, "mime_prefix": prefix}
    return nbformat.v4.new_output("display_data", data=data, metadata={"scrapbook": name})


def _fold(cell: NotebookNode, *, first_reading: bool) -> None:
    """Fold what a reader brings along, and in a first reading all code but that of a calculation by hand."""
    if cell.cell_type != "code":
        return
    tags = cell.metadata.setdefault("tags", [])
    for mark, what in PROMPTS.items():
        begins = mark.endswith("(") and mark in cell.source  # a tag marks a cell, a call the set-up
        if mark in tags or begins:
            kind = "hide-cell" if begins else "hide-input"
            tags += [kind] * (not {"hide-cell", "hide-input", "remove-cell"} & set(tags))
            cell.metadata["mystnb"] = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}
            return
    if first_reading and not SHOWN & set(tags):
        tags.append("hide-input")
    html = "".join(output.get("data", {}).get("text/html", "") for output in cell.get("outputs", []))
    made = [what for mark, what in MADE.items() if mark in html]
    if OPENING in tags:
        made = ["the picture at the top of this page"]
    if "hide-input" in tags and "mystnb" not in cell.metadata and made:
        of = f"the code of {made[0]}"
        cell.metadata["mystnb"] = {"code_prompt_show": f"Show {of}", "code_prompt_hide": f"Hide {of}"}
