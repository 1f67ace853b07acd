"""What ``make course`` writes, and one assignment the whole way: handed in, graded and given back by nbgrader."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import grading
import nbformat
import pytest
import yaml
from nbgrader.api import Gradebook

ROOT = Path(__file__).parents[2]
NAME = "a1_exchangeability"

CURIOUS = yaml.safe_load((Path(__file__).parent / "wrong.yml").read_text(encoding="utf-8"))["curious"]


@pytest.fixture(scope="session")
def release():
    """The script's module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "book" / "course"))
        import release

        yield release


@pytest.fixture(scope="session")
def week_1(release, tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "course"
    release.build((1,), folder)
    return folder


def nbgrader(folder, *arguments):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    here = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_week_has_its_notebooks_and_all_that_a_student_needs(week_1, release):
    chosen = release.exercises((1,))
    assert NAME in [exercise.name for exercise in chosen]
    with zipfile.ZipFile(week_1 / "provlab-course-student.zip") as handed_out:
        names = set(handed_out.namelist())
        readme = handed_out.read("student/README.md").decode()
    notebooks = {name for name in names if name.endswith(".ipynb")}
    assert notebooks == {f"student/week_1/{exercise.name}.ipynb" for exercise in chosen if not exercise.second}
    with zipfile.ZipFile(week_1 / "provlab-course-second-parts.zip") as later:
        files = {name for name in later.namelist() if not name.endswith("/")}
    assert files == {f"second_parts/week_1/{exercise.name}.ipynb" for exercise in chosen if exercise.second}
    assert {"student/provlab/pyproject.toml", "student/provlab/requirements.lock"} <= names
    assert {"student/provlab/src/provlab/api.py", "student/slides/session_01.html"} <= names
    assert not re.findall(r"\{\w+\}", readme)
    assert all(exercise.name in readme for exercise in chosen)
    with zipfile.ZipFile(week_1 / "provlab-course-instructor.zip") as kept:
        assert f"instructor/source/{NAME}/{NAME}.ipynb" in kept.namelist()
        assert "instructor/gradebook.db" in kept.namelist()


def test_nbgrader_releases_what_the_other_tests_look_at(week_1):
    there = grading.load(week_1 / "student" / "week_1" / f"{NAME}.ipynb")
    expected = grading.released(grading.COURSE / "assignments" / f"{NAME}.ipynb")
    assert [cell.source for cell in there.cells] == [cell.source for cell in expected.cells]


def test_nothing_hidden_is_in_the_students_zip(week_1):
    hidden = {line for path in grading.ASSIGNMENTS + grading.LABS for line in grading.hidden_lines(path)}
    with zipfile.ZipFile(week_1 / "provlab-course-student.zip") as handed_out:
        for name in handed_out.namelist():
            if name.endswith((".ipynb", ".md", ".html")):
                text = handed_out.read(name).decode()
                assert not [line for line in hidden if line in text], name


def test_a_flaw_is_named_before_the_part_that_shows_it_is_handed_out(week_1, release):
    for path in grading.LABS:
        lab = grading.load(path)
        first, second = release.parts(lab)
        assert [cell.id for cell in first.cells][-3:] == list(release.NAMING)
        assert {cell.id for cell in first.cells} | {cell.id for cell in second.cells} == {cell.id for cell in lab.cells}
        assert not {cell.id for cell in second.cells} & set(release.NAMING)
        assert not {"control", "repaired", "remember"} & {cell.id for cell in first.cells}
    early = {exercise.name: exercise.points for exercise in release.exercises() if exercise.path in grading.LABS}
    assert [{early[path.stem + end] for path in grading.LABS} for end in ("", release.SECOND)] == [{2}, {8}]
    with zipfile.ZipFile(week_1 / "provlab-course-student.zip") as handed_out:
        labs = [handed_out.read(name).decode() for name in handed_out.namelist() if "/flaw_" in name]
    assert len(labs) == 3
    assert not [text for text in labs if "control(" in text or "To remember" in text]


@pytest.fixture
def first_name(monkeypatch, tmp_path):
    """Grade a notebook's source as nbgrader would read it: a function of name and cells."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(grading.COURSE))
    import hide_tests

    def graded(name, *sources):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
        resources = {"nbgrader": {"student": "ada", "notebook": name}}
        return [cell.source for cell in hide_tests.FirstName().preprocess(notebook, resources)[0].cells]

    return graded


def test_the_first_name_of_a_flaw_is_the_one_that_is_graded(first_name, release):
    assert first_name("flaw_01", 'flaw = "A"') == ['flaw = "A"']
    assert first_name("flaw_01" + release.SECOND, "the control") == ["the control"]
    assert first_name("flaw_01", "flaw = None", 'flaw = "B"') == ['flaw = "A"']  # in a cell of its own too
    assert first_name("flaw_02" + release.SECOND, "the control", 'flaw = "C"') == ["the control", 'flaw = "C"']
    assert first_name("flaw_02", 'flaw = "C"') == []  # named when the control was known
    assert [first_name("a1_exchangeability", text) for text in "xy"] == [["x"], ["y"]]


def test_every_week_has_an_assignment(release):
    weeks = {exercise.week for exercise in release.exercises() if exercise.path in grading.ASSIGNMENTS}
    assert weeks == set(release.WEEKS[:-1])  # the last week is one session, after which nothing is due


@pytest.mark.parametrize("week", ["7", "three", "0", "-1", "1 2"])
def test_an_unknown_week_is_one_line(release, week, capsys):
    assert release.main(week) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert week in message
    assert "WEEK is 1 to 6" in message


@pytest.mark.slow
def test_graded_by_nbgrader_nothing_hidden_comes_back(week_1):
    folder = week_1 / "instructor"
    submission = nbformat.read(week_1 / "student" / "week_1" / f"{NAME}.ipynb", as_version=4)
    for cell in submission.cells:
        cell.source = CURIOUS.get(grading.grade_id(cell), cell.source)
    handed_in = folder / "submitted" / "curious" / NAME
    handed_in.mkdir(parents=True)
    nbformat.write(submission, handed_in / f"{NAME}.ipynb")
    nbgrader(folder, "autograde", NAME)
    nbgrader(folder, "generate_feedback", NAME)

    hidden = grading.hidden_lines(grading.COURSE / "assignments" / f"{NAME}.ipynb")
    graded = grading.load(folder / "autograded" / "curious" / NAME / f"{NAME}.ipynb")
    picked = nbformat.writes(graded)
    assert "AssertionError" in picked  # what there is to leak: the tests, their tracebacks, what was printed
    assert [line for line in hidden if line in "\n".join(cell.source for cell in graded.cells)]

    back = folder / "feedback" / "curious" / NAME
    assert [path.name for path in back.rglob("*") if path.is_file()] == [f"{NAME}.html"]
    page = grading.readable((back / f"{NAME}.html").read_text(encoding="utf-8"))
    assert not [line for line in hidden if line in page]
    assert "CANARY', In" in page  # the student's own source is there
    assert page.count("CANARY") == sum(text.count("CANARY") for text in CURIOUS.values())  # and what it printed is not
    assert "Traceback" not in page
    assert "Not passed" in page

    path = grading.COURSE / "assignments" / f"{NAME}.ipynb"
    points = grading.grade(path, CURIOUS | {"null_p_values": "raise NotImplementedError()"})
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as book:
        result = book.find_submission(NAME, "curious")
        possible = sum(grading.full_marks(path).values()) + 2  # the answer in words waits for a reader
        assert (result.score, result.max_score) == (sum(points.values()), possible)


@pytest.mark.slow
def test_graded_by_nbgrader_a_name_changed_when_part_2_is_known_gets_nothing(week_1, release):
    folder, second = week_1 / "instructor", "flaw_01" + release.SECOND
    lab = grading.LABS[0]

    def hand_in(student, name, notebook):
        where = folder / "submitted" / student / name
        where.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, where / f"{name}.ipynb")

    def named(flaw):
        notebook = grading.load(folder / "release" / "flaw_01" / "flaw_01.ipynb")
        next(cell for cell in notebook.cells if grading.grade_id(cell) == "flaw").source = f"flaw = {flaw!r}"
        return notebook

    hand_in("changes", "flaw_01", named("A"))
    hand_in("knows", "flaw_01", named("B"))
    nbgrader(folder, "autograde", "flaw_01")
    hand_in("changes", "flaw_01", named("B"))
    for student in ("changes", "late"):
        hand_in(student, second, release.parts(grading.load(lab))[1])
    nbgrader(folder, "autograde", second)
    hand_in("late", "flaw_01", named("B"))
    nbgrader(folder, "autograde", "flaw_01", "--force")
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as book:
        scores = {student: book.find_submission("flaw_01", student).score for student in ("knows", "changes", "late")}
        assert scores == {"knows": 2, "changes": 0, "late": 0}
        assert book.find_submission(second, "late").score == 8
