"""The printed book: pages become one document whose links stay inside, and a missing part stops the printing."""

import collections
import importlib
import io
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pypdf import PdfReader

BOOK = Path(__file__).parents[2] / "book"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PAGE = """<!DOCTYPE html><html lang="en"><head><title>Book</title></head><body><nav>menu</nav>
<article class="bd-article"><h1 id="top">{title}<a class="headerlink" href="#top">#</a></h1>{body}</article>
</body></html>"""


@pytest.fixture(scope="module")
def pdf():
    sys.path.insert(0, str(BOOK))
    yield importlib.import_module("pdf")
    sys.path.remove(str(BOOK))


@pytest.fixture
def book(tmp_path):
    """Write a book of two pages; the second holds `body`."""

    def write(body):
        (tmp_path / "deep").mkdir(exist_ok=True)
        first = '<p><a href="deep/second.html#part">on</a><a href="notes.txt">a file</a></p>'
        (tmp_path / "index.html").write_text(PAGE.format(title="First", body=first))
        (tmp_path / "deep" / "second.html").write_text(PAGE.format(title="Second", body=body))
        return tmp_path

    return write


PARTS = [("", ["index"]), ("A part", ["deep/second"])]


def test_a_drawing_keeps_its_colours_and_arrows(pdf, book):
    drawing = '<svg><style>rect {fill: none}</style><defs><marker id="tip"/></defs><path marker-end="url(#tip)"/></svg>'
    document = pdf.one_document(book(f"<style>p {{color: red}}</style>{drawing}"), PARTS)
    assert [style.get_text() for style in document.select("article style")] == ["rect {fill: none}"]
    assert document.select_one("marker")["id"] == "tip"


def test_pages_become_one_document(pdf, book):
    body = (
        '<h2 id="part">Section</h2><details class="hide above-input"><pre>code</pre></details><button>x</button>'
        '<details><summary>Solution</summary>It is 2.</details><img src="../picture.png"/>'
        '<a href="../index.html">back</a>'
    )
    document = pdf.one_document(book(body), PARTS)
    assert [heading.get_text() for heading in document.select("h1, h2, h3")] == ["First", "A part", "Second", "Section"]
    assert [heading.name for heading in document.select("h1, h2, h3")] == ["h2", "h1", "h2", "h3"]
    assert [link["href"] for link in document.select("a[href]")] == ["#deep-second--part", "#index"]
    assert document.select_one("#deep-second--part").get_text() == "Section"
    assert document.select_one("img")["src"] == "picture.png"
    assert "code" not in document.get_text()
    assert "menu" not in document.get_text()
    assert document.select_one("details")["open"] == ""


def test_paper_leaves_out_what_a_reader_looks_up_on_the_screen(pdf, book):
    rows = "".join(f"<tr><td>row {n}</td><td>x</td></tr>" for n in range(41))
    cell = '<div class="cell_input"><pre>{}</pre></div>'
    body = (
        f'<section id="parameters">{cell.format("seed = 0")}</section><section>{cell.format("core()")}</section>'
        f'<section id="for-the-record"><h2 id="part">Record</h2></section><section>{cell.format("more()")}</section>'
        f'<div class="cell_output"><table><tbody>{rows}</tbody></table></div><table><tbody>{rows}</tbody></table>'
        '<div class="cell_output"><div class="provenance"><details><table><tr><th>model</th></tr>'
        "<tr><td>zoo:a</td><td>-</td><td>12&lt;</td></tr><tr><td>zoo:b</td><td>main</td><td>34</td></tr></table></details></div></div>"
    )
    page = pdf.one_document(book(body), PARTS).select_one("#deep-second")
    assert [code.get_text() for code in page.select("pre")] == ["core()"]
    computed, written = page.select("table")
    assert [len(table.select("tr")) for table in (computed, written)] == [13, 41]
    assert computed.select("tr")[-1].get_text() == "29 more rows stand in the book on the screen."
    assert page.select_one(".provenance p").get_text() == "zoo:a 12<, zoo:b main 34."


@pytest.fixture(scope="module")
def chromium(pdf):
    if pdf.installed() is None:
        pytest.skip("no Chromium on this machine")
    with pdf.browser(pdf.installed()) as started:
        yield started


def test_the_pdf_has_an_outline_and_page_numbers(pdf, book, chromium):
    html = book(f'<h2 id="part">Section</h2><img src="data:image/png;base64,{PIXEL}"/>')
    page = html / "printed.html"
    page.write_text(str(pdf.one_document(html, PARTS)))
    reader = PdfReader(io.BytesIO(pdf.write_pdf(chromium, page)))
    assert [item.title for item in reader.outline if not isinstance(item, list)] == ["First", "A part"]
    assert [sheet.extract_text().split()[-1] for sheet in reader.pages] == ["1", "2"]  # a part begins on its first page


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<img src="gone.png"/>', "picture missing"),
        ('<span class="math">x^2</span>', "equation missing"),
        ('<a href="#gone">there</a>', "link missing"),
    ],
)
def test_a_missing_part_stops_the_printing(pdf, book, chromium, body, fault):
    html = book(f'<h2 id="part">Section</h2>{body}')
    page = html / "printed.html"
    page.write_text(str(pdf.one_document(html, PARTS)))
    with pytest.raises(RuntimeError, match=fault):
        pdf.write_pdf(chromium, page)


