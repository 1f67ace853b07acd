"""The index of symbols names code that exists, and a chapter for each symbol."""

import re
from importlib import import_module
from pathlib import Path

import nbformat
import pytest

from provlab import statistics

BOOK = Path(__file__).parents[2] / "book"
TABLES, LETTERS = (BOOK / "symbols.md").read_text().split("## One letter, two meanings")
LINES = [line for line in TABLES.splitlines() if line.startswith("| ") and not line.startswith("| symbol |")]
NAMES = sorted(set(re.findall(r"`(provlab(?:_study)?\.[\w.]+)`", "\n".join(LINES))))


def named(name: str) -> object:
    """The object behind a dotted name: the longest part of it that is a module, and attributes of that."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            result: object = import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:  # a field of a dataclass is documented by its class
            result = result if part in getattr(result, "__dataclass_fields__", ()) else getattr(result, part)
        return result
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_code_of_a_symbol_exists(name):
    assert named(name).__doc__


@pytest.mark.parametrize("name", ["provlab.inference.pvalues.no_such", "provlab.no_such.pvalues"])
def test_a_name_that_is_gone_is_seen(name):
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        named(name)


@pytest.mark.parametrize("line", LINES)
def test_each_symbol_has_its_chapter_and_its_code(line):
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert len(cells) == 3
    assert re.fullmatch(r"\[[^]]+\]\(experiments/\w+\.ipynb(#[\w-]+)?\) `provlab(_study)?\.[\w.]+` ?", cells[2])


def test_every_test_of_the_library_is_defined():
    own = {entry.module for entry in statistics.REGISTRY.values() if entry.module.startswith("provlab.")}
    assert {module for module in own if module not in TABLES} == set()


@pytest.mark.parametrize("name", ["toy_modulo30", "model_diff", "plagiarism", "two_models"])
def test_letters_that_both_papers_use_keep_the_form_of_the_second(name):
    cells = nbformat.read(BOOK.parent / "notebooks" / f"{name}.ipynb", as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    alone = r"(?<!\\mathcal )(?<![A-Za-z\\])D(?![A-Za-z])|(?<!\\mathbb )(?<![A-Za-z\\])Z(?![A-Za-z])|\\rho(?![_(])"
    assert [m for m in re.findall(r"\$\$.+?\$\$|\$[^$]+\$", text, re.DOTALL) if re.search(alone, m)] == []
