"""``provlab zoo list | build``: the embedded models of known lineage."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

import rich_click as click

from provlab import zoo
from provlab.cli import options
from provlab.cli.command import Command, CommandGroup
from provlab.cli.screen import show
from provlab.errors import InputError, nearest
from provlab.report.card import Card
from provlab.report.views import Table
from provlab.zoo import scheme
from provlab.zoo.recipes import Recipe

_SHOWN = 48  # characters of the names in a group: one line of a terminal of 80 columns
EDITION = click.option("--edition", metavar="NAME", help="default or smoke (default: $PROVLAB_ZOO_EDITION or default)")
NAME = options.Word("NAME", scheme.names)


@click.group(cls=CommandGroup, known_as={"train": "build", "make": "build"})
def command() -> None:
    """Which models are embedded, and what was each made from?

    example: provlab zoo list 'oak*'
    """


@command.command("list")
@click.argument(
    "pattern",
    required=False,
    type=NAME,
    help="names such as oak-*, or a group, in a line each (default: the groups, with their names)",
)
@EDITION
def listed(pattern: str | None, edition: str | None) -> None:
    """List names, parents, and what is built."""
    edition = edition or zoo.default_edition()
    recipes, made = zoo.families(edition), zoo.status(edition)
    show(_groups(edition, recipes, made) if pattern is None else _models(pattern, edition, recipes, made))


def _models(pattern: str, edition: str, recipes: Mapping[str, Recipe], made: Mapping[str, Any]) -> Card:
    """Models of a pattern in a line each."""
    suffix = "" if edition == "default" else f"@{edition}"
    named = pattern.removeprefix("zoo:")
    names = fnmatch.filter(recipes, named) or [name for name, recipe in recipes.items() if recipe.collection == named]
    if not names:
        hint = nearest(named, [*recipes, *{recipe.collection for recipe in recipes.values()}])
        raise InputError(f"no zoo model is called {pattern or repr('')}{hint or '; provlab zoo list names all'}")
    built = sum(made[name] is not None for name in names)
    such = "" if len(names) == len(made) else f" that match {pattern}"
    rows = [
        (
            f"zoo:{name}{suffix}",
            recipe.parent or "-",
            recipe.kind,
            recipe.collection,
            str(recipe.own_steps),
            "no" if made[name] is None else "yes",
        )
        for name, recipe in ((name, recipes[name]) for name in names)
    ]
    return Card(
        f"{built} of {len(names)} models{such} of the edition {edition} are built.",
        body=[Table(("model", "parent", "kind", "group", "steps", "built"), rows, right=(4,))],
    )


def _groups(edition: str, recipes: Mapping[str, Recipe], made: Mapping[str, Any]) -> Card:
    """Groups of the zoo in a line each."""
    groups: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        groups.setdefault(recipe.collection, []).append(name)
    rows = [
        (group, str(len(names)), str(sum(made[name] is not None for name in names)), _first(names))
        for group, names in groups.items()
    ]
    built = sum(path is not None for path in made.values())
    return Card(
        f"{built} of {len(made)} models of the edition {edition} are built.",
        body=[Table(("group", "models", "built", "names, behind zoo:"), rows, right=(1, 2))],
        remarks=[("more", "provlab zoo list GROUP, or a pattern such as 'oak*', has each model's parent and steps")],
    )


def _first(names: Sequence[str]) -> str:
    """As many names as a line holds."""
    n = next(n for n in range(len(names), 0, -1) if n == 1 or len(", ".join(names[:n])) <= _SHOWN - len(", ..."))
    return ", ".join(names[:n]) + ", ..." * (n < len(names))


@command.command(cls=Command, goes_on=True)
@click.argument("names", nargs=-1, type=NAME, help="models to build, with their ancestors (default: all)")
@click.option("--jobs", type=int, metavar="N", help="processes, one core each (default: all cores)")
@EDITION
def build(names: tuple[str, ...], jobs: int | None, edition: str | None) -> None:
    """Train the models that are not built yet."""
    settings = options.without_defaults({"edition": edition or zoo.default_edition(), "jobs": jobs})
    for name, path in zoo.build(list(names) or None, **settings).items():
        print(f"{name}: {path}")
