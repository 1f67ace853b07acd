"""Exercises, and numbers worked by hand: solutions run, and each number in their words is one that code gives.

The code stands in cells that a reader can run: tagged `by-hand` behind a paragraph that begins with "By hand.", tagged
`solution` between ``{solution-start}`` and ``{solution-end}``. In it, an expression that ends in a comment of numbers
must have this value, to the digits shown there. The words may name only such numbers, numbers of the code or of the
exercise, and those of `ELSEWHERE`. Solutions run in a namespace of the page's own imports, and of small stand-ins for
what the page has made by then.
"""

import ast
import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest

from provlab_study.publishing.page import boxed, fenced

FOLDER = Path(__file__).parents[2] / "notebooks"
COURSE = FOLDER.parent / "book" / "course"
BOX = re.compile(r"(?ms)^(`{3,})\{(exercise|solution)\} ?([^\n]*)\n(.*?)^\1$")
PYTHON = re.compile(r"(?ms)^```python\n(.*?)^```$")
BASH = re.compile(r"(?ms)^```bash\n(.*?)^```$")
# tags: a cell that computes the numbers of the paragraph before it, and one that solves an exercise and is not run
BY_HAND_TAG, SOLUTION = "by-hand", "solution"
BY_HAND = re.compile(r"(?ms)^\*\*By hand\.\*\*(?:(?!\n\n).)*(?:\n\n```python\n.*?^```$)?")
FOUND_BY_READERS = ("scoreboard", "status", "what_failed")  # pages that only show what the others left


@dataclass(frozen=True)
class Text:
    """The solution of an exercise, or a paragraph worked by hand, and what its numbers may be taken from."""

    name: str
    page: str
    source: str
    given: str = ""

    @property
    def blocks(self) -> list[str]:
        """Its blocks of Python."""
        return PYTHON.findall(self.source)

    @property
    def words(self) -> str:
        """Its words and formulas, without blocks of code, code in the line, options and links."""
        text = re.sub(r"(?ms)^```\w*\n.*?^```$", "", self.source)
        text = re.sub(r"(?m)^:\w+: .*$", "", text)
        return re.sub(r"`[^`]*`", "", text)


def cells(page: str) -> str:
    """Words of a page, and in fences the code of its solutions and of what is worked by hand."""
    notebook = nbformat.read(FOLDER / f"{page}.ipynb", as_version=4)
    shown = [cell for cell in boxed(notebook.cells) if cell.cell_type == "markdown" or BY_HAND_TAG in tags(cell)]
    return "\n\n".join(fenced(cell) if cell.cell_type == "code" else cell.source for cell in shown)


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


PAGES = [path.stem for path in sorted(FOLDER.glob("*.ipynb")) if path.stem not in FOUND_BY_READERS]
WORDS = {page: cells(page) for page in PAGES}


def solutions() -> Iterator[Text]:
    """Every solution of every page, with the exercise that it solves."""
    for page, words in WORDS.items():
        boxes = BOX.findall(words)
        exercises = {
            re.search(r"(?m)^:label: (\S+)", body)[1]: f"{title}\n{body}"
            for _, kind, title, body in boxes
            if kind == "exercise"
        }
        for _, kind, label, body in boxes:
            if kind == "solution":
                yield Text(label, page, body, exercises[label])


def by_hand() -> Iterator[Text]:
    """Every paragraph worked by hand."""
    for page, words in WORDS.items():
        for i, text in enumerate(BY_HAND.findall(BOX.sub("", words))):
            yield Text(f"{page}-by-hand-{i}", page, text)


SOLUTIONS = {text.name: text for text in solutions()}
EXAMPLES = {text.name: text for text in by_hand()}

# Numbers --------------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w.])(-?)(\d+(?:\.\d+)?)(?:e([-+]?\d+)| ?\\cdot 10\^\{?(-?\d+)\}?)?(\\?%)?")


@dataclass(frozen=True)
class Number:
    """A number as it is printed, and the half of its last digit."""

    value: float
    half: float

    def is_near(self, other: float) -> bool:
        return abs(abs(self.value) - abs(other)) <= self.half * (1 + 1e-6)


