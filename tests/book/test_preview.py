"""The book as far as it has come: what is there is shown, what is not says so."""

import os
import runpy
import sys
from pathlib import Path

import nbformat
import pytest

BOOK = Path(__file__).parents[2] / "book"


@pytest.fixture
def preview(monkeypatch):
    """The script's functions."""
    return runpy.run_path(str(BOOK / "preview.py"))


def page(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(), path)


def test_pages_that_are_not_there_yet_say_so(preview, tmp_path):
    page(tmp_path / "pages" / "llama_tree.ipynb")
    folder = tmp_path / "book"
    folder.mkdir()
    there, pages = preview["assemble"](tmp_path / "pages", folder)
    assert (there, pages) == (1, len(list((folder / "experiments").iterdir())))
    assert (folder / "experiments" / "llama_tree.ipynb").is_file()
    waiting = (folder / "experiments" / "toy_modulo30.md").read_text()
    assert waiting.startswith("# A toy with a known answer\n")
    assert f"1 of {pages} pages are there" in waiting
    assert (folder / "_toc.yml").is_file()
    front = (folder / "index.md").read_text()
    assert "experiments/llama_tree.ipynb\n```" in front  # what there is is shown
    assert ":doc: experiments/scoreboard.ipynb" not in front  # and what is not there yet leaves a line, once
    assert "*Still being computed.*\n\nTraining starts from random numbers" in front
    assert "computed.*\n\n*Still" not in (folder / "reading_a_verdict.md").read_text() + front


def test_a_book_stays_where_nothing_has_been_computed(preview, tmp_path):
    finished = tmp_path / "html"
    finished.mkdir()
    (finished / "index.html").write_text("whole")
    preview["main"](tmp_path, finished)
    assert (finished / "index.html").read_text() == "whole"


def test_a_book_that_is_newer_than_its_pages_stays(preview, tmp_path, monkeypatch):
    """And one that could not be built in part is left to the run that builds it whole."""
    page(tmp_path / "book" / "experiments" / "llama_tree.ipynb")
    finished = tmp_path / "html"
    finished.mkdir()
    (finished / "index.html").write_text("whole")
    preview["main"](tmp_path, finished)
    assert not (tmp_path / "preview").exists()
    os.utime(finished / "index.html", (0, 0))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "jupyter-book").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "jupyter-book").chmod(0o755)
    preview["main"](tmp_path, finished)
    assert (finished / "index.html").read_text() == "whole"
