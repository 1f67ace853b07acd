"""The list of notebooks that makes a study, and how it is gone through.

A plan is cut into *waves*. The zoo models that a wave's notebooks name are trained first, then its notebooks run beside
each other: so the first chapters are there while most models are still to come.
"""

import importlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import yaml
from tqdm import tqdm

from provlab import provenance, schema, zoo
from provlab.errors import ParameterError, ProvlabError, nearest, one_line
from provlab.files import digest
from provlab.processes import stoppable, work_for_parent
from provlab_study.publishing import texts
from provlab_study.publishing.parameters import checked, checked_profile, find_notebook
from provlab_study.publishing.results import Results
from provlab_study.publishing.runner import FINISHES, run, stamp, stamp_of
from provlab_study.publishing.source import code_of, zoo_models

Say = Callable[[str], None]

_EVERY = 60.0  # seconds between two lines on what is running


@dataclass(frozen=True)
class Plan:
    """The notebooks of a study, in order, with their parameters.

    Attributes
    ----------
    profile : str
        Label handed to every notebook.
    experiments : list
        Each with ``notebook``, ``parameters``, ``ends_stage`` (those after it wait until it is done, and the book can
        be built as far as it has come), ``minutes`` that it takes on one core, and ``reads`` (whether it reads what the
        notebooks before it left).
    fetches : list of dict
        Models and texts of the hub that the plan needs, each with ``id`` (of a text its address) and ``gigabytes``;
        asked about before anything is fetched.
    offers : list of str
        Notebooks that show more if their chapter may fetch something, and run without it as well.
    needs : str
        What else a user must have, in words.
    zoo : dict
        ``edition`` of the zoo whose models the notebooks name, if any.
    title : str
        Of a book about models of a reader's own; the study's profiles have none.
    jobs : int
        How many notebooks of a stage run at a time; one that ``reads`` runs by itself.
    """

    profile: str
    experiments: list[dict[str, Any]]
    fetches: list[dict[str, Any]] = field(default_factory=list)
    offers: list[str] = field(default_factory=list)
    needs: str = ""
    zoo: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    jobs: int = 1

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan; what is wrong in it is named.

        Raises
        ------
        ParameterError
            If the file is missing or unreadable, a key is unknown, missing or ill-typed, a notebook is not there or
            named twice, a parameter is none of its own, or the zoo has no such edition.
        """
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            named = provenance.project_root() / "notebooks" / "profiles" / f"{path.stem}.yml"
            if named.exists():
                raise ParameterError(f"there is no plan {path}; did you mean {named}?") from error
            others = sorted(p.stem for p in path.parent.glob("*.yml"))
            hint = nearest(path.stem, others) or f"; beside it there are: {', '.join(others) or 'none'}"
            raise ParameterError(f"there is no plan {path}{hint}") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ParameterError(f"{path} is no plan that can be read ({one_line(error)})") from error
        schema.check_keys(str(path), content, _PLAN, required=("profile", "experiments"))
        checked_profile(content["profile"])
        if content.get("jobs", 1) < 1:
            raise ParameterError(f"jobs of {path} must be at least 1, not {content['jobs']}")
        for experiment in content["experiments"]:
            schema.check_keys(f"an experiment of {path}", experiment, _EXPERIMENT, required=("notebook",))
            checked(find_notebook(experiment["notebook"]), experiment.get("parameters", {}), here=False)
        for model in content.get("fetches", []):
            schema.check_keys(f"what {path} fetches", model, _FETCH, required=tuple(_FETCH))
        if "zoo" in content:
            schema.check_keys(f"zoo of {path}", content["zoo"], _ZOO, required=tuple(_ZOO))
            zoo.families(content["zoo"]["edition"])
        names = [experiment["notebook"] for experiment in content["experiments"]]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ParameterError(f"{path} runs {repeated[0]} twice; one page has room for one run")
        if strange := sorted(set(content.get("offers", [])) - set(names)):
            raise ParameterError(f"{path} offers to fetch for {strange[0]}, which is none of its notebooks")
        return cls(**content)

    @property
    def models(self) -> list[str]:
        """Ids of the models that are fetched."""
        return [one["id"] for one in self.fetches if not texts.on_the_hub(one["id"])]

    @property
    def texts(self) -> list[str]:
        """Addresses of the texts that are."""
        return [one["id"] for one in self.fetches if texts.on_the_hub(one["id"])]

    def models_of(self, experiment: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What is fetched, models and texts, because the parameters of an experiment name it."""
        given = experiment.get("parameters", {}).values()
        named = {name for value in given for name in (value if isinstance(value, list) else [value])}
        return [model for model in self.fetches if model["id"] in named]

    def of_pages(self, names: Sequence[str]) -> "Plan":
        """The plan without the pages that fetch models and are not named, and without models that no page is left for.

        Raises
        ------
        ParameterError
            A name is that of no page which fetches a model.
        """
        fetching = {item["notebook"]: self.models_of(item) for item in self.experiments if self.models_of(item)}
        if strange := sorted(set(names) - fetching.keys()):
            raise ParameterError(f"{strange[0]} is no page that fetches a model; these do: {', '.join(fetching)}")
        left = [item for item in self.experiments if item["notebook"] not in fetching.keys() - set(names)]
        needed = {model["id"] for name in names for model in fetching[name]}
        return replace(self, experiments=left, fetches=[model for model in self.fetches if model["id"] in needed])

    def parameters_of(self, name: str) -> dict[str, Any]:
        """Return what the plan gives the notebook of this name.

        Raises
        ------
        ParameterError
            If the plan does not run it.
        """
        for experiment in self.experiments:
            if experiment["notebook"] == name:
                return dict(experiment.get("parameters", {}))
        raise ParameterError(f"the profile {self.profile} does not run {name}; give parameters by -p NAME=VALUE")


