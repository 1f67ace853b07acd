"""Checks of the book before it is built: pages exist, links lead somewhere, terms and keys are defined."""

import json
import re
from pathlib import Path

import pytest
import yaml
from sphinx.util.matching import Matcher

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text())
SPHINX = CONFIG["sphinx"]["config"]
PAGES = sorted(BOOK.glob("*.md"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def toc_files() -> list[str]:
    toc = yaml.safe_load((BOOK / "_toc.yml").read_text())
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


def sources() -> dict[Path, str]:
    """Text of every page and of every markdown cell, by the place that it has in the book."""
    texts = {page: page.read_text() for page in (*PAGES, *sorted(BOOK.glob("course/*.md")))}
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text())["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        texts[BOOK / "experiments" / notebook.name] = text
    return texts


def defined_terms() -> list[str]:
    body = (BOOK / "glossary.md").read_text().split("```{glossary}")[1].split("```")[0]
    return [line.strip().lower() for line in body.splitlines() if line and not line[0].isspace()]


def bibliography_keys() -> set[str]:
    return set(re.findall(r"^@\w+\{([^,]+),", (BOOK / "references.bib").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("name", toc_files())
def test_the_contents_list_what_exists(name):
    if name.startswith("experiments/"):
        assert (ROOT / "notebooks" / f"{name.removeprefix('experiments/')}.ipynb").is_file()
    else:
        assert (BOOK / f"{name}.md").is_file()


def test_every_page_and_notebook_is_in_the_contents():
    named = set(toc_files())
    assert {page.stem for page in PAGES} <= named
    assert {f"experiments/{notebook.stem}" for notebook in NOTEBOOKS} <= named


def test_the_book_reads_without_a_network():
    assert SPHINX["mathjax_path"] == "mathjax/tex-svg.js"
    assert (BOOK / "_assets" / SPHINX["mathjax_path"]).stat().st_size > 1_000_000
    assert "Apache License" in (BOOK / "_assets" / "mathjax" / "LICENSE").read_text()
    assert SPHINX["html_static_path"] == ["_assets"]
    assert "sphinx_thebe" not in SPHINX["extensions"]
    assert "sphinx.ext.intersphinx" not in SPHINX["extensions"]


def test_what_a_killed_run_left_is_no_page():
    left = Matcher(CONFIG["exclude_patterns"])
    assert all(left(f"experiments/.tree.ipynb.{end}") for end in ("k3v9", "k3v9.ipynb"))
    assert not left("experiments/tree.ipynb")


def test_notebooks_are_not_run_by_the_build():
    assert CONFIG["execute"]["execute_notebooks"] == "off"


@pytest.mark.parametrize("key", ["html_css_files", "html_static_path"])
def test_files_of_the_configuration_exist(key):
    folder = BOOK if key == "html_static_path" else BOOK / "_assets"
    assert all((folder / name).exists() for name in SPHINX[key])
    assert all((BOOK / name).is_file() for name in CONFIG["bibtex_bibfiles"])


@pytest.mark.parametrize("name", [n.stem for n in NOTEBOOKS if n.stem not in ("scoreboard", "status", "what_failed")])
def test_the_core_of_a_chapter_is_short_and_the_rest_folds(name):
    text = sources()[BOOK / "experiments" / f"{name}.ipynb"]
    core, rest = text.split("\n## For the record\n")
    assert len(core.split()) <= 1500
    assert "\n## What this does not show\n" in core
    assert "\n## Exercises\n" in rest


@pytest.mark.parametrize("page", sorted(sources()), ids=lambda page: page.stem)
def test_terms_citations_and_links_lead_somewhere(page):
    text = sources()[page]
    terms = [m[1] or m[0] for m in re.findall(r"\{term\}`([^`<]*?)(?:\s*<([^>]+)>)?`", text)]
    assert {t.strip().lower() for t in terms} <= set(defined_terms())
    cited = {key.strip() for result in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text) for key in result.split(",")}
    assert cited <= bibliography_keys()
    targets = [m[1] or m[0] for m in re.findall(r"\{doc\}`([^`<]*?)(?:\s*<([^>]+)>)?`", text)]
    targets += [t for t in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in t]
    targets += re.findall(r"^:file: (.*)$", text, re.MULTILINE) + re.findall(r"\{image\} (.*)$", text, re.MULTILINE)
    for target in targets:
        path = (page.parent / target).resolve()
        if path.parent.name == "experiments":
            path = ROOT / "notebooks" / path.name
        if path.name.endswith(".costs.csv"):  # the build puts it beside the pages
            path = ROOT / "notebooks" / "profiles" / path.name
        assert any(path.with_name(path.name + end).is_file() for end in ("", ".md", ".ipynb")), target


def items(page: str) -> list[tuple[set[tuple[str, int]], set[str], set[str]]]:
    """Lines of a page's list of items: which of the paper's, names of the pages that have them, and claims."""
    table = (BOOK / page).read_text().split("## Item by item")[1].split("|---|---|---|---|\n")[1].split(":::")[0]
    lines = []
    for item, here, claims, _ in (line.strip("|").split("|") for line in table.splitlines()):
        named = set()
        for kind, numbers in re.findall(r"([A-Z][a-z]+?)s? (\d+(?:(?:, | and | to )\d+)*)", item):
            for part in re.split(", | and ", numbers):
                first, _, last = part.partition(" to ")
                named |= {(kind, number) for number in range(int(first), int(last or first) + 1)}
        lines.append((named, set(re.findall(r"experiments/(\w+)\.ipynb", here)), set(re.findall(r"[IDO]\d+", claims))))
    return lines


@pytest.mark.parametrize(
    ("page", "paper", "numbers"),
    [
        (
            "paper_by_section.md",
            "independence",
            {"Figure": 11, "Table": 15, "Equation": 3, "Definition": 4, "Theorem": 3, "Algorithm": 3, "Example": 1},
        ),
        ("modeldiff_by_section.md", "model-diff", {"Figure": 7, "Table": 2, "Equation": 17}),
    ],
)
def test_each_item_of_a_paper_and_each_claim_has_its_place(page, paper, numbers):
    """The numbers are how many the paper has of each; a claim stands beside a page that judges it."""
    lines = items(page)
    named = {one for line, *_ in lines for one in line if one[0] in numbers}
    assert named == {(kind, k + 1) for kind, n in numbers.items() for k in range(n)}
    claimed = [(claim, pages) for _, pages, claims in lines for claim in claims]
    judged_on = {row["id"]: chapter for chapter, row in rows_of_claims() if row["paper"] == paper}
    assert sorted(claim for claim, _ in claimed) == sorted(judged_on)
    assert [claim for claim, pages in claimed if judged_on[claim] not in pages] == []


def rows_of_claims() -> list[tuple[str, dict]]:
    """Each claim with the chapter that judges it."""
    files = sorted((ROOT / "src" / "provlab_study").glob("*/claims.yml"))
    return [(file.parent.name, row) for file in files for row in yaml.safe_load(file.read_text())]


def test_glossary_is_in_alphabetical_order():
    assert defined_terms() == sorted(set(defined_terms()))
