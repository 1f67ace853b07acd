"""Buttons of a computed page: where its notebook opens, what can be downloaded, and none without an address."""

import os
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BINDER = "https://mybinder.org/v2/gh/someone/provlab/main?urlpath="


@pytest.fixture(scope="module")
def links():
    return runpy.run_path(str(ROOT / "book" / "page_links.py"))


@pytest.fixture
def page(links, tmp_path):
    """The context of the theme for a page, for an address and a page's name."""

    def built(address, name="experiments/llama_tree"):
        config = SimpleNamespace(repository_address=address, repository_branch="main")
        app = SimpleNamespace(config=config, srcdir=tmp_path / "book", outdir=tmp_path / "html")
        download = {"label": "download-buttons", "buttons": [{"text": ".ipynb"}, {"text": ".pdf"}]}
        context = {"header_buttons": [download], "pathto": lambda path, resource: f"../{path}"}
        links["add_buttons"](app, name, "page.html", context, object())
        return {group["label"]: group["buttons"] for group in context["header_buttons"]}

    return built


@pytest.mark.parametrize("end", ["", "/", ".git"])
def test_a_notebook_of_the_repository_opens_in_three_places(page, end):
    result = {
        button["text"]: button["url"] for button in page(f"https://github.com/someone/provlab{end}")["launch-buttons"]
    }
    assert result == {
        "JupyterLab": f"{BINDER}lab%2Ftree%2Fnotebooks%2Fllama_tree.ipynb",
        "Binder": f"{BINDER}notebooks%2Fnotebooks%2Fllama_tree.ipynb",
        "Colab": "https://colab.research.google.com/github/someone/provlab/blob/main/notebooks/llama_tree.ipynb",
    }
    assert (ROOT / "notebooks" / "llama_tree.ipynb").is_file()


def test_without_an_address_there_are_no_links(page):
    assert "launch-buttons" not in page("")
    assert "launch-buttons" not in page("https://github.com/someone/provlab", name="glossary")


def test_the_records_of_a_page_can_be_downloaded_where_there_are_any(page, tmp_path):
    assert [button["text"] for button in page("")["download-buttons"]] == [".ipynb", ".pdf"]
    (tmp_path / "book" / "records").mkdir(parents=True)
    (tmp_path / "book" / "records" / "llama_tree.json").write_text("{}")
    button = page("")["download-buttons"][1]
    assert button["url"] == "../_sources/experiments/llama_tree.json"
    assert (tmp_path / "html" / "_sources" / "experiments" / "llama_tree.json").read_text() == "{}"


@pytest.mark.parametrize(
    "address", ["provlab", "http://github.com/a/b", "https://github.com/a", "https://example.org/a/b"]
)
def test_an_address_that_is_none_is_named_in_one_line(links, address):
    config = SimpleNamespace(repository_address=address, repository_branch="main")
    with pytest.raises(
        ValueError, match=r"^repository_address in _config.yml is .*, no https://github.com/OWNER/NAME$"
    ):
        links["places"](address, "main", "")
    links["check_address"](None, config)
    assert config.repository_address == ""


def test_what_is_published_names_no_address_and_binder_installs_the_lock():
    assert yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]["repository_address"] == ""
    binder, conda = (
        yaml.safe_load((ROOT / path).read_text()) for path in (".binder/environment.yml", "environment.yml")
    )
    assert binder["dependencies"] == [line for line in conda["dependencies"] if isinstance(line, str)]
    script = ROOT / ".binder" / "postBuild"
    assert "-r requirements.lock" in script.read_text()
    assert os.access(script, os.X_OK)