def test_without_a_browser_it_is_one_line(pdf, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(pdf, "installed", lambda: None)
    monkeypatch.setattr(sys, "argv", ["pdf.py", str(tmp_path)])
    assert pdf.main() == 2
    assert "apt-get install chromium" in capsys.readouterr().err


def sizes(pdf_bytes):
    """Letters of the document by the height of their type, in points."""
    letters = collections.Counter()

    def count(text, matrix, of_text, font, height):
        letters[round(abs(height * of_text[3] * matrix[3]), 1)] += len(text.strip())

    for sheet in PdfReader(io.BytesIO(pdf_bytes)).pages:
        sheet.extract_text(visitor_text=count)
    return letters


@pytest.mark.parametrize(
    "wide",
    [
        "<table><tr>" + "<td style='white-space: nowrap'>1,234,567 and more</td>" * 12 + "</tr></table>",
        f"<pre>{'x' * 400}</pre>",
        '<div style="min-width: 900px"><svg width="900" height="9"><rect width="900" height="9"/></svg></div>',
        f'<img style="width: 900px" src="data:image/png;base64,{PIXEL}"/>',
    ],
    ids=["table", "code", "map", "picture"],
)
def test_text_has_ten_points_whatever_stands_beside_it(pdf, book, chromium, wide):
    html = book(f'<h2 id="part">Section</h2><p>{"Words of the book. " * 60}</p>{wide}')
    page = html / "printed.html"
    page.write_text(str(pdf.one_document(html, PARTS)))
    assert sizes(pdf.write_pdf(chromium, page)).most_common(1)[0][0] == 10


def test_a_table_of_too_many_columns_is_written_out_and_no_number_is_broken(pdf, book, chromium):
    heads = "".join(f"<th>value_{n}</th>" for n in range(30))
    cells = "".join(f"<td style='white-space: nowrap'>0.12345{n:02d}</td>" for n in range(29))
    table = f"<table><tr>{heads}</tr><tr><td>phi_match_unsigned</td>{cells}</tr></table>"
    html = book(f'<h2 id="part">Section</h2>{table}')
    page = html / "printed.html"
    page.write_text(str(pdf.one_document(html, PARTS)))
    text = PdfReader(io.BytesIO(pdf.write_pdf(chromium, page))).pages[1].extract_text()
    assert "phi_match_unsigned: value_1 0.1234500; value_2 0.1234501" in " ".join(text.split())


def test_what_cannot_be_made_to_fit_stops_the_printing(pdf, book, chromium):
    html = book('<h2 id="part">Section</h2><p style="width: 1200px">wide</p>')
    page = html / "printed.html"
    page.write_text(str(pdf.one_document(html, PARTS)))
    with pytest.raises(RuntimeError, match=r"too wide for its column.*1200px"):
        pdf.write_pdf(chromium, page)


@pytest.fixture
def silent(pdf, monkeypatch):
    """A browser that answers after a second of silence, longer than we wait, and one that never does."""
    monkeypatch.setattr(pdf.sys.modules["browser"], "PATIENCE", 0.3)
    read, write = os.pipe()
    started = object.__new__(pdf.Browser)
    started._read, started._buffer, started._group, started._worked = read, b"", 1, 0
    yield started, write
    os.close(read)
    os.close(write)


def test_who_works_may_be_silent(pdf, silent, monkeypatch):
    started, write = silent
    worked = itertools.count(1)
    monkeypatch.setattr(pdf.sys.modules["browser"], "seconds_worked", lambda group: next(worked))
    threading.Timer(1.0, os.write, (write, b'{"id": 1}\0')).start()
    assert started._next() == {"id": 1}
    monkeypatch.setattr(pdf.sys.modules["browser"], "seconds_worked", lambda group: 7)
    with pytest.raises(OSError, match=r"did nothing for 0\.3 s"):
        started._next()


def test_who_speaks_is_not_asked_whether_it_works(pdf, silent, monkeypatch):
    """A page's load is hundreds of messages, and to ask is to start a process."""
    started, write = silent
    monkeypatch.setattr(pdf.sys.modules["browser"], "seconds_worked", None)
    os.write(write, b'{"id": 1}\0{"id": 2}\0')
    assert [started._next(), started._next()] == [{"id": 1}, {"id": 2}]


def test_work_is_counted_in_seconds_of_the_whole_group(pdf):
    count = pdf.sys.modules["browser"].seconds_worked
    burn = "import time\nwhile time.process_time() < 2.5: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])\ninput()"
    command = [sys.executable, "-c", child]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as works:
        assert count(works.pid) == 0
        until = time.monotonic() + 60
        while count(works.pid) < 1 and time.monotonic() < until:
            time.sleep(0.2)
        assert count(works.pid) >= 1
        works.stdin.close()
    assert count(None) == 0
