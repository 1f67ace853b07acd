"""Write what a course hands out: ``make course``, or ``make course WEEK=3`` for one week, into ``_build/course``.

``student/`` has the notebooks without solutions and hidden tests, and the library; ``instructor/`` is a course folder
of nbgrader, with solutions, ready to grade. Each is zipped on its own: only one of them is for students.
"""

import logging
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import nbformat
import slides
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import PyFileConfigLoader

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "notebooks" / "course"
WEEKS = (1, 2, 3, 4, 5)
_LIBRARY = ("src", "pyproject.toml", "requirements.lock", "README.md", "LICENSE")  # what pip needs of this project


@dataclass(frozen=True)
class Exercise:
    """One notebook that students work in: an assignment, or a lab in which a flaw is to be found."""

    path: Path
    week: int
    title: str
    points: int

    @property
    def name(self) -> str:
        """What nbgrader calls it."""
        return self.path.stem


def exercises(weeks: tuple[int, ...] = WEEKS) -> list[Exercise]:
    """Find the notebooks of these weeks, in the order in which they come."""
    exercises = []
    for path in sorted((COURSE / "assignments").glob("*.ipynb")) + sorted((COURSE / "flaws").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if (week := notebook.metadata["course"]["week"]) in weeks:
            title = notebook.cells[0].source.splitlines()[0].removeprefix("# ")
            points = sum(cell.metadata.get("nbgrader", {}).get("points", 0) for cell in notebook.cells)
            exercises.append(Exercise(path, week, title, points))
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
            shutil.copy2(exercise.path, source)
            where = CourseDirectory(config=settings, assignment_id=exercise.name, student_id=".")
            GenerateAssignment(coursedir=where, config=settings).start()


def student(chosen: list[Exercise], released: Path, folder: Path) -> None:
    """Write what students get: the released notebooks by week, and the library to install."""
    for exercise in chosen:
        week = folder / f"week_{exercise.week}"
        week.mkdir(parents=True, exist_ok=True)
        shutil.copy2(released / exercise.name / f"{exercise.name}.ipynb", week)
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
    """Write both versions, with the slides, and their zips into `folder`, which is emptied first; return the zips."""
    shutil.rmtree(folder, ignore_errors=True)
    chosen = exercises(weeks)
    instructor(chosen, folder / "instructor")
    student(chosen, folder / "instructor" / "release", folder / "student")
    slides.build(weeks, Path(__file__).parent, folder / "slides")
    slides.handouts(weeks, Path(__file__).parent, folder / "slides")
    zips = []
    for name in ("student", "instructor"):
        shutil.copytree(folder / "slides", folder / name / "slides")
        readme(f"{name}_readme.md", chosen, folder / name)
        zips.append(Path(shutil.make_archive(str(folder / f"provlab-course-{name}"), "zip", folder, name)))
    return zips


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
