"""``provlab run``: run a notebook with one's own parameters, or list the notebooks and what they take."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

import rich_click as click
import yaml
from click.shell_completion import CompletionItem

from provlab import plugins, provenance
from provlab.cli import sources
from provlab.cli.command import Command
from provlab.cli.options import Word
from provlab.errors import ParameterError, one_line
from provlab.report.card import Card
from provlab_study.commands import check_checkout, check_results
from provlab_study.publishing.parameters import assigned, cells_of, find_notebook, parameters_of


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
        takes_models = name in parameters and "zoo:" in parameters[name].default
        models = sources.names(last) if takes_models else []
        return [CompletionItem(f"{name}={earlier}{comma}{model}") for model in models]


@click.command(cls=Command)
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
        from provlab.cli.screen import show

        if notebook:
            print(_of_one(find_notebook(notebook)))
        else:
            show(_of_all())
        return 0
    if notebook is None:
        raise ParameterError("name a notebook; provlab run --list lists them")
    path = find_notebook(notebook)
    values = assigned(path, parameters)
    from provlab_study.publishing import runner
    from provlab_study.publishing.experiment import checked_profile
    from provlab_study.publishing.plan import Plan

    if profile is not None:
        plan = Plan.read(provenance.project_root() / "notebooks" / "profiles" / f"{Path(profile).stem}.yml")
        values = plan.parameters_of(path.stem) | values
    if "profile" in parameters_of(path):
        values.setdefault("profile", "own")  # so that own runs never mix with a reproduction
    default = provenance.results_root() / checked_profile(str(values.get("profile", "own"))) / path.name
    for name in _zoo_models(values.values()):
        sources.check(name)
    output = output or default
    check_results(output)
    runner.run(path, values, output, progress=sys.stderr.isatty())
    print(output)
    return 0


def _zoo_models(values: Iterable[object]) -> list[str]:
    """Names with a scheme among parameters, and in lists of theirs, where a line may hold several between bars.

    A name with braces stands for many, which the page counts.
    """
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    names = [name.strip() for text in texts if isinstance(text, str) for name in text.split("|")]
    return [name for name in names if "{" not in name and name.partition(":")[0] in plugins.named(plugins.SCHEMES)]


def _of_all() -> Card:
    """Each notebook of the project with its title, its minutes, and whether it takes models of one's own."""
    from provlab.report.views import Table

    folder = provenance.project_root() / "notebooks"
    if not (paths := sorted(folder.glob("*.ipynb"))):
        raise ParameterError(f"there are no notebooks in {folder}; run this in a checkout of the project")
    minutes = {name: cost for path in (folder / "profiles").glob("*.yml") for name, cost in _minutes(path).items()}
    rows = [
        (
            path.stem,
            f"{minutes[path.stem]:g}" if path.stem in minutes else "",
            "yes" if _takes_models(path) else "",
            _title_and_sentence(path)[0],
        )
        for path in paths
    ]
    return Card(
        f"{len(paths)} pages.",
        body=[Table(("page", "minutes", "your models", "title"), rows, right=(1,))],
        remarks=[("more", "provlab run PAGE --list says what it finds, and has its parameters")],
    )


def _minutes(profile: Path) -> dict[str, float]:
    """Minutes of the notebooks of a profile, read without what would run them."""
    try:
        experiments = yaml.safe_load(profile.read_text(encoding="utf-8"))["experiments"]
        return {item["notebook"]: item["minutes"] for item in experiments if "minutes" in item}
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ParameterError(f"{profile} is no plan that can be read ({one_line(error)}); restore it") from error


def _takes_models(path: Path) -> bool:
    return any("zoo:" in item.default for item in parameters_of(path).values())


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
    title, sentence = _title_and_sentence(path)
    return "\n".join([f"{path.stem}: {title}", *_wrapped(sentence), "", *filter(None, lines)])


def _title_and_sentence(path: Path) -> tuple[str, str]:
    """Return a notebook's title, and the first sentence of the finding under it, without their markup."""

    def plain(text: str) -> str:
        return " ".join(re.sub(r"\{[a-z]+\}`[^`]*`|[*`$\\]|\[([^]]*)\]\([^)]*\)", r"\1", text).split())

    sources = [source for source, _ in cells_of(path)]
    title, *paragraphs = sources[0].split("\n\n") if sources else [path.stem]
    finding = plain(paragraphs[0]) if paragraphs else ""
    return plain(title).lstrip("# "), re.split(r"(?<=[.?]) ", finding)[0]
