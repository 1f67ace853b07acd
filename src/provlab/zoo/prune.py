"""The maker of pruned models: some blocks and units of a parent, and then training on.

The blocks and units to keep are decided before a step is trained, and noted in the child's ``config.json`` under
`NOTE`: the truth that maps of blocks and units are judged by, and that no statistic reads. The kept units follow from
their activations on training text, as in Minitron (mean size; Muralidharan et al. 2024, Section 2.2), or from the seed
alone. Blocks are named in the recipe, as Sheared-LLaMA and Llama 3.2 fix their shapes in advance.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from provlab.errors import ZooError
from provlab.reading import anatomy
from provlab.reading.anatomy import Anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.symmetry import Permutation, read_all
from provlab.zoo.language import held_out_loss, train
from provlab.zoo.recipes import Pruning, Recipe
from provlab.zoo.train import Mixture, seed_for

__all__ = ["NOTE", "Kept", "cut", "held_out_loss", "importance", "start", "train"]

NOTE = "pruned_from"  # key in the child's config.json
_CALIBRATION = 32  # sequences on which the units are watched

# (axis, block) -> a number for each unit; block None for the residual stream
Importance = Mapping[tuple[str, int | None], NDArray[np.float64]]


@dataclass(frozen=True)
class Kept:
    """What a child took over from its parent, in the parent's numbers, which ascend.

    Attributes
    ----------
    blocks
        Block of the parent that each block of the child was.
    model
        Dimensions of the residual stream.
    mlp, heads
        For each block of the child, the hidden units of its MLP and its attention heads.
    """

    blocks: list[int]
    model: list[int]
    mlp: list[list[int]]
    heads: list[list[int]]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Kept | None":
        """Read the note in a checkpoint's config; None if it says nothing, as that of any model from elsewhere."""
        note = checkpoint.config.get(NOTE)
        return cls(**note) if note is not None else None


def start(recipe: Recipe, parent: Path | None) -> PreTrainedModel:
    """Cut the child out of its parent."""
    assert recipe.pruning is not None  # `parse` gives every pruned model its settings,
    assert parent is not None  # and a parent
    source = Checkpoint.open(parent)
    parts = anatomy.of(source)
    if recipe.pruning.by == "seed":
        rng = np.random.default_rng(seed_for(recipe.seed, "pruning"))
        sizes: dict[tuple[str, int | None], int] = {("model", None): parts.width}
        for block in range(parts.n_blocks):
            sizes |= {("mlp", block): parts.mlp_width, ("query", block): parts.shape("query", block)[0]}
        units: Importance = {key: rng.random(size) for key, size in sizes.items()}
    else:
        model = AutoModelForCausalLM.from_pretrained(parent, dtype=torch.float32, local_files_only=True)
        text = Mixture.load(recipe.mixture, "train")
        order = torch.Generator().manual_seed(seed_for(recipe.seed, "pruning"))
        units = importance(model, parts, text.draw(_CALIBRATION, model.config.max_position_embeddings, order))
    return cut(source, parts, chosen(recipe.name, recipe.pruning, source, parts, units))


def importance(model: PreTrainedModel, parts: Anatomy, sequences: torch.Tensor) -> Importance:
    """Mean size, over ``(n, length)`` token ids, of what each unit hands to the matrices that read it.

    Dimensions of the residual stream are seen behind the norms, hidden units behind the gate, and heads before the
    output projection.
    """
    sums: dict[tuple[str, int | None], NDArray[np.float64]] = {}

    def watch(axis: str, block: int | None) -> Any:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            size = inputs[0].abs().mean(dim=(0, 1)).double().numpy()
            key = (axis, None if axis == "model" else block)  # the stream is one for all blocks
            sums[key] = sums.get(key, 0.0) + size

        return hook

    with ExitStack() as hooks, torch.inference_mode():
        for part in parts.parts:
            first = part.segments[0]
            module = model.get_submodule(parts.module(first.role, part.block))
            if isinstance(module, nn.Linear) and len(first.axes) == 2:
                hooks.callback(module.register_forward_pre_hook(watch(first.axes[1], part.block)).remove)
        model.eval()
        model(input_ids=sequences, use_cache=False)
    return sums