def numbers(text: str, *, rounded: bool = True) -> list[Number]:
    """Numbers in code or in words, formulas included; where `rounded`, 6,600 is any number near it."""
    text = re.sub(r"(?<=\d)(?:\{,\}|,|_)(?=\d{3}\b)", "", text)
    values = []
    for sign, digits, exponent, power, percent in NUMBER.findall(text):
        scale = 10.0 ** int(exponent or power or 0) / (100 if percent else 1)
        _, point, decimals = digits.partition(".")
        zeros = len(digits) - len(digits.rstrip("0")) if rounded and not point and digits.strip("0") else 0
        values.append(Number(float(sign + digits) * scale, 0.5 * 10.0 ** (zeros - len(decimals)) * scale))
    return values


def is_telling(number: Number) -> bool:
    """Whether a number must be accounted for: small whole ones count things, and names have them too."""
    return number.value != int(number.value) or abs(number.value) > 20


def unaccounted(text: Text, elsewhere: dict[str, object]) -> list[float]:
    """Numbers in words that neither code nor the exercise has."""
    words = text.words
    for phrase in elsewhere:
        assert phrase in words, f"{text.name} no longer says {phrase!r}"
        words = words.replace(phrase, "")
    shown = [number.value for block in (*text.blocks, text.given) for number in numbers(block)]
    return [
        number.value
        for number in numbers(words)
        if is_telling(number) and not any(number.is_near(value) for value in shown)
    ]


def run(block: str, namespace: dict[str, Any]) -> None:
    """Run a block of Python, and compare each expression that ends in a comment of numbers with these."""
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), "solution", "exec"), namespace)
            continue
        value = eval(compile(ast.Expression(statement.value), "solution", "eval"), namespace)
        _, _, comment = lines[statement.end_lineno - 1].partition("  # ")
        if stated := numbers(comment, rounded=False):
            values = np.ravel(np.asarray(value, dtype=float))
            assert len(values) == len(stated), f"{ast.unparse(statement)} has {len(values)} values"
            for own, number in zip(values, stated, strict=True):
                assert abs(own - number.value) <= number.half * (1 + 1e-6), f"{ast.unparse(statement)} is {own}"


# What the words say ---------------------------------------------------------------------------------------------------

# numbers that no code of the solution gives, as they stand there: what they are
ELSEWHERE: dict[str, dict[str, float]] = {
    "encoders_and_fused-rows": {"8{,}199": 8192 + 7},
    "evasion-layernorm": {"767": 768 - 1},
}


def test_there_are_enough_exercises():
    assert len(SOLUTIONS) >= 60
    assert {text.page for text in SOLUTIONS.values()} == set(PAGES)


def test_the_overview_lists_every_exercise():
    script = runpy.run_path(str(COURSE / "exercises.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["drawn"](), "run: python book/course/exercises.py"
    assert page.count("| {doc}") == len(SOLUTIONS)


def test_the_course_sets_exercises_that_there_are():
    titles = {text.given.partition("\n")[0] for text in SOLUTIONS.values()}
    set_in = [title for page in COURSE.glob("*.md") for title in re.findall(r"exercise \*([^*]+)\*", page.read_text())]
    assert set_in
    assert set(set_in) <= titles


def test_every_chapter_has_a_number_worked_by_hand():
    assert {text.page for text in EXAMPLES.values()} == set(PAGES)


@pytest.mark.parametrize("name", list(SOLUTIONS))
def test_a_solution_says_no_number_that_code_does_not_give(name):
    elsewhere = ELSEWHERE.get(name, {})
    for phrase, value in elsewhere.items():
        assert numbers(phrase)[0].is_near(value)
    assert unaccounted(SOLUTIONS[name], elsewhere) == []


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_an_example_says_no_number_that_code_does_not_give(name):
    assert EXAMPLES[name].blocks, "an example worked by hand ends with provlab's own answer"
    assert unaccounted(EXAMPLES[name], {}) == []


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_an_example_is_what_provlab_computes(name):
    for block in EXAMPLES[name].blocks:
        assert re.search(r"  # -?\d", block), "no value to compare the example with"
        run(block, imports(EXAMPLES[name].page))


def test_a_number_that_no_code_gives_is_seen():
    text = Text(
        "planted", "audit", "It is $0.25$, in 4,096 dimensions $10^{-35.4}$.\n\n```python\n1 / 4  # 0.25\n```\n"
    )
    assert unaccounted(text, {}) == [4096.0, -35.4]
    assert unaccounted(text, {"4,096": 4096}) == [-35.4]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1 / 3  # 0.33", ""),
        ("1 / 3  # 0.34", "is 0.33"),
        ("-1 / 3  # -0.333, times so many", ""),
        ("1 / 3  # -0.333", "is 0.33"),
        ("2 / 3e4, 1e-5  # 6.7e-5, 1.0e-5", ""),
        ("2 / 3e4, 1e-5  # 6.7e-5", "has 2 values"),
        ("10_049.0  # 10000", "is 10049"),
    ],
)
def test_a_wrong_value_in_a_comment_is_seen(line, fault):
    if fault:
        with pytest.raises(AssertionError, match=fault):
            run(line, {})
    else:
        run(line, {})


