"""``provlab book``: a profile of one's own models, which ``make reproduce`` computes and binds as a book."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import rich_click as click

from provlab import provenance
from provlab.cli import delivery, sources
from provlab.cli.command import Command
from provlab.errors import InputError, ParameterError
from provlab_study.commands import check_checkout
from provlab_study.publishing.declared import Parameter
from provlab_study.publishing.listing import minutes_of_pages, on_own_models, title_and_finding
from provlab_study.publishing.parameters import checked_profile, parameters_of

_WIDTH = 118


@click.command(cls=Command)
@sources.model("models", nargs=-1, required=True, help="as for compare")
@click.option("--name", default="mine", metavar="NAME", help="of the profile and of its folder of results")
@click.option(
    "--lineage",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="what is known of their origin, in lines child,parent",
)
@click.option("--force", is_flag=True, help="write it anew where there is one")
def command(models: tuple[str, ...], *, name: str, lineage: str | None, force: bool) -> int:
    """A book about models of your own: every page that takes them, with its parameters in one file to edit.

    example: provlab book org/a org/b /folder/c
    """
    from provlab_study.commands.models import check_models
    from provlab_study.publishing.claims import PROFILES

    check_checkout()
    if checked_profile(name) in PROFILES:
        raise ParameterError(f"the profile {name} is the study's own; give another --name")
    own = [str(Path(model).resolve()) if Path(model).is_dir() else model for model in models]
    each = Parameter("models", "list[str]", "[]", "[2 models or more]")
    each.check(own, here=True)
    told = str(Path(lineage).resolve()) if lineage else ""
    check_models({"models": each}, {"models": own, "lineage": told})
    path = provenance.project_root() / "notebooks" / "profiles" / f"{name}.yml"
    if path.exists() and not force:
        raise InputError(f"{path} is there already; edit it, give --force to write it anew, or another --name")
    delivery.check_open(path)
    text, pages, left, cost = _profile(name, own, told)
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {pages} pages on {len(own)} models; {left} are left out, and the file says why.")
    print(f"\ntakes {cost:.0f} minutes of one core on models of the zoo's size; provlab plan says what yours take")
    print("edit  who is the base, the descendant and the stranger: they were taken in the order given")
    print(f"then  make reproduce PROFILE={name}")
    return 0


def _profile(name: str, models: Sequence[str], lineage: str) -> tuple[str, int, int, float]:
    """Text of the profile, how many pages it runs and leaves out, and their minutes on the study's models."""
    kept, left, minutes, total = [], [], minutes_of_pages(), 0.0
    for path in sorted((provenance.project_root() / "notebooks").glob("*.ipynb")):
        declared = parameters_of(path)
        if not any(parameter.takes_models for parameter in declared.values()):
            continue
        title, _ = title_and_finding(path)
        takes, why = on_own_models(path)
        if takes != "yes":
            left.append((path.stem, f"{title}: {why}"))
            continue
        try:
            values = filled(declared, models, lineage)
        except InputError as error:
            left.append((path.stem, f"{title}: {error}"))
            continue
        total += minutes.get(path.stem, 0.0)
        cost = f", {minutes[path.stem]:g} min on the zoo" if path.stem in minutes else ""
        lines = [f"  - notebook: {path.stem}  # {title}{cost}", "    parameters:"]
        for given, value in values.items():
            lines += _line(declared[given], json.dumps(value, ensure_ascii=False))
        for parameter in declared.values():
            if parameter.takes_models and parameter.name not in values:
                empty = "[]" if parameter.kind.startswith("list") else '""'
                lines += [line.replace("      ", "      # ", 1) for line in _line(parameter, empty)]
        kept.append("\n".join(lines))
    head = (
        "# Models of my own: what each page is given. Change who is the base, the descendant, the stranger; take out\n"
        f"# what you do not want, set what `provlab run PAGE --list` names, then: make reproduce PROFILE={name}\n"
    )
    asked = {"profile": name, "title": "Models of my own"}
    top = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in asked.items())
    why = "".join(
        fill(f"{page}: {reason}", _WIDTH, initial_indent="#   ", subsequent_indent="#     ") + "\n"
        for page, reason in left
    )
    text = f"{head}{top}jobs: 1\nexperiments:\n" + "\n".join(kept) + f"\n# Left out:\n{why}"
    return text, len(kept), len(left), total


def _line(parameter: Parameter, written: str) -> list[str]:
    """A parameter of a page as the profile has it, with what it is."""
    helped = parameter.help.partition(" [")[0]
    line = f"      {parameter.name}: {written}"
    return [line + f"  # {helped}"] if len(line + helped) < _WIDTH else [f"      # {helped}", line]


def filled(declared: Mapping[str, Parameter], models: Sequence[str], lineage: str = "") -> dict[str, Any]:
    """Values of the parameters that name models, each of which is taken in the order given.

    A list that may have any length, and that stands by itself, gets all; what goes with another parameter gets the
    models behind those of that one. What may be left empty is left so, and what is left out with others is not named.

    Raises
    ------
    InputError
        If a page takes more models than there are.
    """
    values: dict[str, Any] = {}
    taken: dict[str, int] = {}  # how many models a parameter, and what goes with it, have already
    for name, parameter in declared.items():
        rule = parameter.rule
        if name == "lineage" and lineage:
            values[name] = lineage
        if rule is None or not rule.models or rule.left_out_with:
            continue
        is_list = parameter.kind.startswith("list")
        if rule.empty:
            values[name] = [] if is_list else ""
            continue
        head = rule.needed_with[0] if rule.needed_with else name
        start = taken.get(head, 0)
        alone = is_list and not rule.needed_with and rule.most is None
        wanted = rule.least if is_list else 1
        chosen = list(models) if alone else list(models[start : start + wanted])
        if len(chosen) < wanted:
            raise InputError(f"it takes more than {len(models)} models ({name}: {parameter.help})")
        values[name] = chosen if is_list else chosen[0]
        taken[head] = 0 if alone else start + wanted
    return values
