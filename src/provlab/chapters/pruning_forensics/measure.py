"""What is known of pruned models: the blocks kept, by the zoo's notes or by the paper, and how far they moved."""

import numpy as np
from numpy.typing import NDArray

from provlab.publishing.published import published_table
from provlab.statistics.base import Model
from provlab.zoo.prune import Kept

# the paper's maps of blocks (Appendix H.2), by child: its parent, the table, and the columns of the two, counted from 1
_PUBLISHED = {
    "meta-llama/Llama-3.2-3B": (
        "meta-llama/Llama-3.1-8B", "independence_table11_llama31_8b_to_32_3b", "block_8b", "block_3b",
    ),
    "meta-llama/Llama-3.2-1B": (
        "meta-llama/Llama-3.1-8B", "independence_table12_llama31_8b_to_32_1b_legible", "block_8b", "block_1b",
    ),
}  # fmt: skip
_IDENTITY = ("meta-llama/Llama-2-7b-hf", "princeton-nlp/Sheared-LLaMA-2.7B")  # Table 13


def published_maps() -> dict[tuple[str, str], dict[int, int]]:
    """Tables 11 to 13: for each parent and child, the child's blocks and the parent's they match, counted from 0.

    Table 12 is not legible throughout, and lacks blocks. Of Table 13 it is known that the map is the identity.
    """
    maps = {
        (parent, child): {
            int(row[new]) - 1: int(row[old]) - 1 for row in published_table(table) if row[new] and row[old]
        }
        for child, (parent, table, old, new) in _PUBLISHED.items()
    }
    identity = next(row for row in published_table("independence_scalars") if "identity map" in row["quantity"])
    n_blocks = int(identity["value"].partition(" ")[0])
    return {**maps, _IDENTITY: dict(zip(range(n_blocks), range(n_blocks), strict=True))}


def kept_blocks(parent: Model, child: Model) -> list[int] | None:
    """Block of the parent that each of the child's blocks was: by the zoo's own note, else as published, else None.

    A published map that lacks blocks is not taken for the truth.
    """
    if (note := Kept.of(child.checkpoint)) is not None:
        return note.blocks
    published = published_maps().get((parent.checkpoint.source, child.checkpoint.source), {})
    complete = len(published) == child.anatomy.n_blocks
    return [published[block] for block in range(child.anatomy.n_blocks)] if complete else None


def moved(parent: Model, child: Model, kept: Kept) -> NDArray[np.float64]:
    """How far training moved each block's gate and up projections from what was cut out of the parent.

    Returns
    -------
    array
        ``(blocks of the child,)``: ||new - old|| / ||old|| of both projections together.
    """
    changes = []
    for new, old in enumerate(kept.blocks):
        begun, ended = (
            np.concatenate([model.anatomy.read(model.checkpoint, role, block).numpy() for role in ("gate", "up")])
            for model, block in ((parent, old), (child, new))
        )
        rows = np.concatenate([np.array(kept.mlp[new]) + side * parent.anatomy.mlp_width for side in (0, 1)])
        cut = begun[np.ix_(rows, np.array(kept.model))]
        changes.append(np.linalg.norm(ended - cut) / np.linalg.norm(cut))
    return np.array(changes)
