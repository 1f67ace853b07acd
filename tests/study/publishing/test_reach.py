"""A page is stale when code or data that it can reach changed, and by nothing else."""

import ast
import re
from importlib.metadata import entry_points
from pathlib import Path

import nbformat
import pytest

import provlab
from provlab_study.publishing import reach

NOTEBOOKS = Path(provlab.__file__).parents[2] / "notebooks"
#: pages on where two models disagree, and those that offer it or plan it
DIFFERENCES = {"audit", "how_it_scales", "model_diff", "plagiarism", "public_cases", "toy_modulo30", "two_models"}
EVERY = {path.stem for path in NOTEBOOKS.glob("*.ipynb")}
SHOWS_ALL = {"scoreboard", "status", "what_failed"}


@pytest.fixture(scope="module")
def pages():
    reached = {}
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        reached[path.stem] = reach.reached(code, None if path.stem in SHOWS_ALL else {path.stem})
    return reached


def test_a_sentence_changes_no_digest_and_a_line_of_code_does(tmp_path):
    digests = []
    for text in ('"""A."""\nx = 1\n', '# another\n"""Another. A."""\nx = 1  # one\n', '"""A."""\nx = 1\nANOTHER = 1\n'):
        path = tmp_path / f"{len(digests)}.py"
        path.write_text(text)
        digests.append(reach.digest_of(path))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # the tree knows nothing of where two models disagree
        ("provlab.modeldiff.nll", DIFFERENCES),
        ("provlab.modeldiff.moves", DIFFERENCES),  # reached by way of others
        ("provlab_study.power.limits", {"power"}),
        ("provlab_study.miqu.predicates", {"miqu"} | SHOWS_ALL),  # found by its folder, at run time
        ("provlab_study/miqu/claims.yml", {"miqu"} | SHOWS_ALL),
        ("provlab_study/publishing/published/independence_table8_mlp_retraining.csv", EVERY),
        ("provlab.planning.trial", {"audit", "how_it_scales"}),
        ("provlab.statistics.phi_u", EVERY),
        ("provlab.inference.pvalues", EVERY),
        ("provlab.zoo.language", EVERY),  # a maker, loaded by the name of its kind
        ("provlab/zoo/families.yml", EVERY),
        ("provlab.attacks.disguise", EVERY),  # an entry point
        ("provlab/report/llama7b_tree.csv", EVERY),
        ("provlab.cli.compare", set()),
        ("provlab_study.publishing.runner", set()),
    ],
)
def test_a_module_belongs_to_the_pages_that_reach_it(pages, name, expected):
    assert {page for page, reached in pages.items() if name in reached} == expected


def test_every_module_is_reached_by_a_page_or_a_command(pages):
    commands = [name for name in reach.files() if re.match(r"provlab\.cli|provlab_study\.commands", name)]
    commands += [command.value for command in entry_points(group="provlab.commands")]
    assert (
        set(reach.files()) - set(reach.reached(f"import {', '.join(commands)}", set())).union(*pages.values()) == set()
    )


def test_modules_are_loaded_by_name_where_every_page_reaches_them():
    """A module that is loaded by name elsewhere would not be seen: no page would be stale where it changed."""
    loaded = {
        "provlab.lazy",  # names of the packages themselves
        "provlab.extras",  # packages by others
        "provlab.zoo.corpus",  # modules of Python itself
        "provlab.cli",
        "provlab_study.publishing.claims",  # the notebook's own chapter
        "provlab_study.publishing.plan",
        "provlab_study.publishing.rules",  # modules that predicates reach already
    }
    for name, path in reach.files().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                assert name in loaded or name.split(".")[1] in reach.BY_NAME, name
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("lazily") and "." in name:
                assert name.split(".")[1] in reach.BY_NAME, name


@pytest.mark.parametrize(
    "code",
    [
        "import provlab.modeldiff.ladder as c",
        "from provlab.modeldiff import ladder",
        "from provlab.modeldiff.ladder import ladder",
        "import provlab\nprovlab.diff",
        "from provlab import diff",
        "def f():\n    from provlab.modeldiff import ladder",
        "try:\n    import provlab.api\nexcept ImportError:\n    import provlab.modeldiff.ladder",
    ],
)
def test_an_import_is_seen_however_it_is_written(code):
    plain = set(reach.reached("import numpy", {"miqu"}))
    assert "provlab.modeldiff.ladder" in set(reach.reached(code, {"miqu"})) - plain


def test_a_page_that_cannot_be_parsed_reaches_all():
    outside = {name for name in reach.files() if re.match(r"provlab\.|provlab_study\.(shared|publishing)", name)}
    assert outside <= set(reach.reached("%time f()", {"miqu"}))
