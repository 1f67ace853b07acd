"""Run notebooks by name through papermill, and the list of notebooks that makes a study.

A notebook is inspected before anything runs, so that an unknown or ill-typed parameter costs nothing; it is executed
to a temporary path and moved into place when it succeeded, so that a page never shows half a run. What a finished page
was made from is kept as a stamp in the page itself: if notebook, parameters, versions and what of the library the
notebook can reach are the same, the page is up to date.
"""

import importlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from tqdm import tqdm

from provlab import provenance, schema
from provlab.errors import ParameterError, ProvlabError, one_line
from provlab.files import atomic_file, digest
from provlab.publishing.experiment import checked_profile, is_stored
from provlab.publishing.reach import reached

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

LIBRARY = Path(str(resources.files("provlab")))
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
        known = ", ".join(sorted(found.stem for found in folder.glob("*.ipynb"))) or "none"
        raise ParameterError(f"there is no notebook {name!r} in {folder}; there are: {known}")
    return path


def parameters_of(path: Path) -> dict[str, dict[str, Any]]:
    """Parameters that a notebook declares: name to ``inferred_type_name``, ``default`` and ``help``."""
    try:
        found: dict[str, dict[str, Any]] = papermill.inspect_notebook(str(path))
    except UNREADABLE as error:
        raise ParameterError(f"{path} is no notebook that can be read ({one_line(error)}); restore it") from error
    return found


