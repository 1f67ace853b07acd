"""A link to a page that has moved arrives: the table names what is there, and each old page goes on to it."""

import re
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

import check_axe
import pytest
from check_html import check
from docutils.nodes import make_id
from sphinx.errors import ExtensionError
from test_book import ROOT, sources, toc_files

MOVED = runpy.run_path(str(ROOT / "book" / "moved_pages.py"))["table"]()


@pytest.fixture(scope="module")
def pages():
    return runpy.run_path(str(ROOT / "book" / "moved_pages.py"))["pages"]


@pytest.mark.parametrize("old", MOVED)
def test_the_new_place_of_a_page_is_in_the_book(old):
    new, _, section = MOVED[old].partition("#")
    assert old not in toc_files()
    assert new in toc_files()
    text = {f"experiments/{path.stem}": text for path, text in sources().items()}[new]
    headings = re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)
    assert section in map(make_id, headings)


def book(folder, pages, moved):
    """A book of one page with one section, and what has moved there."""
    (folder / "index.html").write_text('<html><body><h1 id="top">Start</h1><h2 id="seeds">Seeds</h2></body></html>')
    for old, html in pages(moved, {"index": "Start & end"}).items():
        (path := folder / f"{old}.html").parent.mkdir(exist_ok=True)
        path.write_text(html)
    return folder


def test_an_old_page_goes_on_to_the_section_and_names_its_page(tmp_path, pages):
    folder = book(tmp_path, pages, {"experiments/old": "index#seeds", "older": "index"})
    text = (folder / "experiments" / "old.html").read_text()
    assert 'content="0; url=../index.html#seeds"' in text
    assert '<a href="../index.html#seeds">Start &amp; end</a>' in text
    assert 'url=index.html"' in (folder / "older.html").read_text()
    assert check(folder) == []


def test_a_section_that_is_gone_is_a_fault_of_the_book(tmp_path, pages):
    faults = check(book(tmp_path, pages, {"old": "index#gone"}))
    assert faults == ["old.html: a link to no such place: index.html#gone"]


@pytest.mark.parametrize(("moved", "message"), [({"a": "none"}, "no page of the book"), ({"index": "a"}, "leave it")])
def test_a_table_that_is_wrong_stops_the_build(pages, moved, message):
    with pytest.raises(ExtensionError, match=message):
        pages(moved, {"index": "Start"})


@pytest.mark.skipif(check_axe.installed() is None, reason="no Chromium on this machine")
def test_a_browser_arrives_there(tmp_path, pages):
    folder = book(tmp_path, pages, {"experiments/old": "index#seeds"})
    with check_axe.browser(check_axe.installed()) as chromium:
        chromium.ask("Page.navigate", url=(folder / "experiments" / "old.html").as_uri())
        time.sleep(2)
        address = chromium.value("location.href")
    assert address == f"{(folder / 'index.html').as_uri()}#seeds"


def test_the_check_in_a_browser_leaves_it_out(tmp_path, pages):
    folder = book(tmp_path, pages, {"experiments/old": "index#seeds"})
    left_out = check_axe._goes_on
    assert left_out(folder / "experiments" / "old.html")
    assert not left_out(folder / "index.html")


def test_only_a_finished_html_book_gets_them(tmp_path):
    write = runpy.run_path(str(ROOT / "book" / "moved_pages.py"))["write"]
    app = SimpleNamespace(
        builder=SimpleNamespace(format="html"),
        env=SimpleNamespace(titles={"new": SimpleNamespace(astext=lambda: "New")}),
        config=SimpleNamespace(moved_pages={"below/old": "new"}),
        outdir=tmp_path,
    )
    write(app, ValueError())
    assert list(tmp_path.iterdir()) == []
    write(app, None)
    assert [str(path.relative_to(tmp_path)) for path in Path(tmp_path).rglob("*.html")] == ["below/old.html"]
