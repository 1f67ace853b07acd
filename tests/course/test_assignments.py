"""Assignments and labs of the course: what is graded, and that hidden tests stay hidden."""

import ast
from pathlib import Path

import grading
import nbformat
import pytest
import yaml
from nbgrader import utils

EVERY = grading.ASSIGNMENTS + grading.LABS

WRONG = yaml.safe_load((Path(__file__).parent / "wrong.yml").read_text(encoding="utf-8"))["assignments"]
SETTINGS = {"grade": False, "grade_id": "a", "locked": True, "schema_version": 3, "solution": False, "task": False}
CASES = [(path, case) for path in grading.ASSIGNMENTS for case in WRONG[path.stem]]


def faults(notebook):
    """Faults of a notebook as a source for nbgrader."""
    result, ids = [], [grading.grade_id(cell) for cell in notebook.cells if grading.grade_id(cell)]
    if notebook.metadata.get("course", {}).get("week") not in (1, 2, 3, 4, 5, 6):
        result.append("names no week")
    if len(ids) != len(set(ids)):
        result.append("two cells have one id")
    for cell in notebook.cells:
        name = grading.grade_id(cell) or cell.id
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            result.append(f"{name} has outputs")
        if ("BEGIN HIDDEN TESTS" in cell.source) > utils.is_grade(cell):
            result.append(f"{name} has hidden tests and no points")
        if ("BEGIN SOLUTION" in cell.source) != utils.is_solution(cell):
            result.append(f"{name} has a solution that is not marked as one, or none")
        if utils.is_grade(cell) and cell.cell_type == "code":
            if utils.is_solution(cell) or not cell.metadata.nbgrader.points:
                result.append(f"{name} cannot be graded by itself")
            elif isinstance(ast.parse(cell.source).body[-1], ast.Expr):
                result.append(f"{name} ends in a value, which nbgrader takes for points")
    return result


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_a_notebook_is_a_source_for_nbgrader(path):
    assert faults(grading.load(path)) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda cells: cells[1].update(source="### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS"), "no points"),
        (lambda cells: cells[1].update(source="### BEGIN SOLUTION\n### END SOLUTION"), "solution"),
        (lambda cells: cells[1].metadata.nbgrader.update(grade=True, points=0), "cannot be graded"),
        (
            lambda cells: cells[1].update(source="0.5") or cells[1].metadata.nbgrader.update(points=1, grade=True),
            "value",
        ),
        (lambda cells: cells[1].update(execution_count=1), "outputs"),
        (lambda cells: cells.append(cells[1]), "one id"),
        (lambda cells: None, "week"),
    ],
)
def test_faults_are_seen(spoil, message):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Title"),
            nbformat.v4.new_code_cell("x = 1", metadata={"nbgrader": dict(SETTINGS)}),
        ],
        metadata={"course": {"week": 7 if message == "week" else 1}},
    )
    spoil(notebook.cells)
    assert any(message in fault for fault in faults(notebook))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_reference_solution_gets_full_marks(path):
    assert grading.grade(path) == grading.full_marks(path)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_untouched_release_gets_none(path):
    assert set(grading.grade(path, untouched=True).values()) == {0}


@pytest.mark.parametrize(
    ("path", "case"), CASES, ids=lambda part: part["fault"] if isinstance(part, dict) else part.stem
)
def test_a_wrong_solution_loses_the_marks_that_it_should(path, case):
    points = {test: 0 if test in case["loses"] else n for test, n in grading.full_marks(path).items()}
    assert grading.grade(path, case["answers"]) == points


@pytest.mark.parametrize("path", grading.ASSIGNMENTS, ids=lambda path: path.stem)
def test_one_answer_is_in_words(path):
    (words,) = [cell for cell in grading.load(path).cells if utils.is_grade(cell) and cell.cell_type == "markdown"]
    assert words.metadata.nbgrader.points == 2
    (released,) = [cell for cell in grading.released(path).cells if grading.grade_id(cell) == "words"]
    assert released.source == "YOUR ANSWER HERE"
    assert sum(grading.full_marks(path).values()) == 10


def test_three_wrong_solutions_of_each_are_tried():
    assert min(len(cases) for cases in WRONG.values()) >= 3


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_nothing_hidden_is_handed_out_or_back(path):
    hidden = grading.hidden_lines(path)
    assert hidden
    for notebook in (grading.released(path), grading.feedback(path)):
        text = nbformat.writes(notebook)
        words = "\n".join(cell.source for cell in notebook.cells) + text
        assert "HIDDEN TESTS" not in words
        assert "BEGIN SOLUTION" not in words
        visible = {line.strip() for cell in notebook.cells for line in cell.source.splitlines()}
        assert not visible & set(hidden)
        assert not [line for line in hidden if line in words]
