"""Recipes of zoo models: data, checked when read, and addressed by everything that decides their weights.

The recipes live in ``families.yml``, which `provlab.zoo.reading` reads. A model's address is a hash over its recipe,
its parent's address, the corpus, the code that trains, and the versions of the libraries that do the arithmetic: a
model is trained again exactly when one of these changes. Words about it (``about``, ``mirrors``, ``family``,
``collection``, its name) do not count.
"""

import difflib
import functools
import importlib.metadata
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_type_hints

from provlab import schema
from provlab.errors import ParameterError, ZooError
from provlab.extras import command
from provlab.files import digest
from provlab.zoo import corpus
from provlab.zoo.codehash import module_digests
from provlab.zoo.kinds import ARCHITECTURES, KINDS, OBJECTIVES, PRUNED_BY

SCHEDULES = ("cosine", "linear")

_ARITHMETIC = ("torch", "transformers", "tokenizers", "peft")
_WORDS = ("name", "family", "collection", "parent", "mirrors", "about")
TREE = "tree"  # the collection that ``zoo:*`` means


T = TypeVar("T")


@dataclass(frozen=True)
class Shape:
    """Sizes of a model that starts from random weights, in the names of `transformers.LlamaConfig`."""

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
class Graft:
    """A hybrid: the blocks that attend (others convolve), and what each taken tensor began as in the parent."""

    attention_blocks: list[int]
    taken: dict[str, str]


@dataclass(frozen=True)
class Pruning:
    """The kept part of the parent: which blocks, how much of each width (None for all), see `provlab.zoo.prune`.

    Units and heads are the most important ones `by` "activations", or drawn `by` "seed".
    """

    by: str
    keep_blocks: list[int] | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    num_attention_heads: int | None = None


# Fields of a recipe that are mappings, each with its own dataclass.
_NESTED = {"shape": Shape, "adapter": Adapter, "quantiser": Quantiser, "graft": Graft, "pruning": Pruning}


@dataclass(frozen=True)
class Recipe:
    """How one zoo model is made.

    Attributes
    ----------
    name, family, parent
        The model's own name, that of its family, and the model it starts from (None for a base).
    kind
        One of `KINDS`: trained from random initialisation, continued on another domain, tuned, tuned through a
        merged adapter, stored in few bits and read back, ...
    mirrors, about
        The hub id whose place among the published models it takes (None where there is none), and a sentence
        for its card.
    seed
        Decides initialisation and, unless `order_seed` does, order of data; two bases that differ only here are
        independent.
    mixture
        Share of each domain in the training batches, and in the data on which the loss is measured.
    steps, batch, learning_rate, schedule, warmup, weight_decay
        Optimisation: steps of `batch` sequences of the model's context length; `warmup` is a share of them.
        A quantised model has no steps.
    collection
        The experiment's models that it is one of; `TREE` is the published tree.
    shape
        Sizes, for bases and reruns; a derived model has its parent's.
    adapter
        For kind "adapter".
    quantiser
        For kind "quantised".
    graft
        For kind "hybrid".
    pruning
        For kind "pruned".
    architecture
        One of `ARCHITECTURES`; None is a Llama. A derived model has its parent's.
    objective
        One of `OBJECTIVES`; None is the next token.
    order_seed
        Decides the order of data in place of `seed`.
    stop_after
        Ends the training after so many of its `steps`: a snapshot of the run, under the run's own schedule.
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
    graft: Graft | None = None
    pruning: Pruning | None = None
    collection: str = TREE
    architecture: str | None = None
    objective: str | None = None
    order_seed: int | None = None
    stop_after: int | None = None

    @property
    def own_steps(self) -> int:
        """Steps that the model's own training takes."""
        return self.steps if self.stop_after is None else self.stop_after


# Reading --------------------------------------------------------------------------------------------------


def _fill(cls: type[T], what: str, fields: Mapping[str, Any]) -> T:
    """Make a dataclass from a mapping; every unknown, missing or ill-typed key is refused by name."""
    schema.check_keys(
        what, fields, get_type_hints(cls), [name for name in get_type_hints(cls) if not hasattr(cls, name)]
    )
    return cls(**fields)


def parse(fields: Mapping[str, Any]) -> Recipe:
    """Make a recipe from plain data (what `plain` gives), checking every field.

    Raises
    ------
    ParameterError
        If a key is unknown, missing or of the wrong type, or a value is out of range.
    """
    what = f"zoo recipe {fields.get('name', '?')!r}"
    nested = dict(fields)
    if (kind := nested.get("kind")) not in list(KINDS):
        raise ParameterError(f"{what}: kind must be one of {', '.join(KINDS)}, not {kind!r}")
    for key, cls in _NESTED.items():
        if nested.get(key) is not None:
            nested[key] = _fill(cls, f"{what}: {key}", nested[key])
    recipe = _fill(Recipe, what, nested)
    checks = _checks(recipe)
    for holds, message in checks:
        if not holds:
            raise ParameterError(f"{what}: {message}")
    return recipe