# The code of the solutions --------------------------------------------------------------------------------------------


def imports(page: str) -> dict[str, Any]:
    """The namespace that a page's own imports leave."""
    notebook = nbformat.read(FOLDER / f"{page}.ipynb", as_version=4)
    namespace: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and SOLUTION not in tags(cell):
            body = [line for line in ast.parse(cell.source).body if isinstance(line, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module(body, []), page, "exec"), namespace)
    return namespace


@dataclass(frozen=True)
class Stage:
    """Material of stand-ins: tiny models by the names that solutions use, a text and a folder."""

    models: dict[str, str]
    text: str
    folder: Path
    tiny: Callable[[str], Path]

    def options(self) -> Any:
        from provlab.statistics.options import Options

        return Options(seed=0, n_sequences=8, sequence_length=32, text=self.text)


def same_block(stage: Stage) -> dict[str, Any]:
    """Three p-values that depend on each other, of many pairs."""
    rng = np.random.default_rng(0)
    common, own = rng.normal(size=(4000, 1)), rng.normal(size=(4000, 3))
    from scipy import stats

    return {"same_block": stats.norm.logsf(0.7 * common + np.sqrt(1 - 0.7**2) * own) / np.log(10)}


def networks(stage: Stage) -> dict[str, Any]:
    from provlab_study.shared.example_one import train_pairs

    return {"independent": train_pairs(300, dependent=False, seed=0)}


def rows(stage: Stage) -> dict[str, Any]:
    """Rows of a fine-tune and its base."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(48, 24))
    return {"rows": {"fine-tune": (base, base + 0.3 * rng.normal(size=base.shape))}}


def retrained(stage: Stage) -> dict[str, Any]:
    from provlab_study.shared.students import Settings

    few = lambda **settings: Settings(**{**settings, "steps": 20})  # noqa: E731
    return {"options": stage.options(), "Settings": few}


def compared(stage: Stage) -> dict[str, Any]:
    """Two models compared by what they write, and a third."""
    from provlab.kept import ArrayCache
    from provlab.modeldiff import pipeline

    small, medium, second = (stage.models[name] for name in ("oak", "oak-chat", "larch"))
    models = pipeline.open_models([small, medium, second], progress=False)
    kept, draws, z = ArrayCache(stage.folder / "kept"), pipeline.Generation(200, 6, n_chains=2), (0.1, 20.0)
    differences = {"sizes": pipeline.model_diff(models[small], models[medium], z, draws, kept)}
    names = {"small": small, "medium": medium, "second": second}
    return {"compared": differences, "ranges": {"sizes": z}, "models": models, "draws": draws, "kept": kept} | names


def toys(stage: Stage) -> dict[str, Any]:
    """The same models for the toys, and fewer draws than the solution asks for."""
    from provlab.modeldiff import pipeline

    made = compared(stage)
    few = SimpleNamespace(model_diff=pipeline.model_diff, Generation=lambda n, length: pipeline.Generation(200, length))
    return {
        "models": list(made["models"].values()),
        "z": (0.1, 20.0),
        "kept": made["kept"],
        "exact": "",
        "pipeline": few,
    }


def audited(stage: Stage) -> dict[str, Any]:
    """A comparison by few inputs and copies."""
    import provlab

    few = partial(provlab.compare, n_sequences=4, sequence_length=16, n_permutations=9, progress=False)
    return {"provlab": SimpleNamespace(compare=few)}


def opened(stage: Stage) -> dict[str, Any]:
    """A pruned model's map, and its parent."""
    from provlab.statistics.model import Model
    from provlab_study.shared.block_map import block_map

    parent, child = (Model.open(source) for source in ("zoo:spruce", "zoo:spruce-sheared"))
    options = stage.options()
    maps = {("zoo:spruce", "zoo:spruce-sheared"): block_map(parent, child, options)}
    return {"opened": {"zoo:spruce": parent}, "maps": maps, "options": options}


