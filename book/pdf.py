# ruff: noqa: T201
"""Print the finished book as one PDF: ``python book/pdf.py _build/default``, or ``make pdf``.

The pages that the HTML book shows become one document, in the order of the contents. Folds are open, and links stay
within the document. Paper leaves out what a reader looks up on the screen: code that folds away there, code behind *For
the record*, and the rows of a computed table beyond its first ones (a last row counts them). Chromium prints the
document, with an outline of its headings and page numbers. Before that the document is checked in the browser: no
picture, equation or link may be missing.
"""

import base64
import re
import sys
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from browser import Browser, browser, installed
from bs4 import BeautifulSoup, Tag

BOOK = Path(__file__).parent
# parts of a page that only a screen has use for; the colours of a drawing stand in a style of its own
SCREEN_ONLY = (
    "script, style:not(svg style), button, input, iframe, .headerlink, .provlab-page-links, .prev-next-area, "
    ".tocsection"
)
FOLDED_CODE = "details.above-input"
RECORD = "#for-the-record, #parameters"  # behind the first, and in the second, code is for a reader at a screen
MOST, SHOWN = 40, 12  # rows of a computed table: above so many, so few are printed
STYLE = """
@page { size: A4; margin: 18mm 16mm 20mm }
html { font-size: 10pt } body { display: block; background: white }
article { max-width: 100% } .page.computed { break-before: page } .page { margin-top: 3rem }
.part { break-before: page; text-align: center } .part + .page { break-before: avoid; margin-top: 0 }
p, li { orphans: 3; widows: 3 }
img, svg { max-width: 100%; height: auto } figure, .admonition-title { break-inside: avoid }
article img { max-height: 105mm; width: auto } /* two pictures fit on a page */
.provenance { font-size: 7pt; line-height: 1.3 }
h1, h2, h3, h4 { break-after: avoid }
table { font-size: 7pt; width: 100%; display: table } td, th { overflow-wrap: normal }
pre, code, code span { font-size: 7.5pt; white-space: pre-wrap !important; overflow-wrap: anywhere }
table.breaks :is(td, th) { white-space: normal !important } .rows p { font-size: 7pt; margin: 0 0 0.4em }
.provlab-lab, .output, .cell_output, .table-wrapper, .pst-scrollable-table-container, div.highlight {
  overflow: visible !important; max-height: none !important
}
"""
COLUMN = 672  # pixels: the width of the text on A4 between these margins
# Chromium makes a whole document smaller until its widest part fits, so each part is made to fit by itself: what is too
# wide is drawn smaller. A table that would become too small to read breaks its long words, between signs and every ten
# letters; numbers stay whole. A table that is still too wide is written out, a paragraph for each row.
FIT = r"""(() => {
  const over = (node) => node.getBoundingClientRect().right > COLUMN + 1;
  const shrink = (node, least) => {
    node.style.zoom = 1;
    const box = node.getBoundingClientRect();
    const factor = (COLUMN - Math.max(box.left, 0)) / Math.max(node.scrollWidth, box.width);
    node.style.zoom = factor < least ? 1 : factor;
    return factor >= least;
  };
  const soften = (table) => {
    table.classList.add("breaks");
    const texts = document.createTreeWalker(table, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      texts.currentNode.data = texts.currentNode.data.replace(/[^\s.,\d-][^\s]{10,}/g, (word) =>
        word.replace(/[_/+-](?=.)|.{10}(?=.)/g, "$&\u200b"));
    }
  };
  const write = (table) => {
    const words = (cell) => cell.innerText.replaceAll("\u200b", "").trim();
    const heads = [...table.rows[0].cells].map(words);
    const rows = document.createElement("div");
    rows.className = "rows";
    if (table.caption) rows.append(document.createElement("p"));
    if (table.caption) rows.firstChild.append(words(table.caption));
    [...table.rows].slice(1).forEach((row) => {
      const [first, ...rest] = [...row.cells].map(words);
      const line = document.createElement("p"), name = document.createElement("b");
      name.append(first);
      const values = rest.map((text, at) => (text ? `${heads[at + 1]} ${text}` : "")).filter(Boolean);
      line.append(name, values.length ? `: ${values.join("; ")}` : "");
      rows.append(line);
    });
    table.replaceWith(rows);
  };
  document.querySelectorAll("table, mjx-container, svg, pre, img").forEach((node) => {
    if (!over(node) || node.parentElement.closest("mjx-container, svg")) return;
    if (node.matches("svg")) node.parentElement.style.minWidth = 0; // the map of the course
    if (node.matches("table") && !shrink(node, 0.8)) {
      soften(node);
      if (over(node) && !shrink(node, 0.8)) return write(node);
    }
    if (over(node)) shrink(node, 0.3);
  });
  return document.documentElement.scrollWidth;
})()"""
WIDEST = """[...document.querySelectorAll("body *")].filter((node) => node.getBoundingClientRect().right > COLUMN + 1)
  .map((node) => `${Math.round(node.getBoundingClientRect().right)} px ${node.outerHTML.slice(0, 90)}`).slice(-1)[0]"""
