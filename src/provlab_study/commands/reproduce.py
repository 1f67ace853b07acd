"""``provlab reproduce``: run the notebooks of a plan."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import rich_click as click

from provlab import provenance
from provlab.cli.command import Command
from provlab.errors import ParameterError
from provlab_study.commands import check_checkout, check_results
from provlab_study.publishing.parameters import find_notebook, parameters_of
from provlab_study.publishing.results import Results

CONSENT = "PROVLAB_FETCH"  # yes or no, where nobody can be asked


@click.command(cls=Command, goes_on=True)
@click.argument("path", metavar="PLAN", type=Path, help="a YAML file, see notebooks/profiles/")
@click.option("-o", "--output", required=True, type=Path, metavar="FOLDER", help="where executed notebooks go")
@click.option("--force", is_flag=True, help="run all of them again")
@click.option(
    "--between", metavar="COMMAND", help="what the shell is to run after each stage, while the next one is computed"
)
@click.option("--yes", is_flag=True, help="do not ask before models are fetched")
def command(path: Path, *, output: Path, force: bool, between: str | None, yes: bool) -> int:
    """Are the papers' claims so? All notebooks of a plan; the ones that are up to date are skipped.

    example: provlab reproduce notebooks/profiles/NAME.yml -o FOLDER (make reproduce does it)
    """
    from provlab_study.commands.models import check_models
    from provlab_study.publishing import plan as plans

    check_checkout()
    plan = plans.Plan.read(path)
    check_results(output)
    if plan.title:  # what a reader wrote: each model is opened now, and not when its page comes
        for experiment in plan.experiments:
            check_models(parameters_of(find_notebook(experiment["notebook"])), experiment.get("parameters", {}))
    consent = "yes" if yes else os.environ.get(CONSENT, "")
    if consent not in ("", "yes", "no"):
        raise ParameterError(f"{CONSENT} must be yes or no, not {consent!r}")
    if plan.fetches and consent != "yes":
        _show(plan.fetches, "models", plan.needs)
        if consent == "no" or not sys.stdin.isatty():
            raise ParameterError("nobody is there to agree to fetching these; agree with --yes (make: YES=1)")
        if not _agrees():
            raise ParameterError("nothing was fetched")
    if plan.fetches:
        from provlab.reading.hub import check_access

        check_access([model["id"] for model in plan.fetches])  # now, and not after days of the others
    for name in plan.offers:
        chapter = plans.offer(name)
        missing = chapter.missing()
        if missing and _offered(name, missing, consent):
            for model, why in chapter.obtain(fetch=True).items():
                print(f"{name}: {model} is not shown: {why}")
    say = partial(print, flush=True)
    with _beside(between) if between else nullcontext() as start:
        ran = plans.run_plan(plan, output, force=force, say=say, between=start)
    if not plan.title:  # the claims are the study's
        Results(provenance.results_root()).mark_current(plan.profile)
    print(
        f"{ran} of {len(plan.experiments)} notebooks ran"
        + (", the others were up to date" if ran < len(plan.experiments) else "")
    )
    return 0


@contextmanager
def _beside(command: str) -> Iterator[Callable[[], None]]:
    """Give what starts a command of the shell, one at a time; it is waited for, or ended where the study stops."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        for earlier in started:
            earlier.wait()
        # its own session: a Ctrl-C at the terminal is this process's to answer, and ends all that the shell began
        started.append(subprocess.Popen(command, shell=True, start_new_session=True))

    try:
        yield start
        for process in started:
            process.wait()
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()


def _show(models: Sequence[Mapping[str, Any]], what: str, needs: str) -> None:
    """Print what would be fetched, and other requirements."""
    for model in models:
        print(f"  {model['id']:<50} {_size(model['gigabytes']):>11}")
    total = sum(float(model["gigabytes"]) for model in models)
    print(f"{len(models)} {what.removesuffix('s') if len(models) == 1 else what}, {_size(total)}. {needs}".strip())


def _size(gigabytes: float) -> str:
    """Say a size so that a small one does not become nothing."""
    return f"{gigabytes:,.1f} GB" if gigabytes >= 1 else f"{gigabytes * 1000:,.0f} MB"


def _agrees() -> bool:
    return input("Fetch them? [y/N] ").strip().lower() in ("y", "yes")


def _offered(name: str, missing: Sequence[Mapping[str, Any]], consent: str) -> bool:
    """Whether a notebook may fetch what it can do without; nobody is asked on a pipe."""
    if consent == "yes":
        return True
    _show(missing, "packages", f"Without them {name} runs as well, and shows less.")
    if not consent and sys.stdin.isatty() and _agrees():
        return True
    print(f"{name}: these are not fetched; agree with --yes or {CONSENT}=yes")
    return False
