"""Write what a course hands out: ``make course``, or ``make course WEEK=3`` for one week, into ``_build/course``.

``student/`` has the notebooks without solutions and hidden tests, and the library; ``second_parts/`` what students get
of the labs once the names of the flaws are handed in; ``instructor/`` is a course folder of nbgrader, with solutions,
ready to grade. Each is zipped on its own: the last is not for students.
"""

import copy
import logging
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import nbformat
import slides
from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import PyFileConfigLoader

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "notebooks" / "course"
WEEKS = (1, 2, 3, 4, 5, 6)
NAMING = (
    "task_flaw",
    "flaw",
    "test_flaw",
)  # cells of a lab that ask for the name of its flaw: its first part ends with them
SECOND = "_part_2"  # what a second part's name ends with; hide_tests.py knows it too
_LIBRARY = ("src", "pyproject.toml", "requirements.lock", "README.md", "LICENSE")  # what pip needs of this project


@dataclass(frozen=True)
class Exercise:
    """One notebook that students work in: an assignment, or one part of a lab in which a flaw is to be found."""

    name: str  # what nbgrader calls it
    path: Path
    week: int
    title: str
    notebook: NotebookNode

    @property
    def points(self) -> int:
        """Points of all its cells."""
        return sum(cell.metadata.get("nbgrader", {}).get("points", 0) for cell in self.notebook.cells)

    @property
    def second(self) -> bool:
        """Whether it is handed out only when the name of the flaw is handed in."""
        return self.name.endswith(SECOND)


def parts(lab: NotebookNode) -> tuple[NotebookNode, NotebookNode]:
    """Cut a lab where its flaw has been named: nobody reads how the flaw is shown and changes the name then."""
    ids = [cell.id for cell in lab.cells]
    first, second = copy.deepcopy(lab), copy.deepcopy(lab)
    first.cells = first.cells[: ids.index(NAMING[-1]) + 1]
    second.cells = [cell for cell in second.cells if cell.id not in NAMING]
    return first, second


def exercises(weeks: tuple[int, ...] = WEEKS) -> list[Exercise]:
    """Find the notebooks of these weeks, in the order in which they come; a lab is two."""
    exercises = []
    for path in sorted((COURSE / "assignments").glob("*.ipynb")) + sorted((COURSE / "flaws").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if (week := notebook.metadata["course"]["week"]) in weeks:
            title = notebook.cells[0].source.splitlines()[0].removeprefix("# ")
            if path.parent.name == "flaws":
                first, second = parts(notebook)
                exercises.append(Exercise(path.stem, path, week, f"{title}: the name", first))
                exercises.append(Exercise(path.stem + SECOND, path, week, f"{title}: control and repair", second))
            else:
                exercises.append(Exercise(path.stem, path, week, title, notebook))
    return sorted(exercises, key=lambda exercise: exercise.week)


def instructor(chosen: list[Exercise], folder: Path) -> None:
    """Write a course folder of nbgrader: sources with solutions, the release, the gradebook, the settings."""
    folder.mkdir(parents=True)
    for name in ("nbgrader_config.py", "hide_tests.py"):
        shutil.copy2(COURSE / name, folder)
    settings = PyFileConfigLoader("nbgrader_config.py", path=str(folder)).load_config()
    # nbgrader asks a program of its own environment, alembic, for the gradebook's version, and finds it by the PATH
    with mock.patch.dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"):
        for exercise in chosen:
            source = folder / "source" / exercise.name
            source.mkdir(parents=True)
            nbformat.write(exercise.notebook, source / f"{exercise.name}.ipynb")
            where = CourseDirectory(config=settings, assignment_id=exercise.name, student_id=".")
            GenerateAssignment(coursedir=where, config=settings).start()


def handed_out(chosen: list[Exercise], released: Path, folder: Path) -> None:
    """Write released notebooks by week."""
    for exercise in chosen:
        week = folder / f"week_{exercise.week}"
        week.mkdir(parents=True, exist_ok=True)
        shutil.copy2(released / exercise.name / f"{exercise.name}.ipynb", week)


def library(folder: Path) -> None:
    """Write the library to install."""
    (folder / "provlab").mkdir(parents=True)
    for name in _LIBRARY:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "provlab" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / "provlab")


def readme(name: str, chosen: list[Exercise], folder: Path) -> None:
    """Write the README of one of the two folders."""
    rows = [f"| {e.week} | `{e.name}` | {e.title} | {e.points} |" for e in chosen]
    table = "\n".join(["| week | notebook | title | points |", "|---|---|---|---|", *rows])
    text = (COURSE / name).read_text(encoding="utf-8").replace("{contents}", table)
    (folder / "README.md").write_text(text, encoding="utf-8")


def build(weeks: tuple[int, ...], folder: Path) -> list[Path]:
    """Write what is handed out first, and later, and what is kept, into `folder`, which is emptied; return zips."""
    shutil.rmtree(folder, ignore_errors=True)
    chosen = exercises(weeks)
    instructor(chosen, folder / "instructor")
    released = folder / "instructor" / "release"
    handed_out([exercise for exercise in chosen if not exercise.second], released, folder / "student")
    library(folder / "student")
    later = [exercise for exercise in chosen if exercise.second]
    handed_out(later, released, folder / "second_parts")
    slides.build(weeks, Path(__file__).parent, folder / "slides")
    slides.handouts(weeks, Path(__file__).parent, folder / "slides")
    for name in ("student", "instructor"):
        shutil.copytree(folder / "slides", folder / name / "slides")
        readme(f"{name}_readme.md", chosen, folder / name)
    names = ("student", *(["second_parts"] if later else []), "instructor")
    return [
        Path(shutil.make_archive(str(folder / f"provlab-course-{name.replace('_', '-')}"), "zip", folder, name))
        for name in names
    ]


def main(week: str) -> int:
    """Write the course, or one week of it; a week that is none is one line."""
    if week and week not in map(str, WEEKS):
        sys.stderr.write(f"make course: there is no week {week}; WEEK is 1 to {WEEKS[-1]}, or left out for all\n")
        return 2
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    try:
        zips = build((int(week),) if week else WEEKS, ROOT / "_build" / "course")
    except NbGraderException as error:
        sys.stderr.write(f"make course: {error}\n")
        return 1
    for path in zips:
        sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