FOOTER = '<div style="width: 100%; text-align: center; font-size: 8px"><span class="pageNumber"></span></div>'
# pictures that did not arrive, equations that were not drawn or hold an error, links that lead nowhere
FAULTS = """(() => {
  const short = node => (node.outerHTML || "").slice(0, 90);
  const pictures = [...document.images].filter(image => !image.complete || !image.naturalWidth).map(short);
  const plain = [...document.querySelectorAll(".math")].filter(node => !node.querySelector("mjx-container")).map(short);
  const wrong = [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(short);
  const links = [...document.querySelectorAll('a[href^="#"]')].map(link => link.getAttribute("href").slice(1))
    .filter(name => name && !document.getElementById(name));
  return [["picture", pictures], ["equation", [...plain, ...wrong]], ["link", links]]
    .flatMap(([kind, list]) => list.map(text => kind + " missing: " + text));
})()"""


def contents() -> list[tuple[str, list[str]]]:
    """Parts of the book, each with its pages, in order; the first page stands alone."""

    def pages(entry: dict) -> list[str]:
        return [entry["file"], *(page for section in entry.get("sections", []) for page in pages(section))]

    toc = yaml.safe_load((BOOK / "_toc.yml").read_text(encoding="utf-8"))
    parts = [(part["caption"], [page for entry in part["chapters"] for page in pages(entry)]) for part in toc["parts"]]
    return [("", [toc["root"]]), *parts]


def one_document(html: Path, parts: list[tuple[str, list[str]]]) -> BeautifulSoup:
    """Return the pages of a built book, in the folder `html`, as one document that stands in the same folder."""
    document = BeautifulSoup((html / f"{parts[0][1][0]}.html").read_text(encoding="utf-8"), "html.parser")
    pages = [page for _, names in parts for page in names]
    body = document.new_tag("body")
    for caption, names in parts:
        if caption:
            body.append(BeautifulSoup(f'<h1 class="part">{caption}</h1>', "html.parser"))
        for name in names:
            body.append(printed(html, name, pages))
    document.body.replace_with(body)
    for element in document.select("script"):
        if "MathJax" not in element.get_text() and "mathjax" not in (element.get("src") or ""):
            element.decompose()
    document.head.append(BeautifulSoup(f"<style>{STYLE}</style>", "html.parser"))
    document.html["data-theme"] = "light"
    return document


