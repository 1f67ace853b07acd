"""Run notebooks by name through papermill.

A notebook is inspected before anything runs, so that an unknown or ill-typed parameter costs nothing; it is executed
to a temporary path and moved into place when it succeeded, so that a page never shows half a run. What a finished page
was made from is kept as a stamp in the page itself: if notebook, parameters, versions and what of the library the
notebook can reach are the same, the page is up to date.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from provlab import provenance, schema
from provlab.errors import ParameterError, ProvlabError, one_line
from provlab.files import atomic_file, digest
from provlab_study.publishing.experiment import STUDY_RUN
from provlab_study.publishing.page import arrange
from provlab_study.publishing.reach import reached

# what an annotation in a parameters cell may be; no expression is ever evaluated
TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "dict": dict,
    "list": list,
    "list[str]": list[str],
    "list[int]": list[int],
    "list[float]": list[float],
}

CHAPTERS = Path(str(resources.files("provlab_study")))
FINISHES = "run.finish()"  # the call with which an experiment leaves its records

# what nbformat and papermill raise on a file that is no notebook
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, nbformat.ValidationError, nbformat.reader.NotJSONError)


def find_notebook(name: str) -> Path:
    """Path of a notebook given by path or by name; names are looked up in the project's ``notebooks`` folder.

    Raises
    ------
    ParameterError
        If there is none; the message lists those that there are.
    """
    path = Path(name)
    if path.suffix == ".ipynb":
        if path.is_file():
            return path
        raise ParameterError(f"there is no notebook {name}; give a path that exists, or a name in notebooks/")
    folder = provenance.project_root() / "notebooks"
    path = folder / f"{name}.ipynb"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.ipynb"))) or "none"
        raise ParameterError(f"there is no notebook {name!r} in {folder}; there are: {known}")
    return path


def parameters_of(path: Path) -> dict[str, dict[str, Any]]:
    """Parameters that a notebook declares: name to ``inferred_type_name``, ``default`` and ``help``."""
    try:
        declared: dict[str, dict[str, Any]] = papermill.inspect_notebook(str(path))
    except UNREADABLE as error:
        raise ParameterError(f"{path} is no notebook that can be read ({one_line(error)}); restore it") from error
    return declared


def checked(path: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, each known to the notebook and of the declared type.

    Raises
    ------
    ParameterError
        Naming the parameter, and what the notebook has or expects.
    """
    declared = parameters_of(path)
    for name, value in parameters.items():
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise ParameterError(f"{path.stem} has no parameter {name!r}; it has {known}")
        annotation = TYPES.get(declared[name]["inferred_type_name"])
        if annotation is not None:
            schema.check(f"parameter {name}", value, annotation)
    return dict(parameters)


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """``name=value`` strings as a dict, each value read as YAML; ``a,b`` is a list for a parameter that wants one."""
    parsed = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.isidentifier():
            raise ParameterError(f"a parameter is given as name=value, not {assignment!r}")
        try:
            parsed[name] = yaml.safe_load(value) if value else ""
        except yaml.YAMLError as error:
            raise ParameterError(f"the value of parameter {name} is not readable as YAML: {value!r}") from error
    return parsed


