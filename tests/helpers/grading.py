"""The course's notebooks graded as nbgrader grades them, in this process and without a kernel.

``grade(path)`` is the reference solution, ``grade(path, {grade_id: source})`` one with some cells answered otherwise,
``grade(path, untouched=True)`` what students were given. All return points by the id of the test cell.
"""

import contextlib
import html
import io
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
from nbgrader import preprocessors, utils
from nbgrader.converters import GenerateAssignment

COURSE = Path(__file__).parents[2] / "notebooks" / "course"
ASSIGNMENTS = sorted((COURSE / "assignments").glob("*.ipynb"))
LABS = sorted((COURSE / "flaws").glob("*.ipynb"))
# those steps of nbgrader's release that need a gradebook or files beside the notebook
_APART = (preprocessors.IncludeHeaderFooter, preprocessors.InstantiateTests, preprocessors.SaveCells)


def load(path):
    return nbformat.read(path, as_version=4)


def grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def released(path):
    """The students' version, by nbgrader's own steps."""
    notebook, resources = load(path), {}
    for step in GenerateAssignment.preprocessors.default_args[0]:
        if step not in _APART:
            notebook, resources = step().preprocess(notebook, resources)
    return notebook


def full_marks(path):
    """Points of each cell with tests; an answer in words is marked by a reader."""
    graded = [cell for cell in load(path).cells if utils.is_grade(cell) and cell.cell_type == "code"]
    return {grade_id(cell): cell.metadata.nbgrader.points for cell in graded}


def grade(path, answers=None, *, untouched=False):
    """Points by test cell; cells with tests are the source's whatever was handed in, as nbgrader puts them back."""
    answers = answers or {}
    source = {grade_id(cell): cell for cell in load(path).cells if utils.is_locked(cell)}
    submission = released(path) if untouched else load(path)
    assert not set(answers) - {grade_id(cell) for cell in submission.cells if utils.is_solution(cell)}
    namespace, points = {"__name__": "__main__"}, {}
    for cell in submission.cells:
        cell.source = answers.get(grade_id(cell), source.get(grade_id(cell), cell).source)
    submission = _settings().OwnTools().preprocess(submission, {})[0]
    for cell in submission.cells:
        if cell.cell_type != "code":
            continue
        text, errors = cell.source, io.StringIO()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                exec(compile(text, f"{path.stem}:{grade_id(cell)}", "exec"), namespace)
            passed = not errors.getvalue()  # nbgrader takes the marks of a test that writes to stderr
        except Exception:  # noqa: BLE001  (whatever a student's code raises)
            passed = False
        if utils.is_grade(cell):
            points[grade_id(cell)] = cell.metadata.nbgrader.points if passed else 0
    plt.close("all")
    return points


def hidden_lines(path):
    """Each line of the hidden tests that says something: longer than `finally:`."""
    lines = []
    for cell in load(path).cells:
        parts = re.split(r".*BEGIN HIDDEN TESTS.*\n|.*END HIDDEN TESTS.*", cell.source)[1::2]
        lines += [line.strip() for part in parts for line in part.splitlines() if len(line.strip()) > 8]
    return lines


def feedback(path):
    """What students get back of the source when every cell quotes all that ran before it, in output and in errors."""
    notebook = load(path)
    quoted = "\n".join(cell.source for cell in notebook.cells)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                nbformat.v4.new_output("stream", text=quoted),
                nbformat.v4.new_output("error", ename="AssertionError", evalue=quoted, traceback=[quoted]),
            ]
        if utils.is_solution(cell):
            cell.source = "# the student's own"
    return _settings().HideTests().preprocess(notebook, {})[0]


def _settings():
    """The course's own steps of nbgrader."""
    sys.path.insert(0, str(COURSE))
    try:
        import hide_tests
    finally:
        sys.path.remove(str(COURSE))
    return hide_tests


def readable(page):
    """Words of an HTML page as a reader sees them, without what a browser leaves out."""
    return html.unescape(re.sub(r"(?s)<style.*?</style>|<script.*?</script>|<[^>]*>", "", page))
