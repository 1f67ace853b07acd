"""What ``zoo:`` stands for in a source (entry point ``provlab.schemes``): names, training, parents, a text."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from provlab import zoo
from provlab.errors import ParameterError, ProvlabError
from provlab.zoo.build import locate
from provlab.zoo.recipes import Recipe, named

__all__ = ["check", "expand", "locate", "names", "parent", "prepare", "recipe_of", "recipes_of", "text", "tree_order"]
__all__ += ["untrained"]


def expand(name: str) -> list[str]:
    """Return the names that ``*`` or ``*@edition`` stands for: the Llama tree, every model behind its parent."""
    every, at, edition = name.partition("@")
    if every != "*":
        return [name]
    recipes = zoo.families(edition or zoo.default_edition())
    return [f"{model}{at}{edition}" for model in tree_order(zoo.parents(zoo.collection(zoo.TREE, recipes)))]


def check(name: str) -> None:
    """Refuse a name that the zoo does not have; nothing is trained."""
    model, _, edition = name.partition("@")
    recipes = recipes_of(edition)
    if model != "*":
        named(model, recipes)


def names() -> list[str]:
    """All models of the default edition, or of the one in ``$PROVLAB_ZOO_EDITION``."""
    return list(recipes_of(""))


def prepare(models: Sequence[str]) -> None:
    """Train the models among these that are not there yet, on all cores; opened one by one they would use one."""
    by_edition: dict[str, list[str]] = {}
    for name, _, edition in (name.partition("@") for name in models):
        by_edition.setdefault(edition or zoo.default_edition(), []).append(name)
    for edition, models in by_edition.items():
        with suppress(ProvlabError):  # what cannot be made becomes a record with its reason when it is opened
            known = zoo.families(edition)
            zoo.build([model for model in models if model in known], edition=edition)


def untrained(name: str) -> str | None:
    """Say of a model that is not trained yet how it becomes so; None for one that is there."""
    model, _, edition = name.partition("@")
    cards = zoo.status(edition or zoo.default_edition())
    return f"is not trained yet; provlab zoo build {model} trains it" if cards.get(model, True) is None else None


def parent(name: str) -> tuple[str | None, str] | None:
    """Return a model's parent, None for a root, and what was done to it; None for a model that the zoo has not."""
    recipe, (_, at, edition) = recipe_of(f"zoo:{name}"), name.partition("@")
    if recipe is None:
        return None
    return (f"zoo:{recipe.parent}{at}{edition}" if recipe.parent else None), recipe.kind


def text() -> str:
    """Prose that no model of the zoo was trained on."""
    return zoo.held_out_text("prose")


def recipe_of(source: str) -> Recipe | None:
    """Recipe of a model of the zoo, or None for any other source."""
    scheme, _, rest = source.partition(":")
    name, _, edition = rest.partition("@")
    try:
        return recipes_of(edition).get(name) if scheme == "zoo" else None
    except ParameterError:  # an unknown edition: the model was refused when it was opened
        return None


def recipes_of(edition: str) -> dict[str, Recipe]:
    """Recipes of an edition, the default one if it is empty."""
    return zoo.families(edition or zoo.default_edition())


def tree_order(parents: Mapping[str, str | None]) -> list[str]:
    """Order models so that each tree stands together, every model behind its parent."""

    def below(parent: str | None) -> list[str]:
        return [m for child, of in parents.items() if of == parent for m in (child, *below(child))]

    return below(None)
