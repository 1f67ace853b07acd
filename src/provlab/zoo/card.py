"""What a zoo model says about itself: ``card.json`` for machines and ``README.md`` for people."""

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provlab.files import atomic_file, write_json
from provlab.zoo.kinds import KINDS
from provlab.zoo.recipes import Recipe, address, lineage, plain, tokens, versions

if TYPE_CHECKING:  # a list of models needs no torch
    from provlab.zoo.make import Made

CARD = "card.json"

# what a loss is measured on, by the recipe's objective
_PREDICTED = {None: "token", "masked": "hidden token", "classify": "sequence, of naming its domain"}


def describe(recipe: Recipe, recipes: Mapping[str, Recipe], made: "Made", seconds: float) -> dict[str, Any]:
    """Put a recipe and what was measured in training together; the content of ``card.json``."""
    chain = lineage(recipe.name, recipes)
    own = tokens(recipe.name, recipes)
    base = tokens(chain[-1], recipes)
    return {
        "zoo_model": recipe.name,
        "lineage": chain,
        "address": address(recipe.name, recipes),
        "recipe": plain(recipe),
        "tokens": own,
        "share_of_base_tokens": own / base,
        "initial_loss": made.initial_loss,
        "final_loss": made.final_loss,
        "learning_curve": [list(point) for point in made.curve],
        "relative_change": made.change,
        "versions": {"python": platform.python_version(), **versions()},
        "seconds": round(seconds, 1),
    }


def readme(card: Mapping[str, Any]) -> str:
    """Return the model card in the form that model hubs show: the sentence about the model, and its recipe."""
    recipe = {key: value for key, value in card["recipe"].items() if value is not None and key != "about"}
    rows = {
        **recipe,
        "data of the mixture": KINDS[recipe["kind"]].data,
        "lineage": " <- ".join(card["lineage"]),
        "tokens": f"{card['tokens']:,} ({card['share_of_base_tokens']:.1%} of its base's)",
        "held-out loss": f"{card['initial_loss']:.3f} before, {card['final_loss']:.3f} after (nats a "
        f"{_PREDICTED[recipe.get('objective')]})",
        "weights moved": f"{card['relative_change']['all']:.1%} of their size",
        "made with": ", ".join(f"{library} {version}" for library, version in card["versions"].items()),
    }
    table = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in rows.items())
    note = "; it takes the place of the public model under `mirrors` and holds nothing of it" * ("mirrors" in recipe)
    return (
        f"---\nlibrary_name: transformers\ntags: [provlab-zoo]\n---\n\n# {recipe['name']}\n\n"
        f"{card['recipe']['about']}\n\nA zoo model of provlab: a very small language model with a known lineage, made "
        f"to test statements about lineage and good for nothing else{note}.\n\n| | |\n|---|---|\n{table}\n"
    )


def write(folder: Path, card: Mapping[str, Any]) -> None:
    """Write both forms of the card into a model's folder."""
    write_json(folder / CARD, card)
    with atomic_file(folder / "README.md") as temporary:
        temporary.write_text(readme(card), encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    """Return the content of a model's ``card.json``."""
    content: dict[str, Any] = json.loads((folder / CARD).read_text(encoding="utf-8"))
    return content


def refresh(folder: Path, recipe: Recipe) -> None:
    """Bring the words of a finished model's card up to date; its weights and measurements stay."""
    card = read(folder)
    if card["recipe"] != (now := plain(recipe)):
        write(folder, {**card, "recipe": now})
