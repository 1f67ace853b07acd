"""What an architecture is at the lengths that a config gives: its axes, and every tensor that there should be.

No checkpoint is needed for it: `provlab.models.anatomy` holds one against this, `provlab.planning.skeleton` makes
shapes of models that are not here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from provlab.errors import InvalidWeightsError, one_line
from provlab.models.parts import Architecture, Part, Segment

#: symbolic axis -> entries of a config that may give its length
KEYS = {
    "mlp": ("intermediate_size", "n_inner", "ffn_dim", "hidden_dim", "d_ff", "ffn_hidden_size"),
    "blocks": ("num_hidden_groups", "num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "model": ("hidden_size", "n_embd", "d_model", "dim"),
}
_MOST = {"blocks": 2_000, "experts": 10_000}  # numbers beyond these are damage


def axis_sizes(label: str, config: Mapping[str, Any]) -> dict[str, int]:
    """Length of each symbolic axis according to the config; ``blocks`` counts the blocks.

    Axes that the config does not fix (the labels of a classifier) are left out. `label` is what an error names.
    """

    def size(axis: str, *keys: str, default: int | None = None) -> int:
        for key in keys:
            if (value := config.get(key)) is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST.get(axis, 10**9):
                    shown = one_line(repr(value), 60)
                    raise InvalidWeightsError(f"{label}: {key} in config.json must be a positive integer, not {shown}")
                return value
        if default is None:
            raise InvalidWeightsError(
                f"{label}: config.json lacks {' or '.join(keys)} (length of the axis {axis!r}); copy it again"
            )
        return default

    width = size("model", *KEYS["model"])
    heads = size("query", "num_attention_heads", "n_head", "num_heads", "n_heads")
    head = size("head", "head_dim", "d_kv", default=max(1, width // heads))
    sizes = {
        "blocks": size("blocks", *KEYS["blocks"]),
        "model": width,
        "vocab": size("vocab", "vocab_size"),
        "mlp": size("mlp", "intermediate_size_mlp", *KEYS["mlp"], default=4 * width),
        "head": head,
        "query": heads * head,
        "key": size("key", "num_key_value_heads", default=heads) * head,
        "pooled": width,
        "experts": 0,
    }
    sizes["expert"] = size("expert", "moe_intermediate_size", "intermediate_size", default=sizes["mlp"])
    for axis, keys in {
        "positions": ("max_position_embeddings", "n_positions"),
        "types": ("type_vocab_size",),
        "shared": ("shared_expert_intermediate_size", "shared_intermediate_size"),
        "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    }.items():
        if any(config.get(key) for key in keys):  # DeBERTa counts 0 types where it has none
            sizes[axis] = size(axis, *keys)
    return sizes


def config_axis(axis: str) -> str:
    """Return the axis whose length the config gives: ``expert`` for ``mlp.3``."""
    axis, _, number = axis.partition(".")
    return "expert" if number.isdigit() else number or axis


def instances(architecture: Architecture, sizes: Mapping[str, int]) -> Iterator[tuple[Part, int | None, int | None]]:
    """Yield every part with each block and expert it exists for."""
    for part in architecture.parts:
        for block in range(sizes["blocks"]) if part.per_block else (None,):
            for expert in range(sizes["experts"]) if "{expert}" in part.name else (None,):
                yield part, block, expert


def for_expert(segment: Segment, expert: int | None) -> Segment:
    """Name an expert's roles and hidden units apart: ``up.3`` has the axis ``mlp.3``."""
    if expert is None:
        return segment
    axes = tuple(f"mlp.{expert}" if axis == "mlp" else axis for axis in segment.axes)
    return Segment(f"{segment.role}.{expert}", axes)
