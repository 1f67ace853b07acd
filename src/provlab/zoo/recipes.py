"""Recipes of zoo models: data, checked when read, and addressed by everything that decides their weights.

The recipes live in ``families.yml``. A model's address is a hash over its recipe, its parent's address, the
corpus, the code that trains, and the versions of the libraries that do the arithmetic: a model is trained
again exactly when one of these changes. Words about it (``about``, ``mirrors``, ``family``, ``collection``, its
name) do not count.
"""

import difflib
import functools
import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from provlab.errors import ParameterError, ZooError
from provlab.files import digest
from provlab.zoo import corpus
from provlab.zoo.codehash import module_digests

# Kinds of models, and the modules whose code decides the weights of a model of that kind.
KINDS = {
    "base": ("corpus", "train"),
    "continued": ("corpus", "train"),
    "tuned": ("corpus", "train"),
    "adapter": ("corpus", "train", "derive"),
    "quantised": ("quantise",),
}
SCHEDULES = ("cosine", "linear")
FAMILIES = Path(__file__).with_name("families.yml")
EDITION_VARIABLE = "PROVLAB_ZOO_EDITION"

_ARITHMETIC = ("torch", "transformers", "tokenizers", "peft")
_WORDS = ("name", "family", "collection", "parent", "mirrors", "about")
_ONLY_IF_SET = ("quantiser",)  # fields younger than the models: without one, a model keeps the address it had
TREE = "tree"  # the collection that ``zoo:*`` means


T = TypeVar("T")


@dataclass(frozen=True)
class Shape:
    """Architecture of a base, in the names of `transformers.LlamaConfig`."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int


@dataclass(frozen=True)
class Adapter:
    """A low-rank adapter that is trained in place of the weights and then merged into them."""

    rank: int
    alpha: int
    targets: list[str]


@dataclass(frozen=True)
class Quantiser:
    """How a model's matrices are stored and read back, see `provlab.zoo.quantise`: weights in `bits`, by blocks."""

    bits: int
    block: int


@dataclass(frozen=True)
class Recipe:
    """How one zoo model is made.

    Attributes
    ----------
    name, family, parent
        The model's own name, that of its family, and the model it starts from (None for a base).
    kind
        One of `KINDS`: trained from random initialisation, continued on another domain, tuned, tuned through a
        merged adapter, or stored in few bits and read back.
    mirrors, about
        The hub id whose place among the published models it takes (None where there is none), and a sentence
        for its card.
    seed
        Decides initialisation and order of data; two bases that differ only here are independent.
    mixture
        Share of each text domain in the training batches, and in the text on which the loss is measured.
    steps, batch, learning_rate, schedule, warmup, weight_decay
        Optimisation: steps of `batch` sequences of the model's context length; `warmup` is a share of them.
        A quantised model has no steps.
    collection
        The experiment's models that it is one of; `TREE` is the published tree.
    shape
        Architecture, for bases; a derived model has its parent's.
    adapter
        For kind "adapter".
    quantiser
        For kind "quantised".
    """

    name: str
    family: str
    parent: str | None
    kind: str
    mirrors: str | None
    about: str
    seed: int
    mixture: dict[str, float]
    steps: int
    batch: int
    learning_rate: float
    schedule: str
    warmup: float
    weight_decay: float
    shape: Shape | None = None
    adapter: Adapter | None = None
    quantiser: Quantiser | None = None
    collection: str = TREE


# Reading --------------------------------------------------------------------------------------------------


def _fits(value: object, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, list | dict) and get_args(kind):
        members = value.values() if isinstance(value, dict) else value
        return isinstance(value, get_origin(kind)) and all(_fits(one, get_args(kind)[-1]) for one in members)
    return isinstance(value, get_origin(kind) or kind)