def printed(html: Path, name: str, pages: list[str]) -> Tag:
    """Return one page's article as it is printed: names and links are the whole document's."""
    article = BeautifulSoup((html / f"{name}.html").read_text(encoding="utf-8"), "html.parser").select_one("article")
    assert article is not None, f"{name}.html has no article"
    for element in [*article.select(FOLDED_CODE), *article.select(SCREEN_ONLY)]:
        element.extract()
    for element in article.select(RECORD):
        for cell in [*element.select("div.cell_input"), *element.find_all_next("div", "cell_input")]:
            if element["id"] == "for-the-record" or element in cell.parents:
                cell.extract()
    for table in article.select(".provenance details table"):  # hundreds of models, one a line
        table.replace_with(running(table))
    for table in article.select(".cell_output table:not(.provlab-scoreboard, .provlab-lab table)"):
        shorten(table)
    for fold in article.select("details:not(.provlab-scoreboard.short details)"):  # the page Scoreboard shows all
        fold["open"] = ""
    for level in (5, 4, 3, 2, 1):  # parts are above pages
        for heading in article.select(f"h{level}"):
            heading.name = f"h{level + 1}"
    for element in article.select("[id]:not(svg [id])"):  # a drawing names its own arrows
        element["id"] = f"{slug(name)}--{element['id']}"
    here = (html / name).parent
    for element in article.select("[src]"):
        if not re.match(r"[a-z]+:", element["src"]):
            element["src"] = str((here / element["src"]).resolve().relative_to(html.resolve()))
    for link in article.select("a[href]"):
        address = urlsplit(link["href"])
        if address.scheme:
            continue
        target = (here / unquote(address.path)).resolve() if address.path else (html / name).resolve()
        page = str(target.relative_to(html.resolve()).with_suffix("")) if target.is_relative_to(html.resolve()) else ""
        if page in pages:
            link["href"] = f"#{slug(page)}--{address.fragment}" if address.fragment else f"#{slug(page)}"
        else:  # a file that the printed book lacks
            link.name = "span"
    article["id"], article["class"] = slug(name), "page computed" if name.startswith("experiments/") else "page"
    return article


def running(table: Tag) -> Tag:
    """Return a table of models and hashes as one paragraph; of many models the first ones."""
    rows = [[cell.get_text() for cell in row.select("td")] for row in table.select("tr")]
    models = [" ".join(word for word in row if word != "-") for row in rows if row]
    if len(models) > MOST:
        models[SHOWN:] = [f"and {len(models) - SHOWN} more, which the book on the screen lists"]
    return BeautifulSoup(f"<p>{escape(', '.join(models))}.</p>", "html.parser").p


def shorten(table: Tag) -> None:
    """Leave the first rows of a long table, and a row that counts the others."""
    rows = table.select("tbody > tr")
    if len(rows) <= MOST:
        return
    columns = len(rows[0].select("td, th"))
    for row in rows[SHOWN:]:
        row.extract()
    words = f"{len(rows) - SHOWN} more rows stand in the book on the screen."
    rows[SHOWN - 1].insert_after(
        BeautifulSoup(f'<tr><td colspan="{columns}"><em>{words}</em></td></tr>', "html.parser")
    )


def slug(page: str) -> str:
    """Name of a page within the document."""
    return page.replace("/", "-")


def write_pdf(chromium: Browser, page: Path) -> bytes:
    """Open a document and print it; RuntimeError with its faults if anything did not arrive."""
    chromium.screen((COLUMN, 900))
    chromium.ask("Emulation.setEmulatedMedia", media="print")
    chromium.open(page)
    if chromium.value(FIT.replace("COLUMN", str(COLUMN))) > COLUMN + 2:
        widest = chromium.value(WIDEST.replace("COLUMN", str(COLUMN)))
        raise RuntimeError(f"too wide for its column, so that all letters would be small: {widest}")
    if faults := chromium.value(FAULTS):
        raise RuntimeError("\n".join(faults))
    answer = chromium.ask(
        "Page.printToPDF", printBackground=True, preferCSSPageSize=True, displayHeaderFooter=True,
        headerTemplate="<b/>", footerTemplate=FOOTER, generateTaggedPDF=True, generateDocumentOutline=True,
    )  # fmt: skip
    return base64.b64decode(answer["data"])


def main() -> int:
    """Print the book of the build folder that is named on the command line."""
    build = Path(sys.argv[1])
    program = installed()
    if program is None:
        print("no PDF without a browser that prints it; on Debian: apt-get install chromium", file=sys.stderr)
        return 2
    page, part = build / "html" / "printed.html", build / "book.pdf.part"
    page.write_text(str(one_document(build / "html", contents())), encoding="utf-8")
    try:
        with browser(program) as chromium:
            part.write_bytes(write_pdf(chromium, page))
    except (OSError, RuntimeError) as error:
        print(f"the book was not printed:\n{error}", file=sys.stderr)
        return 1
    finally:
        page.unlink()
    part.replace(build / "book.pdf")
    print(f"{build / 'book.pdf'}: {(build / 'book.pdf').stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
