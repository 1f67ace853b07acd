"""The notebooks as they are kept: clean, whole, and in step with plans, claims and the book.

Nothing is executed here; `make test` runs them all in the smoke profile.
"""

import ast
import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
import yaml

from provlab.errors import ProvlabError
from provlab_study.publishing import claims, declared, parameters
from provlab_study.publishing.page import OPENING, boxed
from provlab_study.publishing.plan import Plan

BY_HAND, SOLUTION = "by-hand", "solution"  # tags of cells

OURS = "provlab", "provlab_study"
PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "notebooks"
NOTEBOOKS = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
# a profile with a title is a reader's own: `provlab book` writes it there
PROFILES = sorted((FOLDER / "profiles").glob("*.yml"))
PLANS = {path.stem: path for path in PROFILES if "title" not in yaml.safe_load(path.read_text())}
DECIDING = {row["experiment"] for row in claims.load_claims() if "experiment" in row}
READING = {"scoreboard", "status", "what_failed"}  # they show what the others left
CHAPTERS = sorted(set(NOTEBOOKS) - READING)


def load(name):
    return nbformat.read(NOTEBOOKS[name], as_version=4)


def code(cell):
    """Source of a code cell without magics, which are no Python."""
    return "\n".join("pass" if line.lstrip().startswith(("%", "!")) else line for line in cell.source.splitlines())


def words(notebook):
    return "\n\n".join(cell.source for cell in boxed(notebook.cells) if cell.cell_type == "markdown")


def tags(cell):
    return cell.metadata.get("tags", [])


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(PROJECT)


# Faults of one notebook, each by a function that a planted fault tests below ----------------------------------------


def unclean(notebook):
    """Outputs and counts belong to the book, not to the source."""
    faults = [
        f"cell {i} has outputs or a count"
        for i, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None)
    ]
    if not set(notebook.metadata) <= {"kernelspec", "language_info"}:
        faults.append(f"metadata {sorted(notebook.metadata)}")
    return faults


def bad_parameters(notebook, name):
    """One cell of annotated names of types that can be checked, each with a default of that type and a word of help."""
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        return [f"{len(cells)} cells are tagged parameters"]
    faults = []
    names = []
    for statement in ast.parse(cells[0].source).body:
        line = cells[0].source.splitlines()[statement.lineno - 1]
        if not isinstance(statement, ast.AnnAssign) or statement.value is None:
            faults.append(f"{line} is no annotated default")
            continue
        names.append(ast.unparse(statement.target))
        annotation = ast.unparse(statement.annotation)
        if parameters.kinds_of(annotation) is None:
            faults.append(f"{line}: the type {annotation} cannot be checked")
            continue
        last = cells[0].source.splitlines()[(statement.end_lineno or statement.lineno) - 1]  # where help is read from
        if "  # " not in last:
            faults.append(f"{line}: no word of help")
    try:
        known = parameters.declared_in(cells[0].source, name)
        for parameter in known.values():
            parameters.check_value(parameter, parameter.value)
            faults += [f"{parameter.name}: {fault}" for fault in unruled(parameter, known)]
    except ProvlabError as error:
        faults.append(str(error))
    if "profile" not in names:
        faults.append("no parameter profile")
    rest = "\n".join(code(cell) for cell in notebook.cells if cell.cell_type == "code" and cell is not cells[0])
    used = {node.id for node in ast.walk(ast.parse(rest)) if isinstance(node, ast.Name)}
    by_run = {"profile", "seed", "lineage"}  # read from the run, and not by the cells
    faults += [f"{parameter} is never used" for parameter in names if parameter not in used | by_run]
    return faults


def unruled(parameter, known):
    """A number says its range, and what names models says so; what a rule speaks of is there."""
    rule = parameter.rule
    if declared.is_setting(parameter.name) and parameter.kind in ("int", "str"):
        return
    if parameter.kind in ("int", "float", "list[int]", "list[float]") and not (rule and rule.bounds):
        yield "the number has no range in brackets"
    if "zoo:" in parameter.default and not parameter.takes_models:
        yield "it names models, and its brackets do not say so"
    if rule:
        yield from (f"there is no {other}" for other in (*rule.needed_with, *rule.left_out_with) if other not in known)


