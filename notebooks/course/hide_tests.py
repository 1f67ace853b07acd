"""Grading of a course: the name of a flaw is the first one, answers leave the tools of the tests as they are, and
feedback says nothing of the hidden tests.

nbgrader puts hidden tests into the notebooks that it grades and leaves them there: its feedback shows their source, and
tracebacks and outputs quote it (jupyter/nbgrader, issues 917 and 1363). A student's own function can print or raise what a
hidden test calls it with, and any later cell can print what ran before. So no output of the grading run is handed back,
not even of cells that students did not write: a graded cell gives one bit, whether it passed.
"""

import ast
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader import utils
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor

NAMES = Path("names")  # the first hand-in of each lab's first part, by student
SECOND = "_part_2"  # what the name of a second part ends with
MODULES = ("np", "numpy", "math", "sys", "builtins", "scipy", "stats", "provlab", "pvalues", "matching", "pd", "torch")
COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__array_ufunc__", "__code__", "__globals__")


class FirstName(NbGraderPreprocessor):
    """Grade the first part of a lab as it was first handed in, whatever comes later.

    Its second part describes the control, and so the flaw: it is handed out when the first part has been graded. A whole
    notebook is kept, since a name can stand in any cell. A student with a second part and no first has named nothing.
    It stands first in ``Autograde.sanitize_preprocessors``.
    """

    def preprocess(self, notebook: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        """Return the first hand-in in place of a later one."""
        student, name = resources["nbgrader"]["student"], resources["nbgrader"]["notebook"]
        kept = NAMES / student / f"{name.removesuffix(SECOND)}.ipynb"
        if not name.startswith("flaw_"):
            return notebook, resources
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(nbformat.v4.new_notebook() if name.endswith(SECOND) else notebook, kept)
        if name.endswith(SECOND):
            return notebook, resources
        return nbformat.read(kept, as_version=4), resources


class OwnTools(NbGraderPreprocessor):
    """Put an error in the place of an answer that changes what tests compare with.

    Tests run in the student's interpreter: after ``np.isclose = lambda *_: True`` all of them pass, and so they do on a
    number of a class whose comparisons always say yes. No answer of this course needs either. It stands last in
    ``Autograde.sanitize_preprocessors``, when nbgrader has put back the cells that are not the student's.
    """

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], cell_index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        """Look at one cell that a student may have written."""
        ours = utils.is_locked(cell) and "grade_id" in cell.metadata.nbgrader  # of a forged cell nbgrader takes the id
        if cell.cell_type == "code" and not ours and (line := changes_tools(cell.source)):
            cell.source = f'raise RuntimeError("line {line} of this cell changes a module or how numbers compare")'
        return cell, resources


def changes_tools(source: str) -> int | None:
    """Return the first line that sets an attribute of an imported module, or defines how values compare."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # magics of IPython, or a mistake that will show when it runs
        return None
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            names = ["module"] if isinstance(node.value, ast.Name) and node.value.id in MODULES else []
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("setattr", "exec", "eval")
        ):
            names = ["module"]
        elif isinstance(node, ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        if set(names) & {"module", *COMPARISONS}:
            return node.lineno
    return None


class HideTests(NbGraderPreprocessor):
    """Leave, in a graded notebook, the source without hidden tests, and for each test whether it passed.

    It stands in ``GenerateFeedback.preprocessors`` behind ``GetGrades``, which reads the points.
    """

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict[str, Any], cell_index: int
    ) -> tuple[NotebookNode, dict[str, Any]]:
        """Clear one cell; markdown has nothing to clear."""
        cell.pop("attachments", None)  # a submission's, and nbconvert would write them out as files
        if cell.cell_type != "code":
            return cell, resources
        failed = utils.has_failed(cell)
        cell.outputs = []
        if utils.is_grade(cell):
            hidden = cell.source
            # only cells that grading has restored from the source: a student may write the markers anywhere
            cell, resources = ClearHiddenTests(parent=self).preprocess_cell(cell, resources, cell_index)
            hidden_too = " Hidden tests are part of it." if cell.source != hidden else ""
            message = (
                f"Not passed: run this cell in your own notebook to see more.{hidden_too}" if failed else "Passed."
            )
            cell.outputs.append(new_output("stream", name="stdout", text=f"{message}\n"))
        return cell, resources


def pages_alone(assignment: str, student: str, notebooks: list[str]) -> None:
    """Delete from the feedback all but its pages: code that was graded may have left files with what it saw."""
    pages = {f"{Path(notebook).stem}.html" for notebook in notebooks}
    for path in Path("feedback").glob(f"{student}/{assignment}/**/*"):
        if path.is_file() and (path.name not in pages or path.parent.name != assignment):
            path.unlink()
