"""From a recipe and its parent's folder to a trained model, measured before and after, and refused if it is no good.

Nothing here decides a model's weights (`provlab.zoo.train`, `provlab.zoo.derive` and `provlab.zoo.quantise` do), so
this module is not part of a model's address.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from provlab.errors import ZooError
from provlab.zoo.quantise import quantised
from provlab.zoo.recipes import Quantiser, Recipe
from provlab.zoo.train import Mixture, OnStep, initialise, load, next_token_loss, train

# A base whose held-out loss stays above this share of the loss at initialisation learned nothing.
LEARNED = 0.9
# Relative change of all weights below which a "derived" model is a copy.
MOVED = 1e-4

_HELD_OUT_BATCHES = 8
_HELD_OUT_SEED = 0  # one for all models: losses of two models with one mixture are on the same text


@dataclass(frozen=True)
class Made:
    """A trained model and what was measured on the way.

    Attributes
    ----------
    model
        Plain transformers model, adapters merged.
    initial_loss, final_loss
        Held-out loss (nats a token) on the recipe's own mixture before and after, on the same batches.
        "Before" is the loss at initialisation of a base, and the parent's loss of a derived model.
    curve
        Learning curve: steps done, mean training loss since the point before.
    change
        Relative change of the weights against the parent, ||new - old|| / ||old||, of all and by kind of
        tensor; against the initialisation for a base.
    """

    model: PreTrainedModel
    initial_loss: float
    final_loss: float
    curve: list[tuple[int, float]]
    change: dict[str, float]


def held_out_loss(model: PreTrainedModel, recipe: Recipe) -> float:
    """Return the mean next-token loss (nats) on held-out text of the recipe's mixture, on fixed batches."""
    mixture = Mixture.load(recipe.mixture, "held_out")
    generator = torch.Generator().manual_seed(_HELD_OUT_SEED)
    length = model.config.max_position_embeddings + 1
    batches = [mixture.draw(16, length, generator) for _ in range(_HELD_OUT_BATCHES)]
    model.eval()
    with torch.inference_mode():
        return sum(next_token_loss(model, batch).item() for batch in batches) / len(batches)


def relative_change(old: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return ||new - old|| / ||old|| of all tensors ("all") and of those of each kind ("up_proj", ...)."""
    squares: dict[str, list[float]] = {}
    for name, before in old.items():
        kind = name.removesuffix(".weight").split(".")[-1]
        moved = (new[name].double() - before.double()).square().sum().item()
        size = before.double().square().sum().item()
        for key in ("all", kind):
            sums = squares.setdefault(key, [0.0, 0.0])
            sums[0] += moved
            sums[1] += size
    return {key: math.sqrt(moved / size) for key, (moved, size) in squares.items()}


def make(recipe: Recipe, parent: Path | None, on_step: OnStep) -> Made:
    """Train the model of a recipe.

    Parameters
    ----------
    recipe
        What to make.
    parent
        Folder of the parent's checkpoint; None for a base.
    on_step
        Called after each step with the steps done.

    Raises
    ------
    ZooError
        If a base learned nothing, a derived model did not move, or a loss is not finite.
    """
    if parent is None:
        assert recipe.shape is not None  # `parse` gives every base its shape
        model = initialise(recipe.shape, recipe.seed)
    else:
        model = load(parent)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    initial = held_out_loss(model, recipe)
    if recipe.kind == "adapter":
        from provlab.zoo.derive import add_adapter, merge_adapter  # peft is slow to import

        adapted = add_adapter(model, recipe)
        curve = train(adapted, recipe, on_step)
        model = merge_adapter(adapted)
    elif recipe.quantiser is not None:
        _quantise(model, recipe.quantiser)
        curve = []
    else:
        curve = train(model, recipe, on_step)
    made = Made(
        model=model,
        initial_loss=initial,
        final_loss=held_out_loss(model, recipe),
        curve=curve,
        change=relative_change(before, model.state_dict()),
    )
    _refuse_failures(made, recipe)
    return made


def _quantise(model: PreTrainedModel, quantiser: Quantiser) -> None:
    """Pass every matrix through the quantiser, in place; the norms' vectors stay whole, as in GGUF files."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                restored = quantised(parameter.numpy(), quantiser.bits, quantiser.block)
                parameter.copy_(torch.from_numpy(restored))


def _refuse_failures(made: Made, recipe: Recipe) -> None:
    initial, final, moved = made.initial_loss, made.final_loss, made.change["all"]
    if not all(map(math.isfinite, (final, *made.change.values()))):
        raise ZooError(f"zoo model {recipe.name!r} went to NaN or Inf in training; lower its learning_rate")
    if recipe.parent is None and final > LEARNED * initial:
        raise ZooError(
            f"zoo base {recipe.name!r} learned nothing: held-out loss {initial:.3f} at initialisation, "
            f"{final:.3f} after training; give it more steps or another learning_rate"
        )
    if recipe.parent is not None and moved < MOVED:
        raise ZooError(
            f"zoo model {recipe.name!r} is a copy of {recipe.parent!r}: its weights moved by {moved:.1e} of "
            "their size; give it more steps or a higher learning_rate"
        )