def bad_begin(notebook, name):
    """The first code cell behind the parameters starts the experiment under the notebook's own name."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    position = next((i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", [])), None)
    if position is None:
        return ["there are no parameters"]
    begun = [i for i, cell in enumerate(cells) if "provlab_study.begin(" in cell.source]
    where = f"provlab_study.begin stands in the code cells {begun}, not in {position + 1}"
    faults = [] if begun == [position + 1] else [where]
    calls = re.findall(r"provlab_study\.begin\((.*)\)", "\n".join(cell.source for cell in cells))
    return faults + [f"provlab_study.begin({call})" for call in calls if call != f'"{name}", globals()']


def bad_opening(notebook, name):
    """A title, and right behind it the finding, in a sentence or two."""
    first = notebook.cells[0]
    parts = first.source.split("\n\n") if first.cell_type == "markdown" else [""]
    if not re.fullmatch(r"# \S.*", parts[0]) or len(parts) < 2:
        return ["it begins with no title and finding"]
    finding = " ".join(parts[1].replace("*", "").split())
    if finding[-1:] != "." or not 40 <= len(finding) <= 600:
        return [f"the finding is no sentence or two: {finding[:80]}"]
    needed = ["**What the paper claims", "**What you will learn", "**Needs"] if name in CHAPTERS else []
    return [f"{heading} is missing" for heading in needed if heading not in first.source]


def bad_picture(notebook, name):
    """One cell draws the picture that opens the page."""
    tagged = [cell for cell in notebook.cells if OPENING in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        return [f"{len(tagged)} cells are tagged {OPENING}"]
    return [] if tagged[0].cell_type == "code" else [f"a cell of words is tagged {OPENING}"]


def bad_end(notebook, name):
    """An experiment ends by binding its records."""
    last = notebook.cells[-1]
    ends = last.cell_type == "code" and last.source.strip() == "run.finish()"
    calls = sum(cell.source.count("run.finish()") for cell in notebook.cells if cell.cell_type == "code")
    return [] if ends and calls == 1 else [f"run.finish() is called {calls} times and last: {ends}"]


def bad_exercises(notebook, name):
    """At least three exercises with difficulty, importance and minutes, each with a hidden solution of its own."""
    text = words(notebook)
    faults = []
    exercises = re.findall(r"(?m)^`{3,}\{exercise\}[^\n]*\n:label: (\S+)\n(.*?)^`{3,}", text, flags=re.DOTALL)
    solutions = re.findall(r"(?m)^`{3,}\{solution\} (\S+)\n((?::\S+: \S+\n)*)", text)
    if len(exercises) < 3:
        faults.append(f"{len(exercises)} exercises")
    if sorted(label for label, _ in exercises) != sorted(label for label, _ in solutions):
        faults.append("exercises and solutions do not answer each other")
    for label, body in exercises:
        if not label.startswith(f"{name}-"):
            faults.append(f"the label {label} may clash with that of another page")
        if not re.search(r"\*Difficulty [123] of 3, importance [123] of 3, [1-9]\d* minutes\.\*", body):
            faults.append(f"{label} does not say how hard, how important and how long it is")
    return faults + [
        f"the solution of {label} is not hidden" for label, options in solutions if "dropdown" not in options
    ]


def bad_code(notebook, name):
    """Solutions are run by readers alone, and stay in their boxes; code in words is a cell."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    faults = ["a solution that the page runs"] * any(
        SOLUTION in tags(cell) and "skip-execution" not in tags(cell) for cell in cells
    )
    faults += ["a solution outside its box"] * any(SOLUTION in tags(cell) for cell in boxed(notebook.cells))
    fences = [cell for cell in notebook.cells if cell.cell_type == "markdown" and "```python" in cell.source]
    faults += ["code among words, which a reader cannot run"] * bool(fences)
    before = [cell.source for cell, after in pairwise(notebook.cells) if BY_HAND in tags(after)]
    return faults + ["a cell by hand without its words"] * any("**By hand.**" not in text for text in before)


