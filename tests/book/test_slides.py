"""Slides are made from the pages of the sessions, hold what these say, and load nothing."""

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from check_html import Page

COURSE = Path(__file__).resolve().parents[2] / "book" / "course"
PNG = "iVBORw0KGgo="

TINY = Path(__file__).with_name("tiny_session.md").read_text(encoding="utf-8")


@pytest.fixture
def slides(tmp_path, monkeypatch):
    """The script's functions; the only executed chapter is a page with two figures in one cell."""
    monkeypatch.delenv("PROFILE", raising=False)
    monkeypatch.syspath_prepend(str(COURSE))
    script = runpy.run_path(str(COURSE / "slides.py"))
    drawn = [
        {"data": {"image/png": png}, "metadata": {"image/png": {"alt": alt}}}
        for png, alt in (("xx", "another"), (PNG, "a tree"))
    ]
    page = tmp_path / "smoke" / "book" / "experiments" / "llama_tree.ipynb"
    page.parent.mkdir(parents=True)
    cells = [
        {"id": "opening-picture", "outputs": drawn[:1]},
        {"id": "cell-09", "metadata": {"tags": ["opening"]}, "outputs": [{"text": ""}, *drawn[1:]]},
        {"id": "cell-14"},
    ]
    page.write_text(json.dumps({"cells": cells}))
    script["build"].__globals__["BUILD"] = tmp_path
    return script


def deck(slides, tmp_path, text):
    pages = tmp_path / "book" / "course"
    pages.mkdir(parents=True, exist_ok=True)
    for number in (1, 2):
        (pages / f"session_{number:02d}.md").write_text(text)
    first, second = slides["build"]([1], pages, tmp_path / "out")
    assert (first.name, second.name) == ("session_01.html", "session_02.html")
    return first


def test_a_handout_has_the_work_and_not_the_answers(slides, tmp_path):
    text = slides["handouts"]([1], COURSE, tmp_path).read_text(encoding="utf-8").split("<script>")[0]
    assert text.count("<article>") == 2
    assert all(f"<h3>{title}</h3>" in text for title in ("Vote: independent or not?", "By hand", "Discuss"))
    assert "the tie counts" not in text  # an answer
    assert "A case</h3>" not in text  # a slide to look at


def test_a_tiny_page_becomes_its_slides(slides, tmp_path):
    made = deck(slides, tmp_path, TINY)
    text = made.read_text()
    shown = re.findall(r"<section.*?</section>", text, re.DOTALL)
    assert len(shown) == 3
    assert "not shown" not in text.lower()
    assert r"\(\theta\)" in shown[0]
    assert "Its subject." in shown[0]
    assert "Zhu et al. 2025" in shown[1]
    assert r"\(a &lt; b\)" in shown[1]
    assert re.search(r"\\\[\s*\\sum_i x_i\^2\s*\\\]", shown[1])
    assert re.findall(r'src="data:image/png;base64,(\S+)" alt="(.*?)"', shown[1]) == [
        ("xx", "another"),
        (PNG, "a tree"),
    ]
    assert '<cite>The Llama tree</cite> and the plan, or <a href="https://example.org">the web</a>' in shown[1]
    assert re.search(r'<aside class="notes">.*Answer.*Because of \\\(p\\\)', shown[1], re.DOTALL)
    assert "A figure of <cite>Evasion</cite> stands here once" in shown[2]
    assert "make notebooks" in shown[2]
    assert "<pre><code>provlab compare A B" in shown[2]
    assert '<div class="box"><p>A box.</p>' in shown[2]
    assert Page(made).faults == []


def test_the_check_sees_what_a_deck_would_load(slides, tmp_path):
    made = deck(slides, tmp_path, TINY)
    made.write_text(made.read_text().replace("</head>", '<script src="https://cdn.example.org/x.js"></script></head>'))
    assert Page(made).faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no title", "does not begin with a title"),
        ("# T\n\n### S\n\n:::{video} x\n:::\n", r"do not know the directive \{video\}"),
        ("# T\n\n### S\n\n{video}`x`\n", r"do not know the role \{video\}"),
        ("# T\n\n### S\n\n{cite}`nobody2020`\n", "no entry nobody2020"),
    ],
)
def test_what_slides_cannot_show_is_named(slides, tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        deck(slides, tmp_path, text)


def test_all_sessions_have_their_slides_and_load_nothing(slides, tmp_path):
    made = slides["build"](range(1, 6), COURSE, tmp_path / "out")
    assert [path.stem for path in made] == [f"session_{number:02d}" for number in range(1, 11)]
    for path in made:
        page, text = Page(path), path.read_text()
        assert page.faults == []
        sections = (COURSE / f"{path.stem}.md").read_text().count("\n### ")
        assert text.count("<section") == sections + 1 >= 10
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?!data:)\w', text)  # one file, all inside


def test_what_is_vendored_comes_with_its_licence():
    for name in ("reveal", "mathjax"):
        assert "copyright" in (COURSE.parent / "_assets" / name / "LICENSE").read_text().lower()


def test_a_session_page_shows_the_picture_of_its_chapter(slides, tmp_path):
    place = runpy.run_path(str(COURSE / "session_pictures.py"))["place"]
    app = SimpleNamespace(srcdir=tmp_path / "smoke" / "book")
    text = "Before.\n\n% figure: llama_tree cell-09 2\n\n% figure: evasion cell-01\n"
    source = [text]
    place(app, "course/session_04", source)
    assert source[0].count("<img") == 1
    assert f'alt="a tree" src="data:image/png;base64,{PNG}"' in source[0]
    assert "% figure: evasion cell-01" in source[0]  # that chapter has not been run
    assert "<details" not in source[0]
    twice = ["% figure: llama_tree cell-09 2\n\n% figure: llama_tree cell-09 2\n"]
    place(app, "course/session_04", twice)
    assert twice[0].count("<img") == 2
    assert twice[0].count("<details") == twice[0].count("Picture: a tree</summary>") == 1  # all but the first fold
    elsewhere = [text]
    place(app, "index", elsewhere)
    assert elsewhere == [text]


def test_every_session_page_has_a_picture():
    pages = sorted(COURSE.glob("session_*.md"))
    assert [page.name for page in pages if "\n% figure: " not in page.read_text(encoding="utf-8")] == []
