"""``provlab zoo list | build``: the embedded models of known lineage."""

import argparse
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from provlab import zoo
from provlab.cli.arguments import Parser
from provlab.cli.completion import completed
from provlab.errors import InputError, nearest
from provlab.report.card import Card
from provlab.zoo import scheme
from provlab.zoo.recipes import Recipe

_SHOWN = 48  # characters of the names in a group: one line of a terminal of 80 columns


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    actions = parser.add_subparsers(required=True, metavar="action", parser_class=Parser)
    listing = actions.add_parser("list", help="list names, parents, and what is built")
    what = "names such as oak-*, or a group, in a line each (default: the groups, with their names)"
    pattern = listing.add_argument("pattern", nargs="?", help=what)
    building = actions.add_parser("build", help="train the models that are not built yet")
    names = building.add_argument("names", nargs="*", help="models to build, with their ancestors (default: all)")
    building.add_argument("--jobs", type=int, default=None, help="processes, one core each (default: all cores)")
    for parser in (listing, building):
        parser.add_argument(
            "--edition", default=None, help="default or smoke (default: $PROVLAB_ZOO_EDITION or default)"
        )
    for action in (pattern, names):
        completed(action, lambda *_: _names())
    listing.set_defaults(command=_list)
    building.set_defaults(command=_build, goes_on=True)


def _names() -> list[str]:
    return scheme.names()


def _list(arguments: argparse.Namespace) -> int:
    from provlab.cli.screen import show
    from provlab.report.views import Table

    edition = arguments.edition or zoo.default_edition()
    recipes, made = zoo.families(edition), zoo.status(edition)
    suffix = "" if edition == "default" else f"@{edition}"
    if arguments.pattern is None:
        show(_groups(edition, recipes, made))
        return 0
    named = arguments.pattern.removeprefix("zoo:")
    names = fnmatch.filter(recipes, named) or [name for name, recipe in recipes.items() if recipe.collection == named]
    if not names:
        hint = nearest(named, [*recipes, *{recipe.collection for recipe in recipes.values()}])
        pattern = arguments.pattern or "''"
        raise InputError(f"no zoo model is called {pattern}{hint or '; provlab zoo list names all'}")
    built = sum(made[name] is not None for name in names)
    such = "" if len(names) == len(made) else f" that match {arguments.pattern}"
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
    table = Table(("model", "parent", "kind", "group", "steps", "built"), rows, right=(4,))
    answer = f"{built} of {len(names)} models{such} of the edition {edition} are built"
    show(Card(f"{answer}.", body=[table]))
    return 0


def _groups(edition: str, recipes: Mapping[str, Recipe], made: Mapping[str, Any]) -> Card:
    """Groups of the zoo in a line each."""
    from provlab.report.views import Table

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


def _build(arguments: argparse.Namespace) -> int:
    edition = arguments.edition or zoo.default_edition()
    jobs = {} if arguments.jobs is None else {"jobs": arguments.jobs}
    built = zoo.build(arguments.names or None, edition=edition, **jobs)
    for name, path in built.items():
        print(f"{name}: {path}")
    return 0
