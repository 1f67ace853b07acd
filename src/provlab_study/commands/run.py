"""``provlab run``: run a notebook with one's own parameters, or list the notebooks and what they take."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap

from provlab import plugins, provenance
from provlab.cli import arguments as common
from provlab.cli.completion import completed, models
from provlab.errors import ParameterError
from provlab.report.card import Card
from provlab_study.commands import check_checkout, check_results
from provlab_study.publishing.parameters import assigned, parameters_of


def add(parser: common.Parser) -> None:
    """Say what the command takes."""
    parser.offer_example("provlab run llama_tree -p models=zoo:oak,zoo:oak-chat,zoo:elm -p seed=1")
    notebook = parser.add_argument("notebook", nargs="?", help="its name in notebooks/, or a path")
    completed(notebook, lambda *_: _stems("notebooks", "ipynb"), files=True)
    parser.add_argument(
        "--list", action="store_true", help="list all notebooks, or the parameters of the one that is named, and stop"
    )
    parameter = parser.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter; may be repeated; lists may be a,b",
    )
    completed(parameter, _assignments)
    profile = parser.add_argument(
        "--profile", metavar="NAME", help="with what notebooks/profiles/NAME.yml gives it; -p stands above that"
    )
    completed(profile, lambda *_: _stems("notebooks/profiles", "yml"))
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where the executed notebook goes (default: below _results/)"
    )
    parser.set_defaults(command=_run)


def _stems(folder: str, ending: str) -> list[str]:
    """Names of the files of one kind in a folder of the project."""
    return sorted(path.stem for path in (provenance.project_root() / folder).glob(f"*.{ending}"))


def _assignments(before: argparse.Namespace, begun: str) -> list[str]:
    """``NAME=`` of each parameter of the notebook that is named; behind the sign models, where it takes some."""
    path = provenance.project_root() / "notebooks" / f"{Path(before.notebook or '').stem}.ipynb"
    parameters = parameters_of(path) if path.is_file() else {}
    name, equals, value = begun.partition("=")
    if not equals:
        return [f"{name}=" for name in parameters]
    earlier, comma, last = value.rpartition(",")
    takes_models = name in parameters and "zoo:" in parameters[name].default
    return [f"{name}={earlier}{comma}{model}" for model in models(before, last)] if takes_models else []


def _run(arguments: argparse.Namespace) -> int:
    from provlab.cli.screen import show
    from provlab_study.publishing import runner
    from provlab_study.publishing.experiment import checked_profile
    from provlab_study.publishing.plan import Plan

    if not str(arguments.notebook).endswith(".ipynb"):
        check_checkout()
    if arguments.list:
        if arguments.notebook:
            print(_of_one(arguments.notebook))
        else:
            show(_of_all())
        return 0
    if arguments.notebook is None:
        raise ParameterError("name a notebook; provlab run --list lists them")
    path = runner.find_notebook(arguments.notebook)
    parameters = assigned(path, arguments.parameter)
    if arguments.profile is not None:
        plan = Plan.read(provenance.project_root() / "notebooks" / "profiles" / f"{Path(arguments.profile).stem}.yml")
        parameters = plan.parameters_of(path.stem) | parameters
    if "profile" in parameters_of(path):
        parameters.setdefault("profile", "own")  # so that own runs never mix with a reproduction
    default = provenance.results_root() / checked_profile(str(parameters.get("profile", "own"))) / path.name
    common.check_models(_zoo_models(parameters.values()))
    output = Path(arguments.output) if arguments.output else default
    check_results(output)
    runner.run(path, parameters, output, progress=sys.stderr.isatty())
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
    from provlab_study.publishing.plan import Plan

    folder = provenance.project_root() / "notebooks"
    if not (paths := sorted(folder.glob("*.ipynb"))):
        raise ParameterError(f"there are no notebooks in {folder}; run this in a checkout of the project")
    plans = [Plan.read(path) for path in (folder / "profiles").glob("*.yml")]
    minutes = {item["notebook"]: item["minutes"] for plan in plans for item in plan.experiments if "minutes" in item}
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


def _of_one(name: str) -> str:
    """What one notebook finds, and its parameters, as its cell declares them."""
    from provlab_study.publishing.runner import find_notebook

    path = find_notebook(name)
    lines = []
    for parameter in parameters_of(path).values():
        kind = f": {parameter.kind}" if parameter.kind else ""
        lines.append(f"{parameter.name}{kind} = {parameter.default}")
        lines += _wrapped(parameter.help, set_in=4)
    title, sentence = _title_and_sentence(path)
    return "\n".join([f"{path.stem}: {title}", *_wrapped(sentence), "", *filter(None, lines)])


def _title_and_sentence(path: Path) -> tuple[str, str]:
    """Return a notebook's title, and the first sentence of the finding under it, without their markup."""
    import re

    from provlab_study.publishing.runner import readable

    def plain(text: str) -> str:
        return " ".join(re.sub(r"\{[a-z]+\}`[^`]*`|[*`$\\]|\[([^]]*)\]\([^)]*\)", r"\1", text).split())

    cells = readable(path).cells
    title, *paragraphs = cells[0].source.split("\n\n") if cells else [path.stem]
    finding = plain(paragraphs[0]) if paragraphs else ""
    return plain(title).lstrip("# "), re.split(r"(?<=[.?]) ", finding)[0]