def bad_folds(notebook, name):
    """Cells that measure or judge stand open, as text reads; drawings and the summary fold."""
    folded = [cell.source for cell in notebook.cells if "hide-input" in tags(cell)]
    calls = [re.search(r"run\.(measure|study|judge)\(|provlab\.(compare|study|diff|tree)\(", text) for text in folded]
    return [f"a folded cell calls {call[0]}...)" for call in calls if call]


def bad_skeleton(notebook, name):
    """Headings of the page skeleton."""
    headings = re.findall(r"(?m)^#+ (.*)$", words(notebook))
    needed = ("What this does not show", "Exercises", "Summary")
    return [f"no heading {heading!r}" for heading in needed if heading not in headings]


def bad_names(notebook, name):
    """Names of ours that a page imports or calls exist and take these arguments, also where a smoke run never comes."""
    tree = ast.parse("\n".join(code(cell) for cell in notebook.cells if cell.cell_type == "code"))
    known, faults = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            for item in node.names:
                known[item.asname or item.name] = thing = named(node.module, item.name)
                faults += [f"from {node.module} import {item.name}: there is none"] * (thing is None)
    rebound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known = {word: thing for word, thing in known.items() if thing is not None and word not in rebound}
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=word)) if isinstance(known.get(word), ModuleType):
                thing = getattr(known[word], node.attr, None) or named(known[word].__name__, node.attr)
                faults += [f"{ast.unparse(node)}: there is none"] * (thing is None)
            case ast.Name(id=word) if not isinstance(known.get(word), ModuleType):
                thing = known.get(word)
            case _:
                continue
        if id(node) in called and callable(thing):
            faults += does_not_take(thing, called[id(node)])
    return faults


def named(module, name):
    """The thing of that name in a module, or the module of that name below it; None if there is neither."""
    thing = getattr(import_module(module), name, None)
    if thing is None and find_spec(module).submodule_search_locations and find_spec(f"{module}.{name}"):
        return import_module(f"{module}.{name}")
    return thing


def does_not_take(function, call):
    """Say why a call does not fit the signature of what it calls; nothing where stars hide the arguments."""
    if any(isinstance(item, ast.Starred) for item in call.args) or any(item.arg is None for item in call.keywords):
        return []
    try:
        bound = inspect.signature(function).bind(*call.args, **{item.arg: item.value for item in call.keywords})
    except TypeError as error:
        return [f"{ast.unparse(call.func)}: {error}"]
    except ValueError:  # a function of C has no signature
        return []
    constants = {name: value.value for name, value in bound.arguments.items() if isinstance(value, ast.Constant)}
    kinds = {name: bound.signature.parameters[name].annotation for name in constants}
    return [
        f"{ast.unparse(call.func)}: {name} is {value!r}"
        for name, value in constants.items()
        if kinds[name] in (str, "str", int, "int", float, "float")
        if isinstance(value, str) != (kinds[name] in (str, "str"))
    ]


CHECKS = {
    "names": (bad_names, list(NOTEBOOKS)),
    "clean": (lambda notebook, name: unclean(notebook), list(NOTEBOOKS)),
    "parameters": (bad_parameters, list(NOTEBOOKS)),
    "begin": (bad_begin, list(NOTEBOOKS)),
    "opening": (bad_opening, list(NOTEBOOKS)),
    "picture": (bad_picture, CHAPTERS),
    "end": (bad_end, CHAPTERS),
    "exercises": (bad_exercises, CHAPTERS),
    "code": (bad_code, list(NOTEBOOKS)),
    "folds": (bad_folds, CHAPTERS),
    "skeleton": (bad_skeleton, CHAPTERS),
}


@pytest.mark.parametrize(("check", "name"), [(check, name) for check, (_, names) in CHECKS.items() for name in names])
def test_notebook(check, name):
    assert CHECKS[check][0](load(name), name) == []


# In step with the rest ------------------------------------------------------------------------------------------------


