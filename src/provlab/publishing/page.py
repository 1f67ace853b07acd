"""An executed notebook as a reader meets it: one picture right under the finding, parameters and set-up folded.

In the notebook itself, and in JupyterLab, everything stands where it is computed.
"""

import re

import nbformat
from nbformat import NotebookNode

OPENING = "opening"  # the tag of the cell whose picture opens the page
PICTURE = "provlab-figure"  # the class of a picture's HTML
# what folded cells offer, by tag or, for the one that begins the experiment, by what it calls
PROMPTS = {
    "parameters": "the parameters",
    "injected-parameters": "the parameters of this run",
    "provlab.begin(": "the set-up",
}


def arrange(notebook: NotebookNode) -> None:
    """Move the opening picture under the finding and fold parameters and set-up, in place."""
    for cell in notebook.cells:
        _fold(cell)
    picture = _taken(notebook)
    if picture is None:  # the models given may be too few for it
        return
    # the first cell is the title, the finding, and what the paper claims: the picture goes behind the finding
    first = notebook.cells[0]
    parts = re.split(r"\n\s*\n", first.source, maxsplit=2) if first.cell_type == "markdown" else []
    opening = nbformat.v4.new_code_cell("", outputs=[picture], metadata={"tags": ["remove-input"]})
    opening["id"] = "opening-picture"
    notebook.cells.insert(len(parts[:1]), opening)
    if len(parts) == 3:
        first.source = "\n\n".join(parts[:2])
        rest = nbformat.v4.new_markdown_cell(parts[2])
        rest["id"] = "behind-opening"
        notebook.cells.insert(2, rest)


def _fold(cell: NotebookNode) -> None:
    if cell.cell_type != "code":
        return
    tags = cell.metadata.setdefault("tags", [])
    for mark, what in PROMPTS.items():
        if mark in tags or mark in cell.source:
            kind = "hide-cell" if mark in cell.source else "hide-input"
            tags += [kind] * (not {"hide-cell", "hide-input", "remove-cell"} & set(tags))
            cell.metadata["mystnb"] = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}
            return


def _taken(notebook: NotebookNode) -> NotebookNode | None:
    """Take the first picture out of the cell tagged `OPENING`; a note with a link to it stays in its place."""
    for cell in notebook.cells:
        if OPENING in cell.metadata.get("tags", []):
            for i, output in enumerate(cell.get("outputs", [])):
                if PICTURE in output.get("data", {}).get("text/html", ""):
                    note = "Shown at the top of this page."
                    link = f'<p class="provlab-note">Shown at the <a href="#{OPENING}">top of this page</a>.</p>'
                    cell.outputs[i] = nbformat.v4.new_output(
                        "display_data", data={"text/html": link, "text/plain": note}
                    )
                    output.data["text/html"] = f'<div id="{OPENING}">{output.data["text/html"]}</div>'
                    return output
    return None