def chosen(name: str, pruning: Pruning, source: Checkpoint, parts: Anatomy, units: Importance) -> Kept:
    """Name what is kept: the recipe's blocks, and of each axis as many of the most important units as it says.

    Raises
    ------
    ZooError
        If the parent has no such block or fewer units or heads than are to be kept, or transformers refuses the shape.
    """
    what = f"zoo model {name!r}"
    blocks = list(range(parts.n_blocks)) if pruning.keep_blocks is None else pruning.keep_blocks
    if not blocks or blocks != sorted(set(blocks)) or not 0 <= blocks[0] <= blocks[-1] < parts.n_blocks:
        raise ZooError(f"{what}: keep_blocks must ascend from 0 to {parts.n_blocks - 1} at most, not {blocks}")
    n_heads = int(source.config["num_attention_heads"])
    for key, before in (
        ("hidden_size", parts.width),
        ("intermediate_size", parts.mlp_width),
        ("num_attention_heads", n_heads),
    ):
        if (after := getattr(pruning, key)) is not None and not 1 <= after <= before:
            raise ZooError(f"{what}: {key} must be from 1 to its parent's {before}, not {after}")
    if pruning.num_attention_heads not in (None, n_heads) and source.config.get("num_key_value_heads") != n_heads:
        raise ZooError(f"{what}: heads can be cut only where each has its own key and value; leave them")
    width, heads_left = pruning.hidden_size or parts.width, pruning.num_attention_heads or n_heads
    if width % heads_left:
        raise ZooError(
            f"{what}: hidden_size {width} must be a multiple of the {heads_left} heads, as transformers asks"
        )

    def largest(values: NDArray[np.float64], count: int | None) -> list[int]:
        order = np.argsort(-values, kind="stable")[:count]
        return [int(unit) for unit in np.sort(order)]

    heads = {block: np.linalg.norm(units["query", block].reshape(n_heads, -1), axis=1) for block in blocks}
    return Kept(
        blocks=blocks,
        model=largest(units["model", None], pruning.hidden_size),
        mlp=[largest(units["mlp", block], pruning.intermediate_size) for block in blocks],
        heads=[largest(heads[block], pruning.num_attention_heads) for block in blocks],
    )


def cut(source: Checkpoint, parts: Anatomy, kept: Kept) -> PreTrainedModel:
    """Slice every tensor along its symbolic axes, and number the blocks that are left again.

    Norms are over fewer dimensions then, and what was dropped is not made up for: training on has to do that.
    """
    n_heads = int(source.config["num_attention_heads"])
    head_size = parts.shape("query", 0)[0] // n_heads
    orders: dict[tuple[str, int | None], NDArray[np.int64]] = {("model", None): np.array(kept.model)}
    for old, mlp, heads in zip(kept.blocks, kept.mlp, kept.heads, strict=True):
        orders["mlp", old] = np.array(mlp)
        if len(heads) < n_heads:
            rows = (np.array(heads)[:, None] * head_size + np.arange(head_size)).ravel()
            orders |= {("query", old): rows, ("key", old): rows}
    places = {old: new for new, old in enumerate(kept.blocks)}
    sliced = Permutation(parts.parts, orders)(read_all(source, parts, torch.float32))  # an order may leave units out
    weights = {
        part.name if part.block is None else _renumbered(part.name, part.block, places[part.block]): sliced[part.name]
        for part in parts.parts
        if part.block is None or part.block in places
    }
    model: PreTrainedModel = AutoModelForCausalLM.from_config(_config(source, kept, n_heads, head_size))
    model.load_state_dict(weights)
    return model


def _renumbered(name: str, old: int, new: int) -> str:
    return name.replace(f".{old}.", f".{new}.", 1)


def _config(source: Checkpoint, kept: Kept, n_heads: int, head_size: int) -> Any:
    heads: Sequence[int] = kept.heads[0]
    config = AutoConfig.from_pretrained(source.folder(), local_files_only=True)
    sizes = {
        "hidden_size": len(kept.model),
        "num_hidden_layers": len(kept.blocks),
        "intermediate_size": len(kept.mlp[0]),
        "head_dim": head_size,
        NOTE: asdict(kept),
    }
    if len(heads) < n_heads:
        sizes |= {"num_attention_heads": len(heads), "num_key_value_heads": len(heads)}
    config.update(sizes)
    return config
