"""A page is stale when code or data that it can reach changed, and by nothing else."""

import ast
import re
import sys
from pathlib import Path

import nbformat
import pytest

import provlab
from provlab.publishing import reach

SRC = Path(provlab.__file__).parent
NOTEBOOKS = SRC.parent.parent / "notebooks"
#: pages on where two models disagree, and those that offer it or plan it
DIFFERENCES = {"audit", "how_it_scales", "model_diff", "plagiarism", "toy_modulo30", "two_models"}
EVERY = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
SHOWS_ALL = {"scoreboard", "status"}
CHAPTERS = "load(f'tiny.chapters.{name}.p')"


@pytest.fixture(scope="module")
def pages():
    reached = {}
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        reached[path.stem] = reach.reached(code, None if path.stem in SHOWS_ALL else {path.stem})
    return reached


def test_a_sentence_changes_no_digest_and_a_line_of_code_does():
    modules = reach.package("provlab").files
    for path in modules.values():
        code = path.read_text(encoding="utf-8")
        head, quotes, rest = code.partition('"""')
        reworded = f"# another\n{head}{quotes}Another sentence. {rest}\n# and another\n" if quotes else code
        assert reach.read(reworded, modules).digest == reach.read(code, modules).digest, path
        assert reach.read(code + "\nANOTHER = 1\n", modules).digest != reach.read(code, modules).digest, path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # the tree knows nothing of where two models disagree
        ("provlab.modeldiff.nll", DIFFERENCES),
        ("provlab.modeldiff.moves", DIFFERENCES),  # reached by way of others
        ("provlab.chapters.power.limits", {"power"}),
        ("provlab.chapters.miqu.predicates", {"miqu"} | SHOWS_ALL),  # found by its folder, at run time
        ("chapters/miqu/claims.yml", {"miqu"} | SHOWS_ALL),
        ("publishing/published/independence_table8_mlp_retraining.csv", {"mlp_retraining"} | SHOWS_ALL),
        ("provlab.planning.rates", {"audit", "how_it_scales"}),
        ("provlab.statistics.phi_u", EVERY),
        ("provlab.inference.pvalues", EVERY),
        ("provlab.zoo.language", EVERY),  # a maker, loaded by the name of its kind
        ("zoo/families.yml", EVERY),
        ("provlab.models.disguise", EVERY),  # an entry point
        ("engine/llama7b_tree.csv", EVERY),
        ("provlab.cli.compare", set()),
        ("provlab.publishing.runner", set()),
    ],
)
def test_a_module_belongs_to_the_pages_that_reach_it(pages, name, expected):
    assert {page for page, reached in pages.items() if name in reached} == expected


def test_every_module_and_every_data_file_is_reached_by_a_page_or_a_command(pages):
    whole = reach.package("provlab")
    commands = "\n".join(f"import {name}" for name in whole.files if name.startswith("provlab.cli"))
    reached = set(reach.reached(commands, set())).union(*pages.values())
    assert set(whole.files) - reached == set()
    assert set(whole.data) - reached == set()


def test_modules_loaded_by_name_are_spelt_where_they_are_loaded():
    """A name put together otherwise than by an f-string that begins with the package would not be seen."""
    # tables of whole names; modules of Python itself; the package itself
    spelt_in_strings = {
        "provlab.lazy",
        "provlab.zoo.corpus",
        "provlab.models.formats.container",
        "provlab.publishing.reach",
    }
    for name, path in reach.package("provlab").files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                text = ast.unparse(node.args[0])
                assert re.match(r"f?['\"]provlab\.", text) or name in spelt_in_strings, (name, text)


# Names in code --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A package of its own, named ``tiny``; ``tiny.f`` is loaded from ``tiny.a`` on first use."""
    files = {
        "__init__": "HOMES = {'f': 'tiny.a'}",
        "deep/c": "if TYPE_CHECKING:\n    from tiny.deep import d",
        **dict.fromkeys(["a", "b", "deep/__init__", "deep/d", "chapters/__init__"], ""),
        **dict.fromkeys(["chapters/x/__init__", "chapters/x/p", "chapters/y/__init__", "chapters/y/p"], ""),
    }
    for name, code in files.items():
        path = tmp_path / "tiny" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    (tmp_path / "tiny" / "deep" / "table.csv").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield
    reach.package.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tiny"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import numpy", ""),
        ("import tiny", "tiny"),
        ("import tiny.deep.c as c", "tiny tiny.deep tiny.deep.c"),
        ("from tiny import a", "tiny tiny.a"),
        ("from tiny.a import f", "tiny tiny.a"),
        ("import tiny\ntiny.f", "tiny tiny.a"),
        ("from tiny import f", "tiny tiny.a"),
        ("import tiny as t\nt.f", "tiny tiny.a"),
        ("def f():\n    from tiny.deep import d", "tiny tiny.deep tiny.deep.d"),
        ("try:\n    import tiny.a\nexcept ImportError:\n    import tiny.b", "tiny tiny.a tiny.b"),
        ('HOMES = {"f": "tiny.a:f"}', "tiny tiny.a"),
        ('def f():\n    """Like tiny.a."""', ""),
        ("load(f'tiny.deep.{name}')", "tiny tiny.deep tiny.deep.c tiny.deep.d"),
        ("open('table.csv'); f('table')", "deep/table.csv"),
        ("open('tables.csv')", ""),
        (CHAPTERS, "tiny tiny.chapters tiny.chapters.x tiny.chapters.x.p"),
    ],
)
def test_reached_modules_and_files(tiny, code, expected):
    assert set(reach.reached(code, {"x"}, "tiny")) - {"tiny.chapters.y.p", "tiny.chapters.y"} == set(expected.split())


def test_only_the_chapters_that_count_are_reached_by_their_folders(tiny):
    assert "tiny.chapters.y.p" not in reach.reached(CHAPTERS, {"x"}, "tiny")
    assert "tiny.chapters.y.p" in reach.reached(CHAPTERS, None, "tiny")


def test_a_page_that_cannot_be_parsed_reaches_all(tiny):
    assert set(reach.package("tiny").files) <= set(reach.reached("%time f()", {"x"}, "tiny"))
