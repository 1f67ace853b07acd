"""What the page on the Llama tree looks up of its models: places in the published tree, and a long training."""

from dataclasses import dataclass

from provlab import zoo
from provlab.report.lineage import Lineage, published_parents
from provlab.zoo.scheme import recipe_of, recipes_of

LONG_TRAINED = "EleutherAI/llemma_7b"  # whose share of its base's tokens is published (Abstract)
LONG = 0.375  # share of its base's tokens that makes a training a long one


@dataclass(frozen=True)
class LongTraining:
    """A base, a descendant trained on for `LONG` of the base's tokens in one go, and a child of that one.

    Attributes
    ----------
    base, child, grandchild
        Sources of the study.
    share
        The share of the base's tokens; None for public models, whose share is only published.
    """

    base: str
    child: str
    grandchild: str
    share: float | None


def long_training(lineage: Lineage) -> LongTraining | None:
    """Find a long training in a study, that of the model in Llemma's place first; None if there is none."""
    stands_for = mirrors(lineage)
    for child in sorted(lineage.models, key=lambda source: stands_for.get(source) != LONG_TRAINED):
        share = _share_of_base(child)
        long = stands_for.get(child) == LONG_TRAINED if share is None else share >= LONG
        grandchild = next((m for m in lineage.models if lineage.parents.get(m) == child), None)
        base = lineage.root(child)
        if long and base in lineage.models and base != child and grandchild:
            return LongTraining(str(base), child, grandchild, share)
    return None


def mirrors(lineage: Lineage) -> dict[str, str]:
    """Public model in whose place each source stands: its mirror for a zoo model, itself for one of the tree."""
    recipes = {source: recipe_of(source) for source in lineage.models}
    hub_ids = {source: recipe.mirrors if recipe else source.partition("@")[0] for source, recipe in recipes.items()}
    return {source: str(hub_id) for source, hub_id in hub_ids.items() if hub_id in published_parents()}


def _share_of_base(source: str) -> float | None:
    """Tokens of a zoo model's own training over those of its base; None for any other source."""
    recipe = recipe_of(source)
    if recipe is None:
        return None
    recipes = recipes_of(source.partition("@")[2])
    base = zoo.lineage(recipe.name, recipes)[-1]
    return zoo.tokens(recipe.name, recipes) / zoo.tokens(base, recipes)
