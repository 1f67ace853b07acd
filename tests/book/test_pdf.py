"""The printed book: pages become one document whose links stay inside, and a missing part stops the printing."""

import importlib
import io
import sys
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
    assert [sheet.extract_text().split()[-1] for sheet in reader.pages] == ["1", "2", "3"]


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
