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
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from provlab import provenance
from provlab.errors import ParameterError, ProvlabError, one_line
from provlab.files import atomic_file, digest
from provlab.processes import LARGE_PAGES, starting_with
from provlab_study.publishing.page import arrange
from provlab_study.publishing.parameters import checked
from provlab_study.publishing.reach import reached
from provlab_study.publishing.results import STUDY_RUN
from provlab_study.publishing.source import code_of

FINISHES = "run.finish()"  # the call with which an experiment leaves its records
# what nbformat raises on a file that is no notebook
_BROKEN = (nbformat.ValidationError, nbformat.reader.NotJSONError)
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, *_BROKEN)
SOCKET_PATH = 90  # bytes of the path of a socket, of which a system takes a hundred or so


def readable(path: Path) -> nbformat.NotebookNode:
    """Read a notebook.

    Raises
    ------
    ParameterError
        If it is none.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except _UNREADABLE as error:
        raise ParameterError(f"{path} is no notebook that can be read ({one_line(error)}); restore it") from error
    return notebook


def stamp(path: Path, parameters: Mapping[str, Any], inputs: str = "") -> str:
    """Hash of all that a page is made from; `inputs` stands for other pages that it reads."""
    notebook = nbformat.read(path, as_version=4)
    cells = [[cell.cell_type, cell.source, cell.metadata.get("tags", [])] for cell in notebook.cells]
    code = code_of(notebook)
    # an experiment judges its own claims; what is none shows those of all
    library = reached(code, {path.stem} if FINISHES in code else None)
    return digest([cells, dict(parameters), library, provenance.versions(), inputs, provenance.draw()])


def stamp_of(page: Path) -> str | None:
    """The stamp of a finished page, or None if it is not there or was not made by `run`."""
    if not page.is_file():
        return None
    try:
        mark = nbformat.read(page, as_version=4).metadata.get("provlab", {}).get("stamp")
    except _UNREADABLE:
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
    environment = _for_kernels(made_from if of_study else None)
    with atomic_file(output) as temporary, tempfile.TemporaryDirectory() as source, _sockets() as sockets, environment:
        notebook = readable(path)
        # papermill asks the notebook for the language of parameters, and some editors leave that out
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, begun := Path(source) / path.name)
        try:
            papermill.execute_notebook(
                _as_it_is(begun),
                _as_it_is(temporary),
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
        notebook.metadata["provlab"] = {"stamp": made_from, "given": dict(parameters)}
        nbformat.write(notebook, temporary)


@contextmanager
def _for_kernels(stamp: str | None) -> Iterator[None]:
    """Within, kernels that start know by `STUDY_RUN` whether they run for the study, and ask for large pages."""
    before = os.environ.pop(STUDY_RUN, None)
    try:
        if stamp is not None:
            os.environ[STUDY_RUN] = stamp
        with starting_with(LARGE_PAGES):
            yield
    finally:
        os.environ.pop(STUDY_RUN, None)
        if before is not None:
            os.environ[STUDY_RUN] = before


def _as_it_is(path: Path) -> str:
    """Write a path for papermill, which puts parameters where it finds braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


@contextmanager
def _sockets() -> Iterator[str]:
    """Yield a folder whose sockets have a path that a system takes, or "" where there is none."""
    places = [place for place in (tempfile.gettempdir(), "/tmp") if len(os.fsencode(place)) <= SOCKET_PATH - 12]
    try:
        folder = tempfile.TemporaryDirectory(dir=places[0]) if places else None
    except OSError:
        folder = None
    with folder or nullcontext("") as path:
        yield path


def _kernels(sockets: str) -> dict[str, Any]:
    """Settings of nbclient: kernels of this Python that listen in the folder `sockets`, or on TCP ports without one.

    Two notebooks that start at once can be given one TCP port, and the later kernel then dies; files in a folder of
    their own cannot be given twice. A kernel called python3 that lies first on JUPYTER_PATH may be another Python.
    jupyter_client interrupts every kernel before it asks it to end; one that has run all its cells may still be busy
    with its last message, and reports the interrupt as an error on the user's terminal: here a kernel is interrupted
    at the end only while a cell runs.
    """
    running = threading.Event()

    class Manager(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            # before the first cell, and without a name that the cells would see
            argv.append("--IPKernelApp.exec_lines=__import__('provlab.processes').processes.collect_seldom()")
            return KernelSpec(argv=argv, display_name="Python 3", language="python")

        async def _async_interrupt_kernel(self) -> None:
            if running.is_set() or not self.shutting_down:
                await super()._async_interrupt_kernel()

    return {
        "kernel_manager_class": Manager,
        "config": Config(
            {"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}
            if sockets and sys.platform != "win32"
            else {}
        ),
        "on_cell_execute": lambda **_: running.set(),
        "on_cell_executed": lambda **_: running.clear(),
    }
