"""A page is stale when what it can reach changed, and by nothing else: changes are planted in a copy of the package."""

import ast
import re
import shutil
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


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    root = tmp_path_factory.mktemp("copy") / "provlab"
    shutil.copytree(SRC, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def reached_by_pages(root):
    found = {}
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        found[path.stem] = reach.reached(code, None if path.stem in SHOWS_ALL else {path.stem}, root)
    return found


@pytest.fixture(scope="module")
def before(copy):
    return reached_by_pages(copy)


def stale(copy, before):
    return {page for page, reached in reached_by_pages(copy).items() if reached != before[page]}


def test_a_sentence_in_every_module_makes_no_page_stale(copy, before):
    texts = {path: path.read_text(encoding="utf-8") for path in copy.rglob("*.py")}
    for path, text in texts.items():
        head, quotes, rest = text.partition('"""')
        path.write_text(f"# another\n{head}{quotes}Another sentence. {rest}\n# and another\n" if quotes else text)
    try:
        assert stale(copy, before) == set()
    finally:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "pages"),
    [
        # the tree knows nothing of where two models disagree
        ("modeldiff/nll.py", DIFFERENCES),
        ("modeldiff/mbar.py", DIFFERENCES),  # reached by way of others
        ("chapters/power/limits.py", {"power"}),
        ("chapters/miqu/predicates.py", {"miqu"} | SHOWS_ALL),  # found by its folder, at run time
        ("chapters/miqu/claims.yml", {"miqu"} | SHOWS_ALL),
        ("publishing/published/independence_table8_mlp_retraining.csv", {"mlp_retraining"} | SHOWS_ALL),
        ("fullsize/rates.py", {"audit", "how_it_scales"}),
        ("statistics/phi_u.py", EVERY),
        ("inference/pvalues.py", EVERY),
        ("zoo/striped.py", EVERY),  # a maker, loaded by the name of its kind
        ("zoo/families.yml", EVERY),
        ("models/disguise.py", EVERY),  # an entry point
        ("engine/llama7b_tree.csv", EVERY),
        ("cli/compare.py", set()),
        ("publishing/runner.py", set()),
    ],
)
def test_a_changed_line_makes_those_pages_stale_that_reach_it(copy, before, file, pages):
    path = copy / file
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "\nANOTHER = 1\n", encoding="utf-8")
    try:
        assert stale(copy, before) == pages
    finally:
        path.write_text(text, encoding="utf-8")


def test_every_module_and_every_data_file_is_reached_by_a_page_or_a_command(before):
    commands = "\n".join(f"import {name}" for name in reach.modules(SRC) if name.startswith("provlab.cli"))
    reached = set(reach.reached(commands, set(), SRC)).union(*before.values())
    assert set(reach.modules(SRC)) - reached == set()
    assert set(reach.data_files(SRC)) - reached == set()


def test_what_is_loaded_by_name_is_spelt_where_it_is_loaded():
    """A name put together otherwise than by an f-string that begins with the package would not be seen."""
    # tables of whole names; modules of Python itself
    spelt_in_strings = {"provlab.lazy", "provlab.zoo.corpus", "provlab.models.formats.container"}
    for name, path in reach.modules(SRC).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                text = ast.unparse(node.args[0])
                assert re.match(r"""f?['"](provlab\.|\{__name__)""", text) or name in spelt_in_strings, (name, text)


def test_tables_of_lazy_names_spell_whole_modules():
    calls = [
        node
        for path in reach.modules(SRC).values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazily"
    ]
    assert calls
    for call in calls:
        assert set(ast.literal_eval(call.args[1]).values()) <= reach.modules(SRC).keys()


# Names in code --------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path):
    for name in ("__init__", "a", "b", "deep/__init__", "deep/c", "deep/d", "chapters/__init__", "chapters/x/p"):
        path = tmp_path / "provlab" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "provlab" / "chapters" / "y").mkdir()
    (tmp_path / "provlab" / "chapters" / "y" / "p.py").touch()
    (tmp_path / "provlab" / "deep" / "table.csv").touch()
    return tmp_path / "provlab"


CHAPTERS = "load(f'provlab.chapters.{name}.p')"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import numpy", ""),
        ("import provlab", "provlab"),
        ("import provlab.deep.c as c", "provlab provlab.deep provlab.deep.c"),
        ("from provlab import a", "provlab provlab.a"),
        ("from provlab.a import f", "provlab provlab.a"),
        ("def f():\n    from provlab.deep import c", "provlab provlab.deep provlab.deep.c"),
        ("try:\n    import provlab.a\nexcept ImportError:\n    import provlab.b", "provlab provlab.a provlab.b"),
        ("if TYPE_CHECKING:\n    from provlab import a", ""),
        ('HOMES = {"f": "provlab.a:f"}', "provlab provlab.a"),
        ('def f():\n    """Like provlab.a."""', ""),
        ("load(f'provlab.deep.{name}')", "provlab provlab.deep provlab.deep.c provlab.deep.d"),
        ("open('table.csv'); f('table')", "deep/table.csv"),
        ("open('tables.csv')", ""),
        (CHAPTERS, "provlab provlab.chapters provlab.chapters.x provlab.chapters.x.p"),
        (
            "%time f()",
            "provlab provlab.a provlab.b provlab.deep provlab.deep.c provlab.deep.d provlab.chapters "
            "provlab.chapters.x.p provlab.chapters.y.p",
        ),
    ],
)
def test_what_code_reaches(package, code, found):
    expected = set(found.split()) - {"provlab.chapters.x"}  # a folder without __init__
    assert set(reach.reached(code, {"x"}, package)) == expected


def test_without_a_chapter_of_its_own_a_page_reaches_all(package):
    assert "provlab.chapters.y.p" in reach.reached(CHAPTERS, None, package)


def test_a_module_can_name_others_of_its_own_package(package):
    (package / "deep" / "__init__.py").write_text("def get(name):\n    return load(f'{__name__}.{name}')")
    assert {"provlab.deep.c", "provlab.deep.d"} <= set(reach.reached("import provlab.deep", set(), package))


def test_what_the_package_loads_lazily_counts_where_it_is_asked_for():
    """Asking for compare does not bring what diff needs; under another name the package may be asked anything."""
    asked = {
        code: "provlab.diffing" in reach.reached(code, set(), SRC)
        for code in (
            "import provlab\nprovlab.compare",
            "import provlab\nprovlab.diff",
            "from provlab import diff",
            "import provlab as p\np.diff",
        )
    }
    assert list(asked.values()) == [False, True, True, True]