def _checks(recipe: Recipe) -> list[tuple[bool, str]]:
    """List what must hold of a recipe whose fields have the right types, each with what to say if it does not."""
    name, kind = recipe.kind, KINDS[recipe.kind]
    strange = [domain for domain in recipe.mixture if domain not in kind.domains]
    stop = recipe.stop_after
    return [
        (recipe.schedule in SCHEDULES, f"schedule must be {' or '.join(SCHEDULES)}, not {recipe.schedule!r}"),
        ((recipe.parent is not None) == kind.parent, f"kind {name} has {'a' if kind.parent else 'no'} parent"),
        ((recipe.shape is not None) == kind.shape, f"kind {name} has {'a' if kind.shape else 'no'} shape"),
        *(
            ((getattr(recipe, own) is not None) == (known is kind), f"kind {other}, and only it, has the key {own}")
            for other, known in KINDS.items()
            if (own := known.settings) is not None
        ),
        (kind.trained or recipe.steps == 0, f"a {name} model is not trained: steps must be 0"),
        (not kind.trained or recipe.steps > 0, "steps and batch must be positive"),
        (recipe.batch > 0, "steps and batch must be positive"),
        (
            stop is None or 0 < stop <= recipe.steps,
            f"stop_after must be from 1 to the {recipe.steps} steps, not {stop}",
        ),
        (
            stop is None or (recipe.adapter is None and kind.corpus),
            "stop_after is for models whose own weights are trained in place",
        ),
        (recipe.learning_rate > 0, "learning_rate must be positive"),
        (0 <= recipe.warmup < 1, "warmup must be a share of the steps, from 0 to below 1"),
        (min(recipe.mixture.values(), default=0) > 0, "mixture must give positive shares of at least one domain"),
        (not strange, f"unknown domain {''.join(strange[:1])!r}; kind {name} knows {', '.join(kind.domains)}"),
        *(
            (value is None or value in known, f"{field} must be one of {', '.join(known)}, not {value!r}")
            for field, value, known in (
                ("architecture", recipe.architecture, ARCHITECTURES),
                ("objective", recipe.objective, OBJECTIVES),
                ("pruning: by", recipe.pruning and recipe.pruning.by, PRUNED_BY),
            )
        ),
    ]


def plain(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain data, for a card or another process; `parse` reads it back."""
    return asdict(recipe)


def collection(name: str, recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Keep the recipes of one collection, in their order.

    Raises
    ------
    ZooError
        If no recipe is of that collection.
    """
    if members := {member: recipe for member, recipe in recipes.items() if recipe.collection == name}:
        return members
    known = dict.fromkeys(recipe.collection for recipe in recipes.values())
    raise ZooError(f"the zoo has no collection {name!r}; it has {', '.join(known)}")


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


def tokens(name: str, recipes: Mapping[str, Recipe]) -> int:
    """Count the tokens that the model's own training sees (its ancestors' are not counted)."""
    shape = recipes[lineage(name, recipes)[-1]].shape
    assert shape is not None  # `parse` gives every base its shape
    return recipes[name].own_steps * recipes[name].batch * shape.max_position_embeddings


# Addresses ------------------------------------------------------------------------------------------------


@functools.lru_cache
def _ground(code: tuple[str, ...], reads_corpus: bool) -> dict[str, Any]:
    return {
        **({"corpus": corpus.fingerprint()} if reads_corpus else {}),
        "code": module_digests(*code),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the libraries that decide the weights, without local tags such as ``+cpu``."""
    try:
        return {name: importlib.metadata.version(name).split("+")[0] for name in _ARITHMETIC}
    except importlib.metadata.PackageNotFoundError as error:
        raise ZooError(
            f"models of the zoo are made with {error.name}, which is not installed; {command('peft')}"
        ) from error


def address(name: str, recipes: Mapping[str, Recipe]) -> str:
    """Hash of all that decides a model's weights: its recipe and its ancestors', corpus, code, versions."""
    below = None
    for ancestor in reversed(lineage(name, recipes)):
        recipe = {
            key: value for key, value in plain(recipes[ancestor]).items() if key not in _WORDS and value is not None
        }
        kind = KINDS[recipes[ancestor].kind]
        ground = _ground(kind.code, kind.corpus)
        below = digest({"recipe": recipe, "parent": below, "ground": ground})
    assert below is not None
    return below
