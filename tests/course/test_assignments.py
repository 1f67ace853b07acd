"""Assignments and labs of the course: what is graded, and that hidden tests stay hidden."""

import ast

import grading
import nbformat
import pytest
from nbgrader import utils

EVERY = grading.ASSIGNMENTS + grading.LABS

# For each notebook, wrong solutions that a student might write: what is answered, and the tests that this must fail.
PLANTS = {
    "a1_exchangeability": {
        "without the pair itself": (
            {"p_value": "def p_value(observed, copies):\n    return float(np.mean(np.asarray(copies) >= observed))"},
            {"p_value_seen", "p_value_hidden"},
        ),
        "ties for rejection": (
            {
                "p_value": "def p_value(observed, copies):\n"
                "    return float((1 + np.sum(np.asarray(copies) > observed)) / (len(copies) + 1))"
            },
            {"p_value_hidden"},
        ),
        "columns in the inverse order": (
            {
                "renumbered": "def renumbered(model, order):\n"
                "    back = np.argsort(order)\n"
                '    return {"gate": model["gate"][back], "up": model["up"][back], "down": model["down"][:, back]}'
            },
            {"renumbered_hidden"},
        ),
        "one pair again and again": (
            {
                "null_p_values": "def null_p_values(draw, n_pairs, rng):\n"
                "    p = permtest(closeness, draw(rng), draw(rng), Renumberings(), n_permutations=19, rng=rng).p\n"
                "    return np.full(n_pairs, p)"
            },
            {"null_hidden"},
        ),
        "all exchangeable": (
            {"exchangeable": "exchangeable = dict.fromkeys(range(8), True)"},
            {"exchangeable_hidden"},
        ),
    },
}
SETTINGS = {"grade": False, "grade_id": "a", "locked": True, "schema_version": 3, "solution": False, "task": False}
GRADED = nbformat.from_dict({"nbgrader": SETTINGS | {"grade": True, "points": 1}})
CASES = [(path, name) for path in grading.ASSIGNMENTS for name in PLANTS.get(path.stem, ())]


def faults(notebook):
    """What is wrong with a notebook as a source for nbgrader."""
    found, ids = [], [grading.grade_id(cell) for cell in notebook.cells if grading.grade_id(cell)]
    if notebook.metadata.get("course", {}).get("week") not in (1, 2, 3, 4, 5):
        found.append("names no week")
    if len(ids) != len(set(ids)):
        found.append("two cells have one id")
    for cell in notebook.cells:
        name = grading.grade_id(cell) or cell.id
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            found.append(f"{name} has outputs")
        if ("BEGIN HIDDEN TESTS" in cell.source) > utils.is_grade(cell):
            found.append(f"{name} has hidden tests and no points")
        if ("BEGIN SOLUTION" in cell.source) != utils.is_solution(cell):
            found.append(f"{name} has a solution that is not marked as one, or none")
        if utils.is_grade(cell):
            if utils.is_solution(cell) or not cell.metadata.nbgrader.points:
                found.append(f"{name} cannot be graded by itself")
            elif isinstance(ast.parse(cell.source).body[-1], ast.Expr):
                found.append(f"{name} ends in a value, which nbgrader takes for points")
    return found


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_a_notebook_is_a_source_for_nbgrader(path):
    assert faults(grading.load(path)) == []


@pytest.mark.parametrize(
    ("spoil", "said"),
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
def test_faults_are_seen(spoil, said):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Title"),
            nbformat.v4.new_code_cell("x = 1", metadata={"nbgrader": dict(SETTINGS)}),
        ],
        metadata={"course": {"week": 6 if said == "week" else 1}},
    )
    spoil(notebook.cells)
    assert any(said in fault for fault in faults(notebook))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_reference_solution_gets_full_marks(path):
    assert grading.grade(path) == grading.full_marks(path)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_untouched_release_gets_none(path):
    assert set(grading.grade(path, untouched=True).values()) == {0}


@pytest.mark.parametrize(("path", "name"), CASES, ids=lambda part: getattr(part, "stem", part))
def test_a_wrong_solution_loses_the_marks_that_it_should(path, name):
    answers, lost = PLANTS[path.stem][name]
    full = grading.full_marks(path)
    assert grading.grade(path, answers) == {test: 0 if test in lost else points for test, points in full.items()}


@pytest.mark.parametrize("path", grading.ASSIGNMENTS, ids=lambda path: path.stem)
def test_three_wrong_solutions_are_tried(path):
    assert len(PLANTS[path.stem]) >= 3


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
