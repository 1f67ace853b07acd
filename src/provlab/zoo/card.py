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
    since = sum(tokens(name, recipes) for name in chain[:-1])
    return {
        "zoo_model": recipe.name,
        "lineage": chain,
        "address": address(recipe.name, recipes),
        "recipe": plain(recipe),
        "tokens": own,
        "share_of_base_tokens": own / base,
        "share_of_base_tokens_since_base": since / base,
        "initial_loss": made.initial_loss,
        "final_loss": made.final_loss,
        "learning_curve": [list(point) for point in made.curve],
        "relative_change": made.change,
        "versions": {"python": platform.python_version(), **versions()},
        "seconds": round(seconds, 1),
    }


def readme(card: Mapping[str, Any]) -> str:
    """Return the model card in the form that model hubs show."""
    recipe = card["recipe"]
    name, parent = recipe["name"], recipe["parent"]
    mixture = ", ".join(f"{share:.0%} {domain}" for domain, share in recipe["mixture"].items())
    start = f"the weights of `{parent}`" if parent else "random initialisation"
    if recipe["kind"] == "rerun":
        start = f"the random initialisation that `{parent}` started from"
    steps = f"{recipe['steps']:,} steps"
    if (stop := recipe.get("stop_after")) is not None:
        steps = f"stopped after {stop:,} of {steps}"
    order = recipe.get("order_seed")
    seeds = f"seed {recipe['seed']}" + (f", order of data by seed {order}" if order is not None else "")
    rows = {
        "Kind": recipe["kind"],
        "Starts from": start,
        "Lineage": " <- ".join(f"`{one}`" for one in card["lineage"]),
        "Data": f"{mixture} ({KINDS[recipe['kind']].data})",
        "Training": f"{steps} of {recipe['batch']} sequences, {card['tokens']:,} tokens",
        "Optimiser": f"AdamW, {recipe['schedule']} from {recipe['learning_rate']:g}, {seeds}",
        "Held-out loss": f"{card['initial_loss']:.3f} before, {card['final_loss']:.3f} after (nats a "
        f"{_PREDICTED[recipe.get('objective')]})",
        "Weights moved": f"{card['relative_change']['all']:.1%} of their size",
        "Made with": ", ".join(f"{library} {version}" for library, version in card["versions"].items()),
    }
    if parent:
        rows["Share of the base's tokens"] = (
            f"{card['share_of_base_tokens']:.1%} in this training, "
            f"{card['share_of_base_tokens_since_base']:.1%} since the base"
        )
    if architecture := recipe.get("architecture"):
        rows["Architecture"] = architecture
    if quantiser := recipe["quantiser"]:
        for key in ("Data", "Training", "Optimiser", "Share of the base's tokens"):
            del rows[key]
        rows["Stored in"] = f"{quantiser['bits']} bits by blocks of {quantiser['block']} weights, and read back"
    if adapter := recipe["adapter"]:
        targets = ", ".join(adapter["targets"])
        rows["Adapter"] = f"rank {adapter['rank']}, alpha {adapter['alpha']:g}, on {targets}; merged"
    if pruning := recipe.get("pruning"):
        blocks = pruning["keep_blocks"]
        kept = [f"blocks {', '.join(map(str, blocks))}" if blocks else "all blocks"]
        for key, unit in (
            ("hidden_size", "dimensions"),
            ("intermediate_size", "hidden units of each MLP"),
            ("num_attention_heads", "heads of each block"),
        ):
            kept += [f"{pruning[key]} {unit}"] if pruning[key] else []
        rows["Kept of its parent"] = f"{'; '.join(kept)}; units by {pruning['by']}, listed in config.json"
    place = ""
    if mirrors := recipe["mirrors"]:
        place = f" Among the published models it takes the place of `{mirrors}`, and holds nothing of that model."
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return (
        f"---\nlibrary_name: transformers\ntags: [provlab-zoo]\n---\n\n# {name}\n\n{recipe['about']}\n\n"
        "A zoo model of provlab: a very small language model with a known lineage, made to test statements "
        f"about lineage and good for nothing else.{place}\n\n"
        f"| | |\n|---|---|\n{table}\n"
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
