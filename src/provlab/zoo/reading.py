"""The zoo of an edition, read from ``families.yml``: series written out, steps scaled, parents before children."""

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from provlab import provenance
from provlab.errors import ParameterError, ZooError
from provlab.schema import fits
from provlab.zoo.recipes import Recipe, parse

FAMILIES = Path(__file__).with_name("families.yml")
EDITION_VARIABLE = "PROVLAB_ZOO_EDITION"
_LONGEST_SERIES = 99


def default_edition() -> str:
    """Return the edition that a bare name means: ``$PROVLAB_ZOO_EDITION``, else "default"."""
    return os.environ.get(EDITION_VARIABLE) or "default"


def families(edition: str = "default", path: Path = FAMILIES) -> dict[str, Recipe]:
    """Read the recipes of an edition in the current draw, in the order of the file, parents before children.

    Parameters
    ----------
    edition
        A named size of the same zoo: its `step_scale` multiplies all training steps.
    path
        A YAML file with `editions`, `defaults` (of all, and of each kind), and `models`. An entry of the models with
        a `count` is a series, see `_series`.

    Raises
    ------
    ParameterError
        If the edition or the draw is none, or a recipe has an unknown, missing or ill-typed key.
    ZooError
        If a parent is missing, or the parents make a circle.
    """
    return dict(_read(edition, provenance.draw(), path, path.stat().st_mtime_ns))


@functools.cache  # each model that is opened by its name asks for all recipes
def _read(edition: str, draw: int, path: Path, _changed: int) -> Mapping[str, Recipe]:
    """Read a file that has not changed since."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for part in ("editions", "defaults", "models"):
        if not isinstance(content, dict) or not isinstance(content.get(part), dict):
            raise ParameterError(f"{path} must have the mappings editions, defaults and models; {part} is missing")
    if edition not in content["editions"]:
        raise ParameterError(f"unknown zoo edition {edition!r}; known: {', '.join(content['editions'])}")
    scale = content["editions"][edition]["step_scale"]
    recipes = {}
    for entry, fields in content["models"].items():
        fields = fields if isinstance(fields, dict) else {}
        defaults = {**content["defaults"].get("all", {}), **content["defaults"].get(str(fields.get("kind")), {})}
        for name, recipe in _series(entry, {"parent": None, **defaults, **fields}, edition):
            recipes[name] = _drawn(_scaled(parse({"name": name, **recipe}), scale), draw)
    return _with_architectures(in_order(recipes))


def _series(entry: str, fields: Mapping[str, Any], edition: str) -> list[tuple[str, dict[str, Any]]]:
    """Write out an entry with a `count`: models entry-01, entry-02, ... that differ in their seeds alone.

    `seed` and `order_seed` rise by one from model to model, and ``{n}`` in the parent is the model's own number. A
    count for each edition is a mapping, in which "default" stands for editions that it does not name: a smaller edition
    has the first models of a larger one.
    """
    if "count" not in fields:
        return [(entry, dict(fields))]
    count = fields["count"]
    if isinstance(count, Mapping):
        count = count.get(edition, count.get("default"))
    if not fits(count, int) or not 1 <= count <= _LONGEST_SERIES:
        raise ParameterError(
            f"zoo recipe {entry!r}: count must be a whole number from 1 to {_LONGEST_SERIES}, not {count!r}"
        )
    made = []
    for i in range(count):
        member = {key: value for key, value in fields.items() if key != "count"}
        for key in ("seed", "order_seed"):
            if fits(member.get(key), int):
                member[key] += i
        if isinstance(member["parent"], str):
            member["parent"] = member["parent"].replace("{n}", f"{i + 1:02d}")
        made.append((f"{entry}-{i + 1:02d}", member))
    return made


def _scaled(recipe: Recipe, scale: float) -> Recipe:
    """Multiply all steps, none of them down to nothing; toys of digits learn nothing at all in fewer than 120."""
    least = min(120 if recipe.kind == "digits" else 1, recipe.steps)
    steps = max(least, round(recipe.steps * scale))
    stop = recipe.stop_after and max(1, round(recipe.stop_after * scale))
    return replace(recipe, steps=steps, stop_after=stop)


def _drawn(recipe: Recipe, draw: int) -> Recipe:
    """Move the seeds of a recipe to those of a draw."""
    order = recipe.order_seed
    further = draw * provenance.BETWEEN_DRAWS
    return replace(recipe, seed=recipe.seed + further, order_seed=order if order is None else order + further)


def _with_architectures(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Give derived models that name no architecture their parent's; parents stand before children."""
    full: dict[str, Recipe] = {}
    for name, recipe in recipes.items():
        parent = full[recipe.parent] if recipe.parent is not None else None
        architecture = recipe.architecture or (parent.architecture if parent else None)
        full[name] = recipe = replace(recipe, architecture=architecture)
        began = [(model.architecture, model.shape, model.seed) for model in (recipe, parent) if model]
        if recipe.kind == "rerun" and (began[0] != began[1] or recipe.order_seed is None):
            raise ZooError(
                f"zoo recipe {name!r}: a rerun has the architecture, the shape and the seed of its parent "
                f"{recipe.parent!r}, and an order_seed of its own"
            )
    return full


def in_order(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Keep the order given, which is that of the tree, but put each model after its parent.

    Raises
    ------
    ZooError
        If a parent is missing, or a model descends from itself.
    """
    ordered: dict[str, Recipe] = {}
    for name in recipes:
        chain = [name]
        while (parent := recipes[chain[-1]].parent) is not None:
            if parent not in recipes:
                raise ZooError(f"zoo recipe {chain[-1]!r}: its parent {parent!r} is not in the zoo")
            chain.append(parent)
            if parent in chain[:-1]:
                raise ZooError(f"zoo recipes descend from themselves: {' <- '.join(chain)}")
        ordered.update({model: recipes[model] for model in reversed(chain) if model not in ordered})
    return ordered
