"""The maker of language models: bases, what is trained on from them, reruns, and parents stored in few bits.

It only chooses: `provlab.zoo.train`, `derive`, `quantise`, `blueprints` and `objectives` decide the weights, and are in
the models' addresses.
"""

from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedModel

from provlab.zoo import blueprints, objectives
from provlab.zoo.kinds import KINDS, Curve, OnStep
from provlab.zoo.quantise import quantised
from provlab.zoo.recipes import Recipe
from provlab.zoo.train import train as train_on

_HELD_OUT_BATCHES = 8
_HELD_OUT_SEED = 0  # one for all models: losses of two models with one mixture are on the same text


def start(recipe: Recipe, parent: Path | None) -> PreTrainedModel:
    """Return fresh weights where the recipe has a shape, else the parent's."""
    if KINDS[recipe.kind].shape:
        assert recipe.shape is not None  # `parse` looked
        return blueprints.initialise(recipe.architecture, recipe.shape, recipe.seed)
    assert parent is not None
    return blueprints.load(parent, recipe)


def held_out_loss(model: PreTrainedModel, recipe: Recipe) -> float:
    """Return the mean loss (nats) of the recipe's objective on held-out text of its mixture, on fixed batches."""
    task = objectives.objective(model, recipe, "held_out")
    generator = torch.Generator().manual_seed(_HELD_OUT_SEED)
    batches = [task.draw(16, generator) for _ in range(_HELD_OUT_BATCHES)]
    model.eval()
    with torch.inference_mode():
        return sum(task.loss(model, *batch).item() for batch in batches) / len(batches)


def train(model: PreTrainedModel, recipe: Recipe, on_step: OnStep) -> tuple[PreTrainedModel, Curve]:
    """Train as the recipe says; the seed of the order of data takes the place of the recipe's seed from here on.

    A quantised model has no steps: every matrix passes through the quantiser, in place; the norms' vectors stay whole,
    as in GGUF files.
    """
    if recipe.quantiser is not None:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    restored = quantised(parameter.numpy(), recipe.quantiser.bits, recipe.quantiser.block)
                    parameter.copy_(torch.from_numpy(restored))
        return model, []
    if recipe.order_seed is not None:
        recipe = replace(recipe, seed=recipe.order_seed)
    task = objectives.objective(model, recipe, "train")
    if recipe.adapter is None:
        return model, train_on(model, task, recipe, on_step)
    from provlab.zoo.derive import add_adapter, merge_adapter  # peft is slow to import

    adapted = add_adapter(model, recipe)
    curve = train_on(adapted, task, recipe, on_step)
    return merge_adapter(adapted), curve