def offer(name: str) -> Any:
    """Return the module of a notebook's chapter that can say what is ``missing()`` and ``obtain(fetch=True)`` it."""
    return importlib.import_module(f"provlab_study.{name}.packages")


# keys of a plan and of what stands in it, each with the type of its value
_PLAN: dict[str, Any] = {
    "profile": str,
    "experiments": list,
    "fetches": list,
    "offers": list,
    "needs": str,
    "zoo": dict,
    "title": str,
    "jobs": int,
}

_EXPERIMENT = {"notebook": str, "parameters": dict, "ends_stage": bool, "minutes": float, "reads": bool}
_FETCH = {"id": str, "gigabytes": float}
_ZOO = {"edition": str}


def _records_are_there(path: Path, profile: str, stamp: str) -> bool:
    """Whether what this run of an experiment left is in the store; a notebook that is no experiment leaves nothing."""
    if FINISHES not in code_of(nbformat.read(path, as_version=4)):
        return True
    return Results(provenance.results_root() / profile).has(path.stem, stamp)


def run_plan(
    plan: Plan, output: Path, *, force: bool = False, say: Say, between: Callable[[], object] | None = None
) -> int:
    """Run every notebook of a plan that is not up to date; return how many ran.

    Several at a time if the plan says so. One that fails keeps no other from running; run again, the plan goes on with
    those that failed and what reads them. `between` is called after each stage in which a notebook ran.

    Raises
    ------
    ProvlabError
        At the end, where notebooks failed: each with its reason, as `run` gives it.
    """
    ran, failed = 0, dict[str, str]()
    before = ""  # stands for the pages made so far, for notebooks that read what those left
    for together in _waves(plan.experiments):
        tasks: list[_Task] = []
        for experiment in together:
            path = find_notebook(experiment["notebook"])
            parameters = {"profile": plan.profile, **experiment.get("parameters", {})}
            inputs = before if experiment.get("reads") else ""
            if path.stem in plan.offers:  # a page with what was fetched is another one
                inputs = digest([inputs, offer(path.stem).missing()])
            task = _Task(path, parameters, output / path.name, inputs, experiment.get("minutes", 0.0))
            current = stamp(path, checked(path, parameters, here=False), task.inputs)
            if stamp_of(task.page) == current and _records_are_there(path, plan.profile, current) and not force:
                say(f"{path.stem}: up to date")
            else:
                tasks.append(task)
        if plan.zoo and tasks:
            recipes = zoo.families(plan.zoo["edition"])
            needs = {task: zoo_models(task.path, task.parameters, recipes) for task in tasks}
            try:
                zoo.build(sorted(set().union(*needs.values())), edition=plan.zoo["edition"])
            except zoo.Unfinished as error:  # what does without these models runs first
                able = [task for task in tasks if not needs[task] & error.models]
                left = ", ".join(task.path.stem for task in tasks if task not in able)
                say(f"{left}: not run, without {', '.join(sorted(error.models))}")
                _run_together(able, plan.jobs, say)
                raise
        lost = _run_together(tasks, plan.jobs, say)
        failed |= lost
        ran += len(tasks) - len(lost)
        for experiment in together:
            page = output / find_notebook(experiment["notebook"]).name
            # a page made again has another time: a notebook that reads it runs again
            before = digest([before, page.name, page.stat().st_mtime_ns if page.exists() else None])
        if between is not None and tasks and together[-1].get("ends_stage"):
            between()
    if len(failed) == 1:
        raise ProvlabError(next(iter(failed.values())))
    if failed:
        names = ", ".join(failed)
        raise ProvlabError(f"{len(failed)} notebooks failed, the same command goes on with these: {names}")
    return ran


