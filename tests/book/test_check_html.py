"""The check of the built book is itself checked: each fault it looks for is planted once."""

import pytest
from check_html import check

GOOD = '<html><body><h2 id="here">A</h2><img alt="a tree" src="x.png"/><a href="#here">up</a>{}</body></html>'


def built(folder, body="", **others):
    (folder / "index.html").write_text(GOOD.format(body))
    for name, text in others.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_a_sound_book_passes(tmp_path):
    links = '<a href="https://arxiv.org/abs/2502.12292">paper</a><link rel="canonical" href="https://example.org/"/>'
    assert check(built(tmp_path, links + '<a href="other.html#there">x</a>', other_html='<p id="there">b</p>')) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<script src="https://cdn.example.org/x.js"></script>', "<script> loads"),
        ('<script src="//cdn.example.org/x.js"></script>', "<script> loads"),
        ('<link rel="stylesheet" href="http://example.org/x.css"/>', "<link> loads"),
        ('<img alt="a" src="https://example.org/x.png"/>', "<img> loads"),
        ('<iframe src="https://example.org"></iframe>', "<iframe> loads"),
        ("<style>@import 'https://fonts.example.org/x.css';</style>", "a style loads"),
        ('<p style="background:url(https://example.org/x.png)">a</p>', "a style loads"),
        ('<script>const THEBE_JS_URL = "https://unpkg.example/x.js"</script>', "a script loads"),
        ('<img src="x.png"/>', "without alt"),
        ('<img alt=" " src="x.png"/>', "without alt"),
        ("<pre>Traceback (most recent call last)</pre>", "shows a failure"),
        ("<p>An Exception was encountered at 'In [3]'</p>", "shows a failure"),
        ('<div class="output traceback"></div>', "a cell that failed"),
        ('<a href="gone.html">x</a>', "a link to nothing"),
        ('<a href="#gone">x</a>', "no such place"),
        ('<a href="../outside.html">x</a>', "a link to nothing"),
        ("<figure data-illegible=\"'D' leaves the picture\"></figure>", "whose words cannot be read: 'D' leaves"),
        (f"<td>{[-0.5] * 84}</td>", "a list of numbers in the place of one"),
    ],
)
def test_each_fault_is_found(tmp_path, body, fault):
    faults = check(built(tmp_path, body))
    assert len(faults) == 1
    assert fault in faults[0]


def test_a_style_sheet_is_read_too(tmp_path):
    (tmp_path / "x.css").write_text("@font-face { src: url('https://fonts.example.org/a.woff2'); }")
    assert check(built(tmp_path)) == ["x.css: loads url('https://fonts.example.org/a.woff2"]


def test_an_empty_folder_is_no_book(tmp_path):
    assert "no index.html" in check(tmp_path)[0]
