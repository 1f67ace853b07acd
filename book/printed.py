"""What a printed page needs that a browser does not: tables and pictures that cells gave as HTML, made LaTeX's own.

A Sphinx extension that `pdf.py` loads, and only for the PDF. Columns get widths from what stands in them, and a table
the largest of three type sizes at which its longest words fit the page; one that fits none of them is turned.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, NavigableString, Tag
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

# characters of FreeSerif on a line of the page at each type size, a little fewer than were counted
SIZES = {"small": 100, "footnotesize": 112, "scriptsize": 128, "turned": 186}
BETWEEN = 2.5  # characters that the space between two columns takes
ONE_PAGE = 32  # lines of a table that is not broken
TURNED = ("\\begin{landscape}\\begingroup\\scriptsize", "\\endgroup\\end{landscape}")
FOLDED = 2.5  # lines a row, before the type is made smaller, though not below
LEGIBLE = "scriptsize"
LEFT, RIGHT = "\\raggedright", "\\raggedleft"
SHORT = 12  # letters of the items of a list that is printed as one line
BREAK = "\u200b"  # where a long word may go on in the next line; see `pdf.PREAMBLE`
# a name, a path or a hash may be broken after these, or anywhere once it is this long
_BREAKABLE = re.compile(r"(?<=[/_:;=+])(?=\w)|(?<=[.,])(?=[A-Za-z])|(?<=\w-)(?=\w)")
LONGEST_WORD = 18

BLOCKS = {"div", "p", "table", "details", "ul", "ol", "li", "dl", "dt", "dd", "figure", "label", "summary", "section"}
SKIPPED = {"style", "script", "input", "button", "template", "svg", "canvas", "noscript"}
INLINE: dict[str, type[nodes.TextElement]] = {
    "b": nodes.strong,
    "strong": nodes.strong,
    "i": nodes.emphasis,
    "em": nodes.emphasis,
    "code": nodes.literal,
    "sub": nodes.subscript,
    "sup": nodes.superscript,
}


def blocks(html: str) -> list[nodes.Node]:
    """Nodes that show what a piece of HTML shows; what only a browser can use is left out."""
    return list(_blocks(BeautifulSoup(html, "html.parser")))


def _blocks(parent: Tag) -> Iterator[nodes.Node]:
    waiting = nodes.paragraph()
    for child in parent.children:
        if isinstance(child, Tag) and child.name in BLOCKS:
            if waiting.astext().strip():
                yield waiting
            waiting = nodes.paragraph()
            yield from _block(child)
        elif isinstance(child, Tag) and child.name == "img":
            yield _image(child)
        else:
            waiting += _inline(child)
    if waiting.astext().strip():
        yield waiting


def _block(tag: Tag) -> Iterator[nodes.Node]:
    if tag.name == "table":
        yield from _table(tag)
    elif tag.name == "figure":
        figure = nodes.figure("", *(_image(image) for image in tag.find_all("img")))
        if caption := tag.find("figcaption"):
            figure += nodes.caption("", "", *_inline(caption))
        yield figure
    elif tag.name == "summary":
        yield nodes.paragraph("", "", nodes.strong("", tag.get_text()))
    elif tag.name == "details" and tag.find_parent(class_="provenance"):
        # the hashes of all models stand once, in the page Status
        yield nodes.paragraph("", f"{tag.find('summary').get_text()}: see Status.")
    elif tag.name in ("ul", "ol"):
        found = tag.find_all("li", recursive=False)
        if all(len(item.get_text()) <= SHORT for item in found):
            # tiles on the screen, a line in print
            yield nodes.paragraph("", " · ".join(" ".join(item.get_text(" ").split()) for item in found))
            return
        items = [nodes.list_item("", *_blocks(item)) for item in found]
        yield nodes.bullet_list("", *items) if tag.name == "ul" else nodes.enumerated_list("", *items)
    else:
        yield from _blocks(tag)


def _image(tag: Tag) -> nodes.image:
    return nodes.image(uri=str(tag["src"]), alt=str(tag.get("alt", "")))


def _inline(node: Any) -> list[nodes.Node]:
    if isinstance(node, NavigableString):
        return [nodes.Text(re.sub(r"\s+", " ", node))] if type(node) is NavigableString else []
    if node.name in SKIPPED:
        return []
    if node.name == "br":
        return [nodes.Text(" ")]
    within = [one for child in node.children for one in _inline(child)]
    if node.name in INLINE:
        return [INLINE[node.name]("", "", *within)]
    if node.name == "a" and str(node.get("href", "")).startswith("http"):
        return [nodes.reference("", "", *within, refuri=node["href"])]
    # parts of one cell that a browser sets apart
    return [nodes.Text(" "), *within, nodes.Text(" ")] if node.name in BLOCKS else within


def _table(tag: Tag) -> Iterator[nodes.Node]:
    rows = [row for row in tag.find_all("tr") if row.find(["th", "td"])]
    heads = [row for row in rows if row.parent.name == "thead" or not row.find("td")]
    body = [row for row in rows if row not in heads]
    if not body:
        return
    cells = [[_text(cell) for cell in _cells(row)] for row in rows]
    n_columns = max(map(len, cells))
    size, spec, lines = columns(cells, _numbers(body, n_columns))
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in range(n_columns)), cols=n_columns)
    if heads:
        group += nodes.thead("", *(_row(row, n_columns) for row in heads))
    group += nodes.tbody("", *(_row(row, n_columns) for row in body))
    table = nodes.table("", group)
    if caption := tag.find("caption"):
        table.insert(0, nodes.title("", "", *_inline(caption)))
    if lines > ONE_PAGE:
        table["classes"].append("longtable")
    yield from _set(table, size, spec)


def _fold(table: nodes.table) -> None:
    """Give a table of a page's own text columns measured as the others' are."""
    entries = list(table.findall(nodes.entry))
    plain = all(len(entry) <= 1 and isinstance(entry.next_node(), nodes.paragraph | None) for entry in entries)
    if not plain or isinstance(table.previous_sibling(), addnodes.tabular_col_spec):
        return
    for text in list(table.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.math):
            text.parent.replace(text, nodes.Text(broken_up(text.astext())))
    rows = [[_seen(entry) for entry in row.findall(nodes.entry)] for row in table.findall(nodes.row)]
    size, spec, lines = columns(rows, [False] * max(map(len, rows)))
    if lines > ONE_PAGE:
        table["classes"].append("longtable")
    table.parent.replace(table, _set(table, size, spec))


def _set(table: nodes.table, size: str, spec: str) -> list[nodes.Node]:
    """Stand a table between the commands of its type size, with the description of its columns."""
    start, end = TURNED if size == "turned" else (f"\\begingroup\\{size}", "\\endgroup")
    around = [nodes.raw("", command, format="latex") for command in (start, end)]
    return [around[0], addnodes.tabular_col_spec(spec=spec), table, around[1]]


def _seen(entry: nodes.entry) -> str:
    """Text of a cell, with a letter for each command of its mathematics."""
    return re.sub(r"\\[A-Za-z]+|[{}^_]", lambda found: "x" if found[0][0] == "\\" else "", entry.astext())


def _cells(row: Tag) -> list[Tag]:
    return [cell for cell in row.children if isinstance(cell, Tag) and cell.name in ("th", "td")]


def _text(cell: Tag) -> str:
    return " ".join(cell.get_text(" " if cell.find(list(BLOCKS)) else "").split())


def _numbers(body: list[Tag], n_columns: int) -> list[bool]:
    """Which columns hold numbers, by the class that `plots.table` gives their cells."""
    right = [False] * n_columns
    for row in body:
        for i, cell in enumerate(_cells(row)):
            right[i] |= "number" in (cell.get("class") or ())
    return right


def _row(row: Tag, n_columns: int) -> nodes.row:
    made = nodes.row()
    for cell in _cells(row):
        # one paragraph a cell: LaTeX's columns of natural width hold no more
        content = nodes.paragraph("", "", *_inline_of_cell(cell))
        made += nodes.entry("", content)
    for _ in range(n_columns - len(made)):
        made += nodes.entry("", nodes.paragraph())
    return made


def _inline_of_cell(cell: Tag) -> list[nodes.Node]:
    within = [one for child in cell.children for one in _inline(child)]
    for element in within:
        for text in [element] if isinstance(element, nodes.Text) else list(element.findall(nodes.Text)):
            broken = nodes.Text(broken_up(text.astext()))
            if text is element:
                within[within.index(element)] = broken
            else:
                text.parent.replace(text, broken)
    return within


def broken_up(text: str) -> str:
    """The text with a mark wherever a long word of it may be broken."""

    def word(found: re.Match[str]) -> str:
        pieces = _BREAKABLE.split(found[0])
        parts = [piece[i : i + LONGEST_WORD] for piece in pieces for i in range(0, len(piece), LONGEST_WORD)]
        return BREAK.join(parts)

    return re.sub(rf"\S{{{LONGEST_WORD // 2},}}", word, text)


def columns(cells: list[list[str]], right: list[bool]) -> tuple[str, str, int]:
    """Type size of a table, LaTeX's description of its columns, and how many lines it will take.

    Parameters
    ----------
    cells
        Text of each cell, row by row.
    right
        Which columns are set to the right.
    """
    n = len(right)
    natural, least = [1] * n, [1] * n
    for row in cells:
        for i, text in enumerate(row):
            natural[i] = max(natural[i], len(text))
            least[i] = max([least[i], *map(len, re.split(rf"[\s{BREAK}]+", broken_up(text)))])
    # text may fold, but short phrases and numbers with their intervals are worth a line
    wanted = [max(word + 1, min(most, 12)) for word, most in zip(least, natural, strict=True)]
    for size, fits in SIZES.items():
        room = fits - BETWEEN * n
        if sum(natural) <= room:
            return size, "".join("r" if number else "l" for number in right), len(cells)
        # what is left goes to the columns with most to say, less than in proportion
        more = [max(most - width, 0) ** 0.7 for width, most in zip(wanted, natural, strict=True)]
        spare = max(room - sum(wanted), 0) / (sum(more) or 1)
        widths = [width + spare * share for width, share in zip(wanted, more, strict=True)]
        lines = sum(max(_folded(text, width) for text, width in zip(row, widths, strict=False)) for row in cells)
        if sum(wanted) <= room and (lines <= FOLDED * len(cells) or size == LEGIBLE):
            break
    whole = max(sum(widths) + BETWEEN * n, fits)
    spec = "".join(
        f">{{{RIGHT if number else LEFT}\\arraybackslash}}\\X{{{round(1000 * (width + BETWEEN) / whole)}}}{{1000}}"
        for number, width in zip(right, widths, strict=True)
    )
    return size, spec, lines


def _folded(text: str, width: float) -> int:
    """Lines that a text takes, which is broken between words or where `broken_up` lets it be."""
    lines, used = 1, 0
    for part in re.split(rf"(?<=\s)|{BREAK}", broken_up(text)):
        if used and used + len(part.rstrip()) > width:
            lines, used = lines + 1, 0
        used += len(part)
    return lines


class HtmlAsNodes(SphinxPostTransform):
    """Put nodes in the place of HTML and measure the other tables, after outputs have been chosen (priority 4)."""

    default_priority = 20
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Replace each piece of HTML by nodes."""
        for node in list(self.document.findall(nodes.raw)):
            if "html" in node.get("format", "").split():
                shown = nodes.container("", *blocks(node.astext()))
                for image in shown.findall(nodes.image):
                    self._keep(image)
                node.parent.replace(node, shown.children)
        for table in self.document.findall(nodes.table):
            _fold(table)

    def _keep(self, image: nodes.image) -> None:
        """Write out a picture that stands in the page itself."""
        content = base64.b64decode(image["uri"].partition(",")[2])
        path = Path(self.app.doctreedir) / "pictures" / f"{hashlib.sha256(content).hexdigest()[:32]}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        image["uri"] = str(path)
        image["candidates"] = {"*": str(path)}
        self.env.images.add_file(self.env.docname, str(path))


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter the transform."""
    app.add_post_transform(HtmlAsNodes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
