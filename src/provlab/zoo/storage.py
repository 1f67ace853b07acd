"""The maker of models that are their parents, stored in another way: `provlab.zoo.quantise` decides the weights."""

import torch
from transformers import PreTrainedModel

from provlab.zoo.kinds import Curve, OnStep
from provlab.zoo.language import held_out_loss, start
from provlab.zoo.quantise import quantised
from provlab.zoo.recipes import Recipe

__all__ = ["held_out_loss", "start", "train"]


def train(model: PreTrainedModel, recipe: Recipe, on_step: OnStep) -> tuple[PreTrainedModel, Curve]:
    """Pass every matrix through the quantiser, in place; the norms' vectors stay whole, as in GGUF files."""
    assert recipe.quantiser is not None  # `parse` gives every model of kind quantised its settings
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                restored = quantised(parameter.numpy(), recipe.quantiser.bits, recipe.quantiser.block)
                parameter.copy_(torch.from_numpy(restored))
    return model, []
