"""``provlab run``: run a notebook with one's own parameters, or list the notebooks and what they take."""

import sys
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

import rich_click as click
from click.shell_completion import CompletionItem

from provlab import provenance
from provlab.cli import sources
from provlab.cli.command import Command
from provlab.cli.options import Word
from provlab.cli.screen import show
from provlab.errors import ParameterError
from provlab.report.card import Card
from provlab.report.views import Table
from provlab_study.commands import check_checkout, check_results
from provlab_study.publishing.listing import minutes_of_pages, on_own_models, title_and_finding
from provlab_study.publishing.pages import page_name, write_index
from provlab_study.publishing.parameters import (
    assigned,
    check_needs,
    checked,
    checked_profile,
    find_notebook,
    meant,
    parameters_of,
)


def _stems(folder: str, ending: str) -> list[str]:
    """Names of the files of one kind in a folder of the project."""
    return sorted(path.stem for path in (provenance.project_root() / folder).glob(f"*.{ending}"))


class _Value(click.ParamType):
    """``NAME=VALUE``, a parameter of the notebook that is named; behind the sign models, where it takes some."""

    name = "NAME=VALUE"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Offer the names, or the models."""
        notebook = ctx.params.get("notebook") or "".join(ctx.args[:1])  # click leaves it there behind a bare -p
        path = provenance.project_root() / "notebooks" / f"{Path(notebook).stem}.ipynb"
        parameters = parameters_of(path) if path.is_file() else {}
        name, equals, value = incomplete.partition("=")
        if not equals:
            return [CompletionItem(f"{known}=") for known in parameters if known.startswith(name)]
        earlier, comma, last = value.rpartition(",")
        takes_models = name in parameters and parameters[name].takes_models
        models = sources.names(last) if takes_models else []
        return [CompletionItem(f"{name}={earlier}{comma}{model}") for model in models]


@click.command(cls=Command, surplus="; a parameter is -p name=value, a list -p name=a,b")
@click.argument(
    "notebook",
    required=False,
    type=Word("NAME", lambda: _stems("notebooks", "ipynb")),
    help="its name in notebooks/, or a path",
)
@click.option(
    "--list",
    "listing",
    is_flag=True,
    help="list all notebooks, or the parameters of the one that is named, and stop",
)
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    type=_Value(),
    help="a parameter; may be repeated; lists may be a,b",
)
@click.option(
    "--profile",
    type=Word("NAME", lambda: _stems("notebooks/profiles", "yml")),
    help="with what notebooks/profiles/NAME.yml gives it; -p stands above that",
)
@click.option(
    "-o", "--output", type=Path, metavar="FILE", help="where the executed notebook goes (default: below _results/)"
)
def command(
    notebook: str | None, *, listing: bool, parameters: tuple[str, ...], profile: str | None, output: Path | None
) -> int:
    """The study's pages on models of your own.

    example: provlab run --list

    example: provlab run llama_tree -p models=zoo:oak,zoo:oak-chat,zoo:elm -p seed=1
    """
    if not (notebook or "").endswith(".ipynb"):
        check_checkout()
    if listing:
        if notebook:
            print(_of_one(find_notebook(notebook)))
        else:
            show(_of_all())
        return 0
    if notebook is None:
        raise ParameterError("name a notebook; provlab run --list lists them")
    path = find_notebook(notebook)
    declared = parameters_of(path)
    values = assigned(path, parameters)
    takes, why = on_own_models(path)
    if takes == "no" and (unknown := [name for name in values if not meant(name, declared)]):
        raise ParameterError(f"{path.stem} has no parameter {unknown[0]!r}: it takes no models of your own. {why}")
    if profile is not None:
        from provlab_study.publishing.plan import Plan

        plan = Plan.read(provenance.project_root() / "notebooks" / "profiles" / f"{Path(profile).stem}.yml")
        values = plan.parameters_of(path.stem) | values
    if "profile" in declared:
        values.setdefault("profile", "own")  # so that own runs never mix with a reproduction
    values = checked(path, values)
    folder = provenance.results_root() / checked_profile(str(values.get("profile", "own"))) / "pages"
    page = output or folder / page_name(path.stem, declared, values)
    check_results(page)
    from provlab_study.commands.models import check_models

    check_models(declared, values)
    check_needs(path, values)
    from provlab_study.publishing import runner

    runner.run(path, values, page, progress=sys.stderr.isatty())
    if output is None:
        print(f"all pages of yours: {write_index(folder)}", file=sys.stderr)
    print(page)
    return 0


def _of_all() -> Card:
    """Each notebook of the project with its title, its minutes, and whether it takes models of one's own."""
    folder = provenance.project_root() / "notebooks"
    if not (paths := sorted(folder.glob("*.ipynb"))):
        raise ParameterError(f"there are no notebooks in {folder}; run this in a checkout of the project")
    minutes = minutes_of_pages()
    rows = [
        (
            path.stem,
            on_own_models(path)[0],
            f"{minutes[path.stem]:g}" if path.stem in minutes else "",
            title_and_finding(path)[0],
        )
        for path in paths
    ]
    return Card(
        f"{len(paths)} pages.",
        body=[Table(("page", "yours", "minutes", "title"), rows, right=(2,))],
        remarks=[
            ("yours", "whether it takes your models; of some its first paragraphs say which"),
            ("more", "provlab run PAGE --list says what it finds, and has its parameters"),
        ],
    )


def _wrapped(text: str, set_in: int = 0) -> list[str]:
    """Lines of a text at the terminal's width, words whole."""
    return wrap(
        text,
        get_terminal_size((100, 24)).columns,
        initial_indent=" " * set_in,
        subsequent_indent=" " * (set_in or 4),
        break_on_hyphens=False,
    )


def _of_one(path: Path) -> str:
    """What one notebook finds, and its parameters, as its cell declares them."""
    lines = []
    for parameter in parameters_of(path).values():
        kind = f": {parameter.kind}" if parameter.kind else ""
        lines.append(f"{parameter.name}{kind} = {parameter.default}")
        lines += _wrapped(parameter.help, set_in=4)
    title, sentence = title_and_finding(path)
    return "\n".join([f"{path.stem}: {title}", *_wrapped(sentence), "", *filter(None, lines)])