def checked(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters given, each known to the notebook and of the declared type.

    Raises
    ------
    ParameterError
        Naming the parameter, and what the notebook has or wants.
    """
    declared = parameters_of(path)
    for name, value in given.items():
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise ParameterError(f"{path.stem} has no parameter {name!r}; it has {known}")
        annotation = TYPES.get(declared[name]["inferred_type_name"])
        if annotation is not None:
            schema.check(f"parameter {name}", value, annotation)
    return dict(given)


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


def as_lists(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Split comma-separated text for parameters that are lists of strings, so ``-p models=a,b`` works in a shell."""
    declared = parameters_of(path)
    return {
        name: [item.strip() for item in value.split(",") if item.strip()]
        if isinstance(value, str) and declared.get(name, {}).get("inferred_type_name") == "list[str]"
        else value
        for name, value in given.items()
    }


def stamp(path: Path, parameters: Mapping[str, Any], inputs: str = "") -> str:
    """Hash of all that a page is made from; `inputs` stands for what it reads besides."""
    notebook = nbformat.read(path, as_version=4)
    cells = [[cell.cell_type, cell.source, cell.metadata.get("tags", [])] for cell in notebook.cells]
    code = _code(notebook)
    # an experiment judges its own claims; what is none shows those of all
    library = reached(code, {path.stem} if FINISHES in code else None, LIBRARY)
    return digest([cells, dict(parameters), library, provenance.versions(), inputs])


def _code(notebook: nbformat.NotebookNode) -> str:
    """Code of all cells."""
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def stamp_of(page: Path) -> str | None:
    """The stamp of a finished page, or None if it is not there or was not made by `run`."""
    if not page.is_file():
        return None
    try:
        found = nbformat.read(page, as_version=4).metadata.get("provlab", {}).get("stamp")
    except UNREADABLE:
        return None
    return str(found) if found else None


def run(path: Path, parameters: Mapping[str, Any], output: Path, *, inputs: str = "", progress: bool = True) -> None:
    """Execute a notebook with parameters; the page appears at `output` only if every cell succeeded.

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
    with atomic_file(output) as temporary:
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
                **_without_a_last_interrupt(),
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
        notebook.metadata["provlab"] = {"stamp": made_from}
        nbformat.write(notebook, temporary)


def _without_a_last_interrupt() -> dict[str, Any]:
    """Settings of nbclient with which a kernel is interrupted at the end only if one of its cells is running.

    jupyter_client interrupts every kernel before it asks it to end. One that has run all its cells may still be busy
    with its last message, and reports the interrupt as an error on the user's terminal.
    """
    running = threading.Event()

    class Manager(AsyncKernelManager):
        async def _async_interrupt_kernel(self) -> None:
            if running.is_set() or not self.shutting_down:
                await super()._async_interrupt_kernel()

    return {
        "kernel_manager_class": Manager,
        "on_cell_execute": lambda **_: running.set(),
        "on_cell_executed": lambda **_: running.clear(),
    }


@dataclass(frozen=True)
class Plan:
    """The notebooks of a study, in order, with their parameters.

    Attributes
    ----------
    profile : str
        Label handed to every notebook.
    experiments : list
        Each with ``notebook``, ``parameters``, ``reads`` (whether it reads what the notebooks before it left) and
        ``alone``.
    fetches : list of dict
        Hub models that the plan needs, each with ``id`` and ``gigabytes``; asked about before anything is fetched.
    offers : list of str
        Notebooks that show more if their chapter may fetch something, and run without it as well.
    needs : str
        What else a user must have, in words.
    zoo : dict
        ``edition`` of the zoo to build first, if any.
    jobs : int
        How many notebooks run at a time. One that ``reads``, or is to run ``alone`` since it measures times, has the
        machine to itself.
    """

    profile: str
    experiments: list[dict[str, Any]]
    fetches: list[dict[str, Any]] = field(default_factory=list)
    offers: list[str] = field(default_factory=list)
    needs: str = ""
    zoo: dict[str, Any] = field(default_factory=dict)
    jobs: int = 1

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan; what is wrong in it is named.

        Raises
        ------
        ParameterError
            If the file is missing or unreadable, a key is unknown, missing or ill-typed, a notebook is not there or
            named twice, or a parameter is none of its own.
        """
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            others = ", ".join(sorted(p.stem for p in path.parent.glob("*.yml"))) or "none"
            raise ParameterError(f"there is no plan {path}; beside it there are: {others}") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ParameterError(f"{path} is no plan that can be read ({one_line(error)})") from error
        schema.check_keys(str(path), content, _PLAN, required=("profile", "experiments"))
        checked_profile(content["profile"])
        if content.get("jobs", 1) < 1:
            raise ParameterError(f"jobs of {path} must be at least 1, not {content['jobs']}")
        for experiment in content["experiments"]:
            schema.check_keys(f"an experiment of {path}", experiment, _EXPERIMENT, required=("notebook",))
            checked(find_notebook(experiment["notebook"]), experiment.get("parameters", {}))
        for model in content.get("fetches", []):
            schema.check_keys(f"a model that {path} fetches", model, _FETCH, required=tuple(_FETCH))
        if "zoo" in content:
            schema.check_keys(f"zoo of {path}", content["zoo"], _ZOO, required=tuple(_ZOO))
        names = [experiment["notebook"] for experiment in content["experiments"]]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ParameterError(f"{path} runs {repeated[0]} twice; one page has room for one run")
        if strange := sorted(set(content.get("offers", [])) - set(names)):
            raise ParameterError(f"{path} offers to fetch for {strange[0]}, which is none of its notebooks")
        return cls(**content)


def offer(name: str) -> Any:
    """Return the module of a notebook's chapter that can say what is ``missing()`` and ``obtain(fetch=True)`` it."""
    return importlib.import_module(f"provlab.chapters.{name}.packages")


# keys of a plan and of what stands in it, each with the type of its value
_PLAN = {"profile": str, "experiments": list, "fetches": list, "offers": list, "needs": str, "zoo": dict, "jobs": int}
_EXPERIMENT = {"notebook": str, "parameters": dict, "reads": bool, "alone": bool}
_FETCH = {"id": str, "gigabytes": float}
_ZOO = {"edition": str}


def _records_are_there(path: Path, profile: str) -> bool:
    """Whether what an experiment left is still in the store; a notebook that is no experiment leaves nothing."""
    return FINISHES not in _code(nbformat.read(path, as_version=4)) or is_stored(path.stem, profile)


def run_plan(plan: Plan, output: Path, *, force: bool = False, say: Callable[[str], None]) -> int:
    """Run every notebook of a plan that is not up to date; return how many ran.

    Several at a time if the plan says so. When one fails, those that run are waited for, their pages stay, and no
    further one is begun.

    Raises
    ------
    ProvlabError
        As `run`.
    """
    ran = 0
    before = ""  # stands for the pages made so far, for notebooks that read what those left
    for together in _waves(plan):
        tasks: list[_Task] = []
        for experiment in together:
            path = find_notebook(experiment["notebook"])
            parameters = {"profile": plan.profile, **experiment.get("parameters", {})}
            inputs = before if experiment.get("reads") else ""
            if path.stem in plan.offers:  # a page with what was fetched is another one
                inputs = digest([inputs, offer(path.stem).missing()])
            task = _Task(path, parameters, output / path.name, inputs)
            wanted = stamp(path, checked(path, parameters), task.inputs)
            if stamp_of(task.page) == wanted and _records_are_there(path, plan.profile) and not force:
                say(f"{path.stem}: up to date")
            else:
                tasks.append(task)
        _run_together(tasks, plan.jobs, say)
        ran += len(tasks)
        for experiment in together:
            page = output / find_notebook(experiment["notebook"]).name
            # a page made anew has another time: whatever reads it runs again
            before = digest([before, page.name, page.stat().st_mtime_ns])
    return ran


def _waves(plan: Plan) -> Iterator[list[dict[str, Any]]]:
    """Cut the plan, in its order, into notebooks that may run beside each other."""
    wave: list[dict[str, Any]] = []
    for experiment in plan.experiments:
        if experiment.get("reads") or experiment.get("alone"):
            yield wave
            yield [experiment]
            wave = []
        else:
            wave.append(experiment)
    yield wave


@dataclass(frozen=True)
class _Task:
    """One notebook to run."""

    path: Path
    parameters: dict[str, Any]
    page: Path
    inputs: str

    def run(self, *, progress: bool = False) -> float:
        """Run it; return the seconds that it took."""
        started = time.monotonic()
        run(self.path, self.parameters, self.page, inputs=self.inputs, progress=progress)
        return time.monotonic() - started


def _run_together(tasks: Sequence[_Task], jobs: int, say: Callable[[str], None]) -> None:
    """Run notebooks, at most `jobs` at a time, each from a process of its own if there are several."""
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            say(f"{task.path.stem}: running")
            say(f"{task.path.stem}: done in {task.run(progress=sys.stderr.isatty()):,.0f} s")
        return
    say(f"{len(tasks)} notebooks to run, {min(jobs, len(tasks))} at a time")
    bar = tqdm(total=len(tasks), desc="notebooks", unit="notebook", leave=False, disable=not sys.stderr.isatty())
    with bar, ProcessPoolExecutor(min(jobs, len(tasks)), multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(task.run): task for task in tasks}
        try:
            for finished in as_completed(running):
                say(f"{running[finished].path.stem}: done in {finished.result():,.0f} s")
                bar.update()
        except BaseException:  # an interrupt too, which the processes get as well
            pool.shutdown(cancel_futures=True)
            raise