def test_there_are_notebooks():
    assert set(NOTEBOOKS) >= {"llama_tree", "audit", "scoreboard", "status"}
    assert set(PLANS) == {"smoke", "default", "paper"}


@pytest.mark.parametrize("profile", list(PLANS))
def test_plans_are_accepted(profile):
    plan = Plan.read(PLANS[profile])
    assert plan.profile == profile
    assert [experiment["notebook"] for experiment in plan.experiments][-3:] == ["scoreboard", "what_failed", "status"]
    assert all(experiment.get("reads") for experiment in plan.experiments[-2:])
    assert {experiment["notebook"] for experiment in plan.experiments} == set(NOTEBOOKS)


def test_claims_are_decided_by_notebooks_that_run():
    assert set(NOTEBOOKS) >= DECIDING
    for row in claims.load_claims():
        for profile in row.get("profiles", []):
            plan = yaml.safe_load(PLANS[profile].read_text(encoding="utf-8"))
            assert row["experiment"] in [experiment["notebook"] for experiment in plan["experiments"]], row["id"]


def judged(notebook):
    """Ids of the claims that a notebook's open cells judge, and the functions by name."""
    cells = [
        cell for cell in notebook.cells if cell.cell_type == "code" and not {"hide-input", SOLUTION} & set(tags(cell))
    ]
    return dict(re.findall(r'run\.judge\(\s*"(\w+)",\s*predicates\.(\w+)', "\n".join(cell.source for cell in cells)))


@pytest.mark.parametrize("name", sorted(DECIDING))
def test_every_claim_is_judged_and_shown_where_it_is_measured(name):
    rows = {row["id"]: row["predicate"]["name"] for row in claims.load_claims() if row["experiment"] == name}
    assert judged(load(name)) == rows


@pytest.mark.parametrize("name", sorted(DECIDING))
def test_a_summary_takes_its_truth_from_every_claim_of_its_page(name):
    assert unsaid(load(name)) == []


def unsaid(notebook):
    """Claims that a page judges and on which no sentence of its summary rests."""
    (summary,) = (cell.source for cell in notebook.cells if cell.cell_type == "code" and "run.summary(" in cell.source)
    return [
        claim for claim in judged(notebook) if not re.search(rf"\b{claim.lower()}\b", summary.split("run.summary(")[1])
    ]


def test_a_claim_that_no_sentence_rests_on_is_seen():
    notebook = load("evasion")
    replace("(i15, ", "(True, ")(notebook)
    assert unsaid(notebook) == ["I15"]


