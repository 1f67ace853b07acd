"""Pages that have moved: where one stood, a file that goes on to its new place, so that a link to it still arrives.

A Sphinx extension of the HTML book. Its table, ``moved_pages.yml`` beside it, has a line for each old page: its
name, and the page, with the section, that says now what it said.
"""

from html import escape
from pathlib import Path

import yaml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.osutil import relative_uri

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>This page has moved</title>
<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url={url}"><link rel="canonical" href="{url}"></head>
<body><main><h1>This page has moved</h1><p>It is a section of <a href="{url}">{title}</a> now.</p></main></body></html>
"""


def pages(moved: dict[str, str], titles: dict[str, str]) -> dict[str, str]:
    """HTML of each old page, by its name; `titles` are those of the pages of the book.

    Raises
    ------
    ExtensionError
        If an old page is one of the book still, or its new place is none.
    """
    html = {}
    for old, place in moved.items():
        new, _, section = place.partition("#")
        if old in titles:
            raise ExtensionError(f"moved_pages says that {old} has moved, and it is a page of the book; leave it out")
        if new not in titles:
            raise ExtensionError(f"moved_pages sends {old} to {new}, which is no page of the book; name one that is")
        url = relative_uri(f"{old}.html", f"{new}.html") + f"#{section}" * bool(section)
        html[old] = PAGE.format(url=escape(url), title=escape(titles[new]))
    return html


def write(app: Sphinx, failed: Exception | None) -> None:
    """Write the old pages into the finished book."""
    if failed is None and app.builder.format == "html":
        titles = {name: title.astext() for name, title in app.env.titles.items()}
        for old, html in pages(app.config.moved_pages, titles).items():
            (path := Path(app.outdir) / f"{old}.html").parent.mkdir(parents=True, exist_ok=True)
            path.write_text(html, encoding="utf-8")


def table() -> dict[str, str]:
    """Read the study's old pages; a book of one's own has none."""
    return dict(yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8")))


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter the table, and write its pages when the book is finished."""
    app.add_config_value("moved_pages", table(), "html", dict)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
