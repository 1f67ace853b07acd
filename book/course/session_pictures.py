"""Pictures of the chapters on the session pages: a Sphinx extension of the HTML book.

The comment ``% figure: llama_tree all-pairs`` of a page stands for the figure that the cell of this name shows in the
executed chapter (with a 2 behind it, the second). The first picture of a page is open, the others fold under their
first words: a lecture is read in fewer screens. A chapter that has not been run leaves the comment as it is.
"""

import html
import json
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

FIGURE = re.compile(r"(?m)^% figure:\s*(\w+)\s+([\w-]+)(?:\s+(\d+))?$")


def figure_of(cells: Sequence[dict[str, Any]], cell: str, number: str | None) -> tuple[str, str] | None:
    """PNG, as text in base64, and alt text of the figure that a cell of an executed page shows; None if it has none."""
    named = [other for other in cells if other.get("id") == cell]
    if any("opening" in other.get("metadata", {}).get("tags", ()) for other in named):
        # the picture that opens its page stands under the finding there
        named = [other for other in cells if other.get("id") == "opening-picture"] + named
    outputs = [output for other in named for output in other.get("outputs", ())]
    drawn = [output for output in outputs if "image/png" in output.get("data", {})]
    if len(drawn) < int(number or 1):
        return None
    shown = drawn[int(number or 1) - 1]
    alt = shown.get("metadata", {}).get("image/png", {}).get("alt", "")
    return "".join(shown["data"]["image/png"]).replace("\n", ""), alt


def place(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the pictures of a session page in the place of its comments."""
    placed: list[str] = []

    def picture(comment: re.Match[str]) -> str:
        page = Path(app.srcdir) / "experiments" / f"{comment[1]}.ipynb"
        if not page.is_file():
            return comment[0]
        cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
        if (shown := figure_of(cells, comment[2], comment[3])) is None:
            return comment[0]
        png, alt = shown
        image = (
            f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{png}" style="max-width: 100%; height: auto"/>'
        )
        link = f'<figcaption>From <a href="../experiments/{comment[1]}.html">its chapter</a>.</figcaption>'
        figure = f'<figure class="provlab-figure">{image}{link}</figure>'
        if placed:
            summary = html.escape(textwrap.shorten(alt or "Picture", 90, placeholder=" ..."))
            figure = f'<details class="provlab-long"><summary>Picture: {summary}</summary>{figure}</details>'
        placed.append(figure)
        return f"```{{raw}} html\n{figure}\n```"

    if docname.startswith("course/"):
        source[0] = FIGURE.sub(picture, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter what reads each page first."""
    app.connect("source-read", place)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