def unshown(notebook):
    """Tables that a summary names with `run.shown` and whose caption, or line, the page does not have."""
    cells = [cell for cell in notebook.cells if "run.shown(" not in cell.source]
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    texts += [
        node.value
        for cell in cells
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(code(cell)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    tree = ast.parse("\n".join(code(cell) for cell in notebook.cells if "run.shown(" in cell.source))
    names = {ast.unparse(node.targets[0]): node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    calls = [
        node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "run.shown"
    ]
    tables = [ast.literal_eval(names.get(ast.unparse(table), table)) for table in calls]
    return [table for table in tables if not any(table in text for text in texts)]


@pytest.mark.parametrize("name", CHAPTERS)
def test_each_table_that_a_summary_names_is_on_its_page(name):
    assert unshown(load(name)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [("evasion", "All dependent pairs, the second"), ("power", "so many blocks reach"), ("audit", "The control")],
)
def test_a_table_that_is_not_shown_is_seen(name, text):
    notebook = load(name)
    cell = next(
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and f'"{text}' in cell.source and "run.shown(" in cell.source
    )
    cell.source = cell.source.replace(f'"{text}', '"Nowhere on this page')
    assert unshown(notebook) != []


# The checks themselves ------------------------------------------------------------------------------------------------


def cell_of(notebook, text):
    return next(cell for cell in notebook.cells if text in cell.source)


def add_to(text, more):
    def spoil(notebook):
        cell_of(notebook, text).source += more

    return spoil


def replace(text, by):
    def spoil(notebook):
        cell = cell_of(notebook, text)
        cell.source = cell.source.replace(text, by)

    return spoil


def tag(text, *tags):
    def spoil(notebook):
        cell_of(notebook, text).metadata["tags"] = list(tags)

    return spoil


def tag_another(notebook):
    notebook.cells[4].metadata["tags"] = ["parameters"]


def open_with(*texts):
    """Tag the cells that hold these texts, and no other, as what opens the page."""

    def spoil(notebook):
        for cell in notebook.cells:
            cell.metadata["tags"] = [tag for tag in cell.metadata.get("tags", []) if tag != OPENING]
        for text in texts:
            cell_of(notebook, text).metadata["tags"] = [OPENING]

    return spoil


def output(notebook):
    cell_of(notebook, "provlab_study.begin").outputs = [nbformat.v4.new_output("stream", text="x")]


def count(notebook):
    cell_of(notebook, "provlab_study.begin").execution_count = 3


def begin_later(notebook):
    begin = cell_of(notebook, "provlab_study.begin")
    notebook.cells.remove(begin)
    notebook.cells.append(begin)


PLANTED = [
    ("clean", output),
    ("clean", count),
    ("clean", lambda notebook: notebook.metadata.update(widgets={})),
    ("parameters", tag_another),
    ("parameters", add_to("profile: str", "\nextra = 5")),
    ("parameters", add_to("profile: str", "\nprofiles: tuple = ()  # x")),
    ("parameters", replace("[at least 40; or 0]", "")),
    ("parameters", replace("[at least 40; or 0]", "[at least 4000]")),
    ("parameters", replace("[at least 40; or 0]", "[at least 40; or nought]")),
    ("parameters", replace("# the model asked about [a model]", "# the model asked about")),
    ("parameters", replace("[a model; needed with suspect]", "[a model; needed with suspects]")),
    ("parameters", add_to("profile: str", '\nthreads: int = "5"  # x')),
    ("parameters", add_to("profile: str", "\nnever_used: int = 5  # x")),
    ("parameters", add_to("profile: str", "\nseed: int = 5")),
    ("begin", replace('provlab_study.begin("audit"', 'provlab_study.begin("other"')),
    ("begin", begin_later),
    ("opening", replace("# Audit your own models\n\n", "# Audit your own models\n\n**Needs.** x\n\n")),
    ("opening", replace("**Needs.**", "Needs:")),
    ("picture", open_with()),
    ("picture", open_with("suspected = ", "controlled = ")),
    ("picture", open_with("## The control")),
    ("end", lambda notebook: notebook.cells.append(nbformat.v4.new_code_cell("1"))),
    ("end", add_to("provlab_study.begin", "\nrun.finish()")),
    ("exercises", replace(":class: dropdown", "")),
    ("exercises", replace("{exercise}", "{note}")),
    ("exercises", replace("minutes.*", "long.*")),
    ("exercises", replace("importance", "worth")),
    ("code", add_to("## The control", "\n\n```python\n1\n```")),
    ("code", tag("1 - 0.99**4", "solution", "skip-execution")),
    ("code", tag("suspected = ", "by-hand")),
    ("code", tag("checkpoint = ", "solution")),
    ("folds", add_to("run.summary(", '\nrun.measure("x", 1)')),
    ("names", add_to("checkpoint = ", "\nif False:\n    plots.tabel(1)")),
    ("names", add_to("checkpoint = ", "\nif False:\n    plots.table(1, capture='')")),
    ("names", add_to("checkpoint = ", "\nfrom provlab.errors import NoError")),
    ("folds", add_to("run.summary(", "\nprovlab.tree(models)")),
    ("skeleton", replace("## What this does not show", "## Limits")),
]


@pytest.mark.parametrize(("check", "spoil"), PLANTED, ids=[f"{check}-{i}" for i, (check, _) in enumerate(PLANTED)])
def test_a_planted_fault_is_seen(check, spoil):
    notebook = load("audit")
    assert CHECKS[check][0](notebook, "audit") == []
    spoil(notebook)
    assert CHECKS[check][0](notebook, "audit") != []
