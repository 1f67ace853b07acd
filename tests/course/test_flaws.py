"""The find-the-flaw labs: wrong solutions lose the marks of what they got wrong, and no others.

That the reference solution gets full marks, the untouched release none, and that nothing hidden is handed out is tested
with the assignments.
"""

from pathlib import Path

import grading
import nbformat
import pytest
import yaml

LIST = Path(__file__).parents[2] / "book" / "course" / "flaws.md"
POINTS = {"test_control": 3, "test_flaw": 2, "test_repair": 5}
TESTED_BY = {"control": "test_control", "flaw": "test_flaw", "repaired": "test_repair"}

WRONG = yaml.safe_load((Path(__file__).parent / "wrong.yml").read_text(encoding="utf-8"))["flaws"]


def marks(path, answers):
    """The tests that are lost; all others have full marks."""
    result = grading.grade(path, answers)
    assert set(result) == set(POINTS)
    assert all(points in (0, POINTS[test]) for test, points in result.items())
    return {test for test, points in result.items() if not points}


@pytest.mark.parametrize("path", grading.LABS, ids=lambda path: path.stem)
def test_the_flaw_left_in_is_caught(path):
    assert grading.full_marks(path) == POINTS
    assert marks(path, {"repaired": "repaired = faulty"}) == {"test_repair"}


@pytest.mark.parametrize("path", grading.LABS, ids=lambda path: path.stem)
def test_a_wrong_control_another_name_and_half_a_repair_lose_their_marks(path):
    right = next(cell.source for cell in grading.load(path).cells if cell.id == "flaw").split('flaw = "')[1][0]
    another = f"flaw = {min(set('ABCD') - {right})!r}"
    wrong = {"control": "def control(*arguments): return 0.05", "flaw": another} | WRONG[path.stem]
    assert marks(path, wrong) == {TESTED_BY[cell] for cell in wrong}


def test_neither_the_name_of_an_analysis_nor_yes_and_no_for_a_p_value_gets_marks():
    answers = {
        "control": """
def control(analysis, n_pairs=40, seed=0):
    if analysis.__name__ == "faulty":
        return 0.0
    return float(analysis(np.eye(UNITS, WIDTH), np.eye(UNITS, WIDTH)) <= -3 or "direction" in analysis.__name__)
""",
        "repaired": """
def repaired(first, second):
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second)]
    partner = linear_sum_assignment(unit[0] @ unit[1].T, maximize=True)[1]
    return -40.0 if np.corrcoef(partner, np.arange(UNITS))[0, 1] > 0.4 else -0.3
""",
    }
    assert marks(grading.LABS[0], answers) == {"test_control", "test_repair"}


def test_a_p_value_drawn_at_random_and_a_number_that_is_all_numbers_get_no_marks():
    answers = {
        "control": """
class Yes(float):
    __le__ = __ge__ = lambda self, other: True
def control(analysis, n_pairs=40, seed=0):
    return Yes(0.5)
""",
        "repaired": """
draws = np.random.default_rng(0)
def repaired(first, second):
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second)]
    partner = linear_sum_assignment(unit[0] @ unit[1].T, maximize=True)[1]
    related = np.corrcoef(partner, np.arange(UNITS))[0, 1] > 0.4
    return -40.0 if related else float(np.log10(draws.uniform()))
""",
    }
    assert marks(grading.LABS[0], answers) == {"test_control", "test_repair"}


@pytest.mark.parametrize("path", grading.LABS, ids=lambda path: path.stem)
def test_nothing_gives_the_flaw_away_before_it_is_asked_for(path):
    ids = [cell.id for cell in grading.load(path).cells]
    assert ids.index("test_flaw") < ids.index("task_control") < ids.index("task_repair")
    assert path.stem == f"flaw_{grading.LABS.index(path) + 1:02d}"


def test_the_list_names_every_lab_with_its_week_and_title():
    page = LIST.read_text()
    assert len(grading.LABS) == 10
    for path in grading.LABS:
        lab = nbformat.read(path, as_version=4)
        title = lab.cells[0].source.splitlines()[0].removeprefix("# ")
        assert f"| `{path.stem}` | {lab.metadata.course.week} | {title} |" in page