def _waves(experiments: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Cut experiments, in their order, into those that may run beside each other."""
    wave: list[Mapping[str, Any]] = []
    for experiment in experiments:
        if experiment.get("reads") and wave:
            yield wave
            wave = []
        wave.append(experiment)
        if experiment.get("reads") or experiment.get("ends_stage"):
            yield wave
            wave = []
    if wave:
        yield wave


@dataclass(frozen=True, eq=False)
class _Task:
    """One notebook to run."""

    path: Path
    parameters: dict[str, Any]
    page: Path
    inputs: str
    minutes: float

    def run(self, *, progress: bool = False) -> float:
        """Run it; return the seconds that it took."""
        started = time.monotonic()
        run(self.path, self.parameters, self.page, inputs=self.inputs, progress=progress, of_study=True)
        return time.monotonic() - started


def _in_a_process(task: _Task) -> float:
    """Run a task in a process that works for this one."""
    with stoppable():
        return task.run()


def _run_together(tasks: Sequence[_Task], jobs: int, say: Say) -> dict[str, str]:
    """Run notebooks, at most `jobs` at a time; if there are several, the longest first, each from its own process.

    Returns those that failed, each with the reason.
    """
    failed: dict[str, str] = {}

    def ended(task: _Task, seconds: Callable[[], float]) -> None:
        try:
            say(f"{task.path.stem}: done in {seconds():,.0f} s")
        except ProvlabError as error:
            failed[task.path.stem] = str(error)
            say(f"{task.path.stem}: failed, the others go on: {error}")

    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            say(f"{task.path.stem}: running")
            ended(task, partial(task.run, progress=sys.stderr.isatty()))
        return failed
    jobs = min(jobs, len(tasks))
    tasks = sorted(tasks, key=lambda task: -task.minutes)
    say(f"{len(tasks)} notebooks to run, {jobs} at a time")
    bar = tqdm(total=len(tasks), desc="notebooks", unit="notebook", leave=False, disable=not sys.stderr.isatty())
    with bar, ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), work_for_parent) as pool:
        left = {pool.submit(_in_a_process, task): task for task in tasks}
        begun: dict[str, float] = {}
        try:
            while left:
                under_way = list(left.values())[:jobs]  # they are begun in their order
                for task in under_way:
                    begun.setdefault(task.path.stem, time.monotonic())
                done, _ = wait(left, timeout=_EVERY, return_when=FIRST_COMPLETED)
                for finished in done:
                    ended(left.pop(finished), finished.result)
                    bar.update()
                if bar.disable and not done:
                    say(_under_way(under_way, list(left.values()), begun, jobs))
        except BaseException:  # an interrupt too, which the processes get as well
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def _under_way(running: Sequence[_Task], left: Sequence[_Task], begun: Mapping[str, float], jobs: int) -> str:
    """Say what is running, for how long, and how long the rest of the wave will take where the plan has its minutes."""
    ages = {name: (time.monotonic() - start) / 60 for name, start in begun.items()}
    names = ", ".join(f"{task.path.stem} for {ages[task.path.stem]:.0f} min" for task in running)
    more = len(left) - len(running)
    minutes = sum(max(0.0, task.minutes - ages.get(task.path.stem, 0.0)) for task in left) / jobs
    rest = f"; {more} more to come" if more else ""
    return f"running: {names}{rest}" + (f"; about {minutes:.0f} min left of these" if minutes >= 1 else "")
