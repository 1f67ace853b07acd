"""From a recipe and its parent's folder to a trained model, measured before and after, and refused if it is no good.

Nothing here decides a model's weights (the modules that `provlab.zoo.kinds.KINDS` names do), so this module is not part
of a model's address.
"""

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from provlab.errors import ZooError
from provlab.zoo.kinds import KINDS, Curve, OnStep
from provlab.zoo.recipes import Recipe

# A base whose held-out loss stays above this share of the loss at initialisation learned nothing.
LEARNED = 0.9
# Relative change of all weights below which a "derived" model is a copy.
MOVED = 1e-4


@dataclass(frozen=True)
class Made:
    """A trained model and what was measured on the way.

    Attributes
    ----------
    model
        Plain transformers model, adapters merged.
    initial_loss, final_loss
        Held-out loss (nats a prediction) on the recipe's own mixture before and after, on the same batches.
        "Before" is the loss at initialisation of a base, and of a derived model that of what it took from its parent.
    curve
        Learning curve: steps done, mean training loss since the point before.
    change
        Relative change of the weights against the parent, ||new - old|| / ||old||, of all and by kind of
        tensor; against the initialisation for a base.
    """

    model: PreTrainedModel
    initial_loss: float
    final_loss: float
    curve: Curve
    change: dict[str, float]


def relative_change(old: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return ||new - old|| / ||old|| of all tensors ("all") and of those of each kind ("up_proj", ...).

    A kind that was zero throughout, as biases are at initialisation, has no relative change and is left out.
    """
    squares: dict[str, list[float]] = {}
    for name, before in old.items():
        kind = name.removesuffix(".weight").split(".")[-1]
        moved = (new[name].double() - before.double()).square().sum().item()
        size = before.double().square().sum().item()
        for key in ("all", kind):
            sums = squares.setdefault(key, [0.0, 0.0])
            sums[0] += moved
            sums[1] += size
    return {key: math.sqrt(moved / size) for key, (moved, size) in squares.items() if size > 0}


def make(recipe: Recipe, parent: Path | None, on_step: OnStep) -> Made:
    """Make one model.

    Parameters
    ----------
    recipe
        How it is made.
    parent
        Folder of the parent's checkpoint; None for a base.
    on_step
        Called after each step with the steps done.

    Raises
    ------
    ZooError
        If a base learned nothing, a derived model did not move, or a loss is not finite.
    """
    maker = importlib.import_module(f"provlab.zoo.{KINDS[recipe.kind].maker}")
    model = maker.start(recipe, parent)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    initial = maker.held_out_loss(model, recipe)
    trained, curve = maker.train(model, recipe, on_step)
    change = relative_change(before, trained.state_dict())
    made = Made(trained, initial, maker.held_out_loss(trained, recipe), curve, change)
    _refuse_failures(made, recipe)
    return made


def _refuse_failures(made: Made, recipe: Recipe) -> None:
    initial, final, moved = made.initial_loss, made.final_loss, made.change["all"]
    if not all(map(math.isfinite, (final, *made.change.values()))):
        raise ZooError(f"zoo model {recipe.name!r} went to NaN or Inf in training; lower its learning_rate")
    if recipe.parent is None and recipe.stop_after is None and final > LEARNED * initial:  # a snapshot may be early
        raise ZooError(
            f"zoo base {recipe.name!r} learned nothing: held-out loss {initial:.3f} at initialisation, "
            f"{final:.3f} after training; give it more steps or another learning_rate"
        )
    if recipe.parent is not None and moved < MOVED:
        raise ZooError(
            f"zoo model {recipe.name!r} is a copy of {recipe.parent!r}: its weights moved by {moved:.1e} of "
            "their size; give it more steps or a higher learning_rate"
        )
