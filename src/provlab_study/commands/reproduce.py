"""``provlab reproduce``: run the notebooks of a plan."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from provlab import provenance
from provlab.cli.command import Command
from provlab.errors import ParameterError
from provlab_study.commands import check_checkout, check_results
from provlab_study.publishing import texts
from provlab_study.publishing.parameters import find_notebook, parameters_of
from provlab_study.publishing.results import Results

if TYPE_CHECKING:
    from provlab_study.publishing.plan import Plan

CONSENT = "PROVLAB_FETCH"  # yes, no or names of pages, where nobody can be asked


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
    if plan.fetches and consent != "yes":
        plan = _of_agreed_pages(plan, consent, path)
    elif consent not in ("", "yes", "no"):
        raise ParameterError(f"{CONSENT} must be yes or no, not {consent!r}")
    if plan.fetches:
        from provlab.reading.hub import check_access

        # now, and not after days of the others
        check_access(plan.models)
        if plan.texts:
            check_access([texts.repository(address) for address in plan.texts], "dataset")
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


def _of_agreed_pages(plan: "Plan", consent: str, path: Path) -> "Plan":
    """Show what would be fetched, page by page, and ask; return the plan with the pages that were agreed to.

    Raises
    ------
    ParameterError
        Nobody agrees to any.
    """
    _show(plan.fetches, "models", plan.needs)
    measured = costs_of(path)
    for experiment in plan.experiments:
        if models := plan.models_of(experiment):
            name, size = experiment["notebook"], _size(sum(float(model["gigabytes"]) for model in models))
            n_texts = _n_texts(models)
            text = ", with a text" if n_texts else ""
            print(f"  {name:<22} {len(models) - n_texts:>2} models {size:>11}{text}, {_cost(measured.get(name))}")
    if not consent and sys.stdin.isatty():
        consent = input("Fetch them? [y/N, or names of pages] ").strip()
    elif not consent or consent == "no":
        raise ParameterError(
            f"nobody is there to agree to fetching these; agree with --yes (make: YES=1), or to some pages by {CONSENT}"
        )
    if consent.lower() in ("y", "yes"):
        return plan
    if consent.lower() in ("", "n", "no"):
        raise ParameterError("nothing was fetched")
    return plan.of_pages(consent.replace(",", " ").split())


def costs_of(path: Path) -> dict[str, dict[str, str]]:
    """Rows of the table of measured costs beside a plan, ``NAME.costs.csv``, by page; none where there is no table."""
    table = path.with_suffix(".costs.csv")
    if not table.is_file():
        return {}
    with table.open(encoding="utf-8", newline="") as file:
        return {row["page"]: row for row in csv.DictReader(file)}


def _cost(row: Mapping[str, str] | None) -> str:
    """Say what a page takes about: what was measured, as if all of it grew with the depth. Cut sizes make it more."""
    if row is None or row["outcome"] != "done":
        return "time not measured"
    blocks, whole = float(row["blocks"]), float(row["of_blocks"])
    minutes, times, memory = float(row["processor_minutes"]), float(row["times"]), float(row["peak_gb"])
    how = f"{row['date']}, one core of {row['machine']}: {minutes:.1f} min for {blocks:g} of {whole:g} blocks"
    how += f", with sizes up to {times:,.0f} times smaller" if times > 1 else ""
    return f"about {_time(minutes * whole / blocks)} and {memory:.0f} GB of memory, or more ({how})"


def _time(minutes: float) -> str:
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:,.0f} hours" if minutes < 60 * 72 else f"{minutes / 60 / 24:,.0f} days"


def _show(models: Sequence[Mapping[str, Any]], what: str, needs: str) -> None:
    """Print what would be fetched, and other requirements."""
    for model in models:
        print(f"  {model['id']:<50} {_size(model['gigabytes']):>11}")
    total = sum(float(model["gigabytes"]) for model in models)
    n_texts = _n_texts(models)
    n = len(models) - n_texts
    counted = f"{n} {what.removesuffix('s') if n == 1 else what}{f' and {n_texts} text' if n_texts else ''}"
    print(f"{counted}{'s' if n_texts > 1 else ''}, {_size(total)}. {needs}".strip())


def _n_texts(fetched: Sequence[Mapping[str, Any]]) -> int:
    """How many of the things that are fetched are texts, by their addresses."""
    return sum(texts.on_the_hub(one["id"]) for one in fetched)


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
