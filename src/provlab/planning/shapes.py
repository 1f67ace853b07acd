"""Shapes of published models, as configs: what sizes a study of full size has, before there is any weight."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from provlab.errors import InputError

STANDARD_DEVIATION = 0.02  # of an initialisation, where the config names no initializer_range
_DEPTHS = ("num_hidden_layers", "n_layer")


def _llama(
    width: int, mlp: int, blocks: int, heads: int, key_heads: int, vocabulary: int, **more: object
) -> dict[str, Any]:
    """Content of a Llama's ``config.json``."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": 128,
        "vocab_size": vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "initializer_range": STANDARD_DEVIATION,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        **more,
    }


#: name -> the published ``config.json``, as far as it decides shapes; the last is for trying things out
SHAPES: dict[str, dict[str, Any]] = {
    "llama-2-7b": _llama(4096, 11008, 32, 32, 32, 32_000),
    "llama-2-13b": _llama(5120, 13824, 40, 40, 40, 32_000),
    "llama-2-70b": _llama(8192, 28672, 80, 64, 8, 32_000),
    "llama-3.1-8b": _llama(4096, 14336, 32, 32, 8, 128_256),
    "llama-3.1-70b": _llama(8192, 28672, 80, 64, 8, 128_256),
    "llama-3.2-3b": _llama(3072, 8192, 28, 24, 8, 128_256, tie_word_embeddings=True),
    "gpt-2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50_257,
        "initializer_range": STANDARD_DEVIATION,
        "tie_word_embeddings": True,
        "dtype": "float32",
    },
    "tiny": _llama(64, 176, 4, 4, 2, 256, head_dim=16),
    "tiny-pruned": _llama(48, 128, 3, 2, 2, 256, head_dim=16),
}


def shape(name: str, blocks: int | None = None) -> dict[str, Any]:
    """Return the config of a named shape, or of a ``config.json`` at that path, with `blocks` blocks instead of all.

    Raises
    ------
    InputError
        The name is unknown, the file is no config, or the model has fewer blocks.
    """
    if name in SHAPES:
        return truncated(deepcopy(SHAPES[name]), blocks, name)
    path = Path(name)
    if path.suffix != ".json":
        raise InputError(f"{name} is no known shape; known are {', '.join(SHAPES)}, or give the path of a config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be read as a config ({type(error).__name__}); give a config.json") from error
    if not isinstance(config, dict):
        raise InputError(f"{name} holds no JSON object; give a config.json")
    return truncated(config, blocks, name)


def truncated(config: dict[str, Any], blocks: int | None, name: str = "the model") -> dict[str, Any]:
    """Return a config of the first `blocks` blocks; all if None.

    Raises
    ------
    InputError
        There are not so many.
    """
    if blocks is None:
        return config
    key = next((key for key in _DEPTHS if key in config), _DEPTHS[0])
    if not 1 <= blocks <= config.get(key, 0):
        raise InputError(f"blocks must be 1 to {config.get(key)} for {name}, not {blocks}")
    return config | {key: blocks}