STAND_INS: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "audit-disguise": audited,
    "calibration-fisher-wrong": same_block,
    "encoders_and_fused-half": lambda stage: {"fused": str(stage.tiny("phi3"))},
    "evasion-signs": lambda stage: {"base": stage.models["oak"], "descendant": stage.models["oak-chat"]},
    "exchangeability-break": networks,
    "matching_and_pvalues-power": rows,
    "mlp_retraining-half": retrained,
    "model_diff-upper-end": compared,
    "model_diff-third": compared,
    "power-blocks": lambda stage: {"rng": np.random.default_rng(0)},
    "pruning_forensics-siblings": lambda stage: {"options": stage.options()},
    "pruning_forensics-disguised": opened,
    "striped_hyena-columns": lambda stage: {"longest": stage.models["oak-chat"], "parent": stage.models["oak"]},
    "toy_modulo30-weights": toys,
}  # fmt: skip


@pytest.fixture(scope="session")
def zoo_of_tiny_models(models, new_model, save_model, tmp_path_factory):
    """Folders by the names of the zoo: a base, its child, strangers, and a deep model with children cut out of it."""
    root = tmp_path_factory.mktemp("zoo")
    parent = new_model(7, num_hidden_layers=8)

    def cut(*kept: int) -> Any:
        child = new_model(8, num_hidden_layers=len(kept))
        weights = parent.state_dict()
        block = re.compile(r"layers\.(\d+)\.")
        own = {name: block.sub(lambda m: f"layers.{kept[int(m[1])]}.", name) for name in child.state_dict()}
        child.load_state_dict({name: weights[theirs] for name, theirs in own.items()})
        return child

    deep = {
        "spruce": parent,
        "spruce-small": cut(0, 1, 3, 4, 6, 7),
        "spruce-slim": cut(0, 1, 2, 4, 5, 7),
        "spruce-sheared": cut(*range(8)),
    }
    made = {name: str(save_model(model, root / name)) for name, model in deep.items()}
    return made | {
        "oak": models["base"], "oak-chat": models["tuned"], "larch": models["stranger"], "pine": models["other"]
    }  # fmt: skip


@pytest.fixture
def stage(zoo_of_tiny_models, text, tmp_path, tiny, monkeypatch):
    """The tiny models under the zoo's names, in an empty folder."""
    from provlab.reading.checkpoint import register_scheme

    register_scheme("zoo", lambda name: Path(zoo_of_tiny_models[name]))
    monkeypatch.setattr("provlab.zoo.held_out_text", lambda domain: text)
    monkeypatch.chdir(tmp_path)
    return Stage(zoo_of_tiny_models, text, tmp_path, tiny)


WITH_CODE = [name for name, text in SOLUTIONS.items() if text.blocks]
WITH_COMMANDS = [name for name, text in SOLUTIONS.items() if BASH.search(text.source)]


@pytest.mark.parametrize("name", WITH_CODE)
def test_the_code_of_a_solution_runs(name, stage):
    text = SOLUTIONS[name]
    namespace = imports(text.page) | STAND_INS.get(name, lambda stage: {})(stage)
    for block in text.blocks:
        run(block, namespace)


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_the_commands_of_a_solution_run(name, stage, request, monkeypatch):
    from provlab.planning import study
    from provlab.planning.trial import Trial, kinds_of

    call = request.getfixturevalue("run")
    # a trial of 7 billion weights takes a minute
    monkeypatch.setattr(study, "trial", lambda models, *rest, **_: Trial(kinds_of(models), {}, {}, {}, 1.0))
    for block in BASH.findall(SOLUTIONS[name].source):
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "provlab"
            status, _, err = call(*arguments)
            assert status == 0, err