def _word(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _fill(cls: type[T], what: str, given: object) -> T:
    """Make a dataclass from a mapping; every unknown, missing or ill-typed key is refused by name."""
    hints = get_type_hints(cls)
    if not isinstance(given, Mapping):
        raise ParameterError(f"{what} must be a mapping of {', '.join(hints)}, not {given!r}")
    if unknown := sorted(set(given) - set(hints)):
        raise ParameterError(f"{what} has the unknown key {unknown[0]!r}; known: {', '.join(hints)}")
    for key, value in given.items():
        if not _fits(value, hints[key]):
            raise ParameterError(f"{what}: {key} must be {_word(hints[key])}, not {value!r}")
    try:
        return cls(**given)
    except TypeError:
        missing = [name for name in hints if name not in given and not hasattr(cls, name)]
        raise ParameterError(f"{what} lacks {', '.join(missing)}") from None


def parse(given: Mapping[str, Any]) -> Recipe:
    """Make a recipe from plain data (what `plain` gives), checking every field.

    Raises
    ------
    ParameterError
        If a key is unknown, missing or of the wrong type, or a value is out of range.
    """
    what = f"zoo recipe {given.get('name', '?')!r}"
    nested = dict(given)
    if (kind := nested.get("kind")) not in list(KINDS):
        raise ParameterError(f"{what}: kind must be one of {', '.join(KINDS)}, not {kind!r}")
    for key, cls in (("shape", Shape), ("adapter", Adapter), ("quantiser", Quantiser)):
        if nested.get(key) is not None:
            nested[key] = _fill(cls, f"{what}: {key}", nested[key])
    recipe = _fill(Recipe, what, nested)
    shares = recipe.mixture.values()
    checks = [
        (recipe.schedule in SCHEDULES, f"schedule must be {' or '.join(SCHEDULES)}, not {recipe.schedule!r}"),
        ((kind == "base") == (recipe.parent is None), "a base, and only a base, has no parent"),
        ((kind == "base") == (recipe.shape is not None), "a base, and only a base, has a shape"),
        ((kind == "adapter") == (recipe.adapter is not None), "kind adapter, and only it, has an adapter"),
        ((kind == "quantised") == (recipe.quantiser is not None), "kind quantised, and only it, has a quantiser"),
        (kind != "quantised" or recipe.steps == 0, "a quantised model is not trained: steps must be 0"),
        (kind == "quantised" or recipe.steps > 0, "steps and batch must be positive"),
        (recipe.batch > 0, "steps and batch must be positive"),
        (recipe.learning_rate > 0, "learning_rate must be positive"),
        (0 <= recipe.warmup < 1, "warmup must be a share of the steps, from 0 to below 1"),
        (min(shares, default=0) > 0, "mixture must give positive shares of at least one domain"),
    ]
    for holds, message in checks:
        if not holds:
            raise ParameterError(f"{what}: {message}")
    for domain in recipe.mixture:
        if domain not in corpus.DOMAINS:
            raise ParameterError(f"{what}: unknown text domain {domain!r}; known: {', '.join(corpus.DOMAINS)}")
    return recipe


def plain(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain data, for a card or another process; `parse` reads it back."""
    return asdict(recipe)


def families(edition: str = "default", path: Path = FAMILIES) -> dict[str, Recipe]:
    """Read the recipes of an edition, in the order of the file, parents before children.

    Parameters
    ----------
    edition
        A named size of the same zoo: its `step_scale` multiplies all training steps.
    path
        A YAML file with `editions`, `defaults` (of all, and of each kind), and `models`.

    Raises
    ------
    ParameterError
        If the edition is unknown, or a recipe has an unknown, missing or ill-typed key.
    ZooError
        If a parent is missing, or the parents make a circle.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for part in ("editions", "defaults", "models"):
        if not isinstance(content, dict) or not isinstance(content.get(part), dict):
            raise ParameterError(f"{path} must have the mappings editions, defaults and models; {part} is missing")
    if edition not in content["editions"]:
        raise ParameterError(f"unknown zoo edition {edition!r}; known: {', '.join(content['editions'])}")
    scale = content["editions"][edition]["step_scale"]
    recipes = {}
    for name, given in content["models"].items():
        given = given if isinstance(given, dict) else {}
        defaults = {**content["defaults"].get("all", {}), **content["defaults"].get(str(given.get("kind")), {})}
        recipe = parse({"name": name, "parent": None, **defaults, **given})
        recipes[name] = replace(recipe, steps=max(min(1, recipe.steps), round(recipe.steps * scale)))
    return in_order(recipes)


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
        ordered.update({one: recipes[one] for one in reversed(chain) if one not in ordered})
    return ordered


def collection(name: str, recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Keep the recipes of one collection, in their order.

    Raises
    ------
    ZooError
        If no recipe is of that collection.
    """
    if found := {one: recipe for one, recipe in recipes.items() if recipe.collection == name}:
        return found
    known = dict.fromkeys(recipe.collection for recipe in recipes.values())
    raise ZooError(f"the zoo has no collection {name!r}; it has {', '.join(known)}")


def default_edition() -> str:
    """Return the edition that a bare name means: ``$PROVLAB_ZOO_EDITION``, else "default"."""
    return os.environ.get(EDITION_VARIABLE) or "default"


def named(name: str, recipes: Mapping[str, Recipe]) -> Recipe:
    """Return the recipe called `name`; an unknown name is refused with its nearest neighbours."""
    if name in recipes:
        return recipes[name]
    near = difflib.get_close_matches(name, recipes, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ZooError(f"there is no zoo model {name!r}; {hint}`provlab zoo list` names all {len(recipes)}")


# Lineage --------------------------------------------------------------------------------------------------


def lineage(name: str, recipes: Mapping[str, Recipe]) -> list[str]:
    """Return the model and its ancestors, the root last."""
    chain = [name]
    while (parent := recipes[chain[-1]].parent) is not None:
        chain.append(parent)
    return chain


def parents(recipes: Mapping[str, Recipe]) -> dict[str, str | None]:
    """Return each model's parent, None for a base."""
    return {name: recipe.parent for name, recipe in recipes.items()}


def roots(recipes: Mapping[str, Recipe]) -> dict[str, str]:
    """Return the base that each model descends from (a base from itself)."""
    return {name: lineage(name, recipes)[-1] for name in recipes}


def dependent(first: str, second: str, recipes: Mapping[str, Recipe]) -> bool:
    """Whether two models descend from one base: the truth that the statistics are judged by."""
    return lineage(first, recipes)[-1] == lineage(second, recipes)[-1]


def tokens(name: str, recipes: Mapping[str, Recipe]) -> int:
    """Count the tokens that the model's own training sees (its ancestors' are not counted)."""
    shape = recipes[lineage(name, recipes)[-1]].shape
    assert shape is not None  # `parse` gives every base its shape
    return recipes[name].steps * recipes[name].batch * shape.max_position_embeddings


# Addresses ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=len(KINDS))
def _ground(kind: str) -> dict[str, Any]:
    return {
        "corpus": corpus.fingerprint(),
        "code": module_digests(*KINDS[kind]),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the libraries that decide the weights, without local tags such as ``+cpu``."""
    return {name: importlib.metadata.version(name).split("+")[0] for name in _ARITHMETIC}


def address(name: str, recipes: Mapping[str, Recipe]) -> str:
    """Hash of all that decides a model's weights: its recipe and its ancestors', corpus, code, versions."""
    below = None
    for one in reversed(lineage(name, recipes)):
        recipe = {
            key: value
            for key, value in plain(recipes[one]).items()
            if key not in _WORDS and not (key in _ONLY_IF_SET and value is None)
        }
        below = digest({"recipe": recipe, "parent": below, "ground": _ground(recipes[one].kind)})
    assert below is not None
    return below