def as_lists(path: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Split comma-separated text for parameters that are lists of strings, so ``-p models=a,b`` works in a shell."""
    declared = parameters_of(path)
    return {
        name: [item.strip() for item in value.split(",") if item.strip()]
        if isinstance(value, str) and declared.get(name, {}).get("inferred_type_name") == "list[str]"
        else value
        for name, value in parameters.items()
    }


def stamp(path: Path, parameters: Mapping[str, Any], inputs: str = "") -> str:
    """Hash of all that a page is made from; `inputs` stands for other pages that it reads."""
    notebook = nbformat.read(path, as_version=4)
    cells = [[cell.cell_type, cell.source, cell.metadata.get("tags", [])] for cell in notebook.cells]
    code = code_of(notebook)
    # an experiment judges its own claims; what is none shows those of all
    library = reached(code, {path.stem} if FINISHES in code else None)
    return digest([cells, dict(parameters), library, provenance.versions(), inputs])


def code_of(notebook: nbformat.NotebookNode) -> str:
    """Code of all cells."""
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def stamp_of(page: Path) -> str | None:
    """The stamp of a finished page, or None if it is not there or was not made by `run`."""
    if not page.is_file():
        return None
    try:
        mark = nbformat.read(page, as_version=4).metadata.get("provlab", {}).get("stamp")
    except UNREADABLE:
        return None
    return str(mark) if mark else None


def run(
    path: Path,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    inputs: str = "",
    progress: bool = True,
    of_study: bool = False,
) -> None:
    """Execute a notebook with parameters; the page appears at `output` only if every cell succeeded.

    A run `of_study` leaves the experiment of its profile; the experiment of any other lies apart.

    Raises
    ------
    ParameterError
        Before anything runs, if a parameter is unknown or ill-typed, or `output` is a folder or the notebook itself.
    ProvlabError
        If the kernel dies, or if a cell fails, with the cell's last line; the failed notebook is kept beside `output`
        for reading, under a name that the book leaves out.
    """
    parameters = checked(path, parameters)
    if output.is_dir():
        raise ParameterError(f"{output} is a folder; give a file name, {output / path.name} say")
    if output.exists() and output.samefile(path):
        raise ParameterError(f"{output} is the notebook itself; write the executed one to another path")
    made_from = stamp(path, parameters, inputs)
    failed = output.with_suffix(".failed.ipynb")
    failed.unlink(missing_ok=True)
    environment = _announced(made_from if of_study else None)
    with atomic_file(output) as temporary, tempfile.TemporaryDirectory() as sockets, environment:
        try:
            papermill.execute_notebook(
                str(path),
                str(temporary),
                parameters=parameters,
                cwd=str(provenance.project_root()),
                kernel_name="python3",
                progress_bar=progress,
                log_output=False,
                extra_arguments=["--log-level=ERROR"],  # of the kernel, which else warns on the user's terminal
                start_timeout=600,  # seconds; a machine that is busy or that compiles modules first takes long
                **_kernels(sockets),
            )
        except papermill.PapermillExecutionError as error:
            os.replace(temporary, failed)
            what = one_line(f"{error.ename}: {error.evalue}")
            raise ProvlabError(
                f"notebook {path.stem} failed in cell {error.exec_count}: {what}; see {failed}"
            ) from error
        except DeadKernelError as error:
            os.replace(temporary, failed)
            raise ProvlabError(
                f"notebook {path.stem}: the kernel died, for lack of memory perhaps; see {failed} for how far it came"
            ) from error
        notebook = nbformat.read(temporary, as_version=4)
        arrange(notebook)
        notebook.metadata["provlab"] = {"stamp": made_from}
        nbformat.write(notebook, temporary)


@contextmanager
def _announced(stamp: str | None) -> Iterator[None]:
    """Within, kernels that start read in `STUDY_RUN` whether they run for the study."""
    before = os.environ.pop(STUDY_RUN, None)
    try:
        if stamp is not None:
            os.environ[STUDY_RUN] = stamp
        yield
    finally:
        os.environ.pop(STUDY_RUN, None)
        if before is not None:
            os.environ[STUDY_RUN] = before


def _kernels(sockets: str) -> dict[str, Any]:
    """Settings of nbclient: kernels that listen in the folder `sockets`, interrupted at the end only while a cell runs.

    Two notebooks that start at once can be given one TCP port, and the later kernel then dies; files in a folder of
    their own cannot be given twice. jupyter_client interrupts every kernel before it asks it to end; one that has run
    all its cells may still be busy with its last message, and reports the interrupt as an error on the user's terminal.
    """
    running = threading.Event()

    class Manager(AsyncKernelManager):
        async def _async_interrupt_kernel(self) -> None:
            if running.is_set() or not self.shutting_down:
                await super()._async_interrupt_kernel()

    return {
        "kernel_manager_class": Manager,
        "config": Config(
            {} if sys.platform == "win32" else {"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}
        ),
        "on_cell_execute": lambda **_: running.set(),
        "on_cell_executed": lambda **_: running.clear(),
    }
