"""Architectures of zoo models: a recipe's shape as the settings of each.

All run without dropout, so that a seed decides every weight, and all are classes of transformers, so that what the
zoo makes is opened like any published checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
)

from provlab.errors import ZooError
from provlab.zoo import corpus
from provlab.zoo.recipes import Recipe, Shape
from provlab.zoo.train import seed_for

MASK = corpus.VOCABULARY  # the token that an encoder sees in place of a hidden one: the first after the tokenizer's


@dataclass(frozen=True)
class Blueprint:
    """One architecture: how a config is made of a shape, and which classes of transformers stand for it."""

    config: Callable[[Shape], PretrainedConfig]
    model: type[PreTrainedModel]
    classifier: type[PreTrainedModel] | None = None


def _usual(shape: Shape) -> dict[str, Any]:
    """Return what most configs have under one name."""
    return {
        "vocab_size": corpus.VOCABULARY,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": None,
    }


def _llama(shape: Shape) -> PretrainedConfig:
    return LlamaConfig(**_usual(shape), num_key_value_heads=shape.num_attention_heads, tie_word_embeddings=False)


def _olmo(shape: Shape) -> PretrainedConfig:
    return OlmoConfig(**_usual(shape), tie_word_embeddings=False)


def _phi3(shape: Shape) -> PretrainedConfig:
    positions = shape.max_position_embeddings
    return Phi3Config(**_usual(shape), original_max_position_embeddings=positions, tie_word_embeddings=False)


def _gpt2(shape: Shape) -> PretrainedConfig:
    return GPT2Config(
        vocab_size=corpus.VOCABULARY,
        n_embd=shape.hidden_size,
        n_layer=shape.num_hidden_layers,
        n_head=shape.num_attention_heads,
        n_inner=shape.intermediate_size,
        n_positions=shape.max_position_embeddings,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )


def _bert(shape: Shape) -> PretrainedConfig:
    return BertConfig(
        **{**_usual(shape), "vocab_size": MASK + 1},
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


BLUEPRINTS: dict[str | None, Blueprint] = {
    None: Blueprint(_llama, LlamaForCausalLM),
    "olmo": Blueprint(_olmo, OlmoForCausalLM),
    "phi3": Blueprint(_phi3, Phi3ForCausalLM),
    "gpt2": Blueprint(_gpt2, GPT2LMHeadModel),
    "bert": Blueprint(_bert, BertForMaskedLM, classifier=BertForSequenceClassification),
}


def initialise(architecture: str | None, shape: Shape, seed: int) -> PreTrainedModel:
    """Make an untrained model; its random weights depend on `seed` alone."""
    blueprint = BLUEPRINTS[architecture]
    with torch.random.fork_rng(devices=[]):  # transformers draws initial weights from the global generator
        torch.manual_seed(seed_for(seed, "initialisation"))
        return blueprint.model(blueprint.config(shape))


def load(folder: Path, recipe: Recipe) -> PreTrainedModel:
    """Read the parent of a model in float32, as the class that the recipe's objective needs.

    A classifier takes the parent's body and a fresh head, whose weights depend on the recipe's seed alone.

    Raises
    ------
    ZooError
        If the folder holds another architecture than the recipe names, or it has no classifier.
    """
    blueprint = BLUEPRINTS[recipe.architecture]
    kind = blueprint.model
    settings: dict[str, Any] = {}
    if recipe.objective == "classify":
        if blueprint.classifier is None:
            raise ZooError(f"zoo recipe {recipe.name!r}: {recipe.architecture} has no classifier; bert has one")
        kind, settings = blueprint.classifier, {"num_labels": len(recipe.mixture)}
    config = PretrainedConfig.get_config_dict(folder, local_files_only=True)[0]
    known = [known.__name__ for known in (blueprint.model, blueprint.classifier) if known is not None]
    if config.get("architectures", [None])[0] not in known:
        raise ZooError(
            f"zoo recipe {recipe.name!r}: its architecture is {recipe.architecture}, its parent's another "
            f"({config.get('architectures')}); leave architecture out, and it has its parent's"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(recipe.seed, "initialisation"))
        model: PreTrainedModel = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True, **settings)
    return model
