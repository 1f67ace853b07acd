"""From a recipe and its parent's folder to a trained model: one way to start and to finish for each kind.

`start` makes the model to train (from random weights, from the parent, from the parent with adapters),
`finish` turns what was trained into a plain checkpoint again. What lies between is `train.train`, the same for all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from provlab.errors import ZooError
from provlab.zoo.recipes import Recipe
from provlab.zoo.train import OnStep, held_out_loss, initialise, seed_for, train

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


def load(folder: Path) -> PreTrainedModel:
    """Read a zoo model in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)


def with_adapter(model: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Freeze the model and put fresh low-rank adapters on the projections that the recipe names."""
    from peft import LoraConfig, get_peft_model  # slow to import, and needed by two models

    assert recipe.adapter is not None
    config = LoraConfig(
        r=recipe.adapter.rank,
        lora_alpha=recipe.adapter.alpha,
        target_modules=sorted(recipe.adapter.targets),
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):  # peft draws from the global generator
        torch.manual_seed(seed_for(recipe.seed, "initialisation"))
        return cast(PreTrainedModel, get_peft_model(model, config))  # it passes everything on


def start(recipe: Recipe, parent: Path | None) -> PreTrainedModel:
    """Return the model that the recipe's training begins with."""
    if recipe.shape is not None:
        return initialise(recipe.shape, recipe.seed)
    assert parent is not None
    model = load(parent)
    return with_adapter(model, recipe) if recipe.kind == "adapter" else model


def finish(model: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Turn a trained model into a plain checkpoint: adapters are merged into the weights."""
    return cast(Any, model).merge_and_unload() if recipe.kind == "adapter" else model


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
    return {key: math.sqrt(moved / size) if size else 0.0 for key, (moved, size) in squares.items()}


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
    model = start(recipe, parent)
    context = model.config.max_position_embeddings
    before = load(parent).state_dict() if parent else {k: v.clone() for k, v in model.state_dict().items()}
    initial = held_out_loss(model, recipe, context)
    curve = train(model, recipe, context, on_step)
    plain = finish(model, recipe)
    final = held_out_loss(plain, recipe, context)
    change = relative_change(before, plain.state_dict())
    if not math.isfinite(final) or not all(map(math.isfinite, change.values())):
        raise ZooError(f"zoo model {recipe.name!r} went to NaN or Inf in training; lower its learning_rate")
    if parent is None and final > LEARNED * initial:
        raise ZooError(
            f"zoo base {recipe.name!r} learned nothing: held-out loss {initial:.3f} at initialisation, "
            f"{final:.3f} after training; give it more steps or another learning_rate"
        )
    if parent is not None and change["all"] < MOVED:
        raise ZooError(
            f"zoo model {recipe.name!r} is a copy of {recipe.parent!r}: its weights moved by "
            f"{change['all']:.1e} of their size; give it more steps or a higher learning_rate"
        )
    return Made(plain, initial, final, curve, change)
