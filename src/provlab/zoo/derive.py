"""Kinds of models that change more than values: what stands in place of the parent's weights while training.

Each kind is a pair of functions, from the parent's model to the one that `provlab.zoo.train.train` trains, and from
that back to a plain checkpoint. Full tunes need neither.
"""

from typing import Any, cast

import torch
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel

from provlab.zoo.recipes import Recipe
from provlab.zoo.train import seed_for


def add_adapter(model: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Freeze the model and put fresh low-rank adapters on the projections that the recipe names."""
    assert recipe.adapter is not None  # `parse` gives every model of kind adapter its settings
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


def merge_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """Add the adapters' products to the weights and take the adapters away."""
    return cast(PreTrainedModel, cast(Any, model).merge_and_unload())
