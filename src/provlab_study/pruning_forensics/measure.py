"""Maps of pruned models with what is known of them: kept blocks and units, and how far training moved them.

The truth about a child is the zoo's own note of what was kept, or the paper's map where that is complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab import zoo
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.report.lineage import short_name
from provlab.statistics.model import Model
from provlab.zoo import card
from provlab.zoo.prune import Kept
from provlab_study.publishing.published import published_table
from provlab_study.shared.block_map import BlockMap

Pair = tuple[str, str]

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
# for each published child its table, and what the table leaves open
_TABLES = {
    "meta-llama/Llama-3.2-3B": ("Table 11", ""),
    "meta-llama/Llama-3.2-1B": ("Table 12", "; the rest of the table is damaged in our copy of the text"),
    "princeton-nlp/Sheared-LLaMA-2.7B": ("Table 13", ", each at its own place"),
    "princeton-nlp/Sheared-LLaMA-1.3B": ("Table 14", "24 blocks; the map is damaged in our copy of the text"),
    "nvidia/Llama-3.1-Minitron-4B-Depth-Base": ("Table 15", "16 blocks; the map is damaged in our copy of the text"),
}
_PUBLISHED_BLOCKS = 32  # of every parent in the paper's tables


# The truth --------------------------------------------------------------------------------------------------


def published_maps() -> dict[Pair, dict[int, int]]:
    """Tables 11 to 13: for each parent and child, the child's blocks and the parent's they match, counted from 0.

    Table 12 is damaged in our copy of the text, and lacks blocks. Table 13 is known to be the identity.
    """
    maps = {
        (parent, child): {
            int(row[new]) - 1: int(row[old]) - 1 for row in published_table(table) if row[new] and row[old]
        }
        for child, (parent, table, old, new) in _PUBLISHED.items()
    }
    identity = next(row for row in published_table("independence_scalars") if "identity map" in row["quantity"])
    n_blocks = int(identity["value"].partition(" ")[0])
    return {**maps, _IDENTITY: {block: block for block in range(n_blocks)}}


def kept_blocks(parent: Model, child: Model) -> list[int] | None:
    """Block of the parent that each of the child's blocks was: by the zoo's own note, else as published, else None.

    A published map that lacks blocks is not taken for the truth.
    """
    if (note := Kept.of(child.checkpoint)) is not None:
        return note.blocks
    above, below = (model.checkpoint.source.partition("@")[0] for model in (parent, child))
    published = published_maps().get((above, below), {})
    complete = len(published) == child.anatomy.n_blocks
    return [published[block] for block in range(child.anatomy.n_blocks)] if complete else None


def note_of(child: Model) -> Kept:
    """Return the zoo's note of what was kept; raise InputError for any other model."""
    if (note := Kept.of(child.checkpoint)) is None:
        source = child.checkpoint.source
        raise InputError(f"{source} has no note of what was kept of its parent; give zoo models that were pruned")
    return note


def cuts(parent: Model, child: Model) -> list[str]:
    """In what a child is smaller than its parent: "depth" (blocks), "width" (units of an MLP)."""
    a, b = parent.anatomy, child.anatomy
    return ["depth"] * (b.n_blocks < a.n_blocks) + ["width"] * (b.mlp_width < a.mlp_width)


def recipe_card(source: str) -> dict[str, Any]:
    """Return what a zoo model says about its own training; empty for any other."""
    return card.read(zoo.locate(source.removeprefix("zoo:"))) if source.startswith("zoo:") else {}


# Maps of blocks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MapRecord:
    """The p-values of a `BlockMap`, with what is known of its two models.

    Attributes
    ----------
    parent, child
        Sources; where they are not `related`, the stranger stands in the parent's place.
    related
        Whether the child was cut out of the parent.
    cut
        In what the child is smaller, see `cuts`; empty for a stranger.
    kept
        Block of the parent that each of the child's blocks was; None where that is unknown, and for a stranger.
    log10_p
        ``(blocks of the parent, blocks of the child)``.
    floor
        The smallest log10 p that a pair of blocks can reach.
    """

    parent: str
    child: str
    related: bool
    cut: list[str]
    kept: list[int] | None
    log10_p: NDArray[np.float64] = field(repr=False)
    floor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "log10_p", np.asarray(self.log10_p, dtype=np.float64))

    def adjusted(self) -> NDArray[np.float64]:
        """log10_p after Holm's correction over all pairs of blocks, of its shape."""
        return pvalues.holm(self.log10_p.ravel()).reshape(self.log10_p.shape)

    def called(self, level: float) -> NDArray[np.bool_]:
        """Pairs of blocks that Holm's procedure over all of them rejects at `level`, as a mask of log10_p's shape."""
        called: NDArray[np.bool_] = self.adjusted() <= np.log10(level)
        return called

    def truth(self) -> NDArray[np.bool_] | None:
        """Pairs of blocks that were kept, as a mask of log10_p's shape: none of a stranger, None where unknown."""
        if self.related and self.kept is None:
            return None
        mask = np.zeros(self.log10_p.shape, dtype=bool)
        if self.kept is not None:
            mask[self.kept, range(len(self.kept))] = True
        return mask


def published_and_ours(maps: Mapping[Pair, BlockMap], level: float) -> pd.DataFrame:
    """Tables 11 to 15: which blocks of the parent each child uses, as published, and ours of the model in its place."""
    published = {child: origin for (_, child), origin in published_maps().items()}
    in_place = {recipe_card(b).get("recipe", {}).get("mirrors") or b: (a, b) for a, b in maps}
    rows = []
    for child, (table, remark) in _TABLES.items():
        origin = published.get(child, {})
        row = {
            "published child": child.rpartition("/")[2],
            "": table,
            "blocks of the parent that match, published": _runs(origin.values(), _PUBLISHED_BLOCKS) * bool(origin)
            + remark,
            "zoo child in its place": "–",
            "ours, zoo": "–",
            "ours, the paper's model": "not run here",
        }
        if (pair := in_place.get(child)) is not None:
            ours = {new: old for new, old in maps[pair].origin(level).items() if old is not None}
            blocks = _runs(ours.values(), maps[pair].log10_p.shape[0])
            if pair[1] == child:
                agree = sum(ours.get(new) == old for new, old in origin.items())
                row["ours, the paper's model"] = blocks + (f"; {agree} of {len(origin)} as published" if origin else "")
            else:
                row["zoo child in its place"], row["ours, zoo"] = short_name(pair[1]), blocks
        rows.append(row)
    return pd.DataFrame(rows)


def block_by_block(maps: Mapping[Pair, BlockMap], level: float) -> pd.DataFrame:
    """Tables 11 to 13 as they stand, block of the child to block of the parent from 1, and ours beside each."""
    in_place = {recipe_card(b).get("recipe", {}).get("mirrors") or b: (a, b) for a, b in maps}
    columns = {}
    for (_, child), origin in published_maps().items():
        columns[f"{child.rpartition('/')[2]}, {_TABLES[child][0]}"] = {new + 1: old + 1 for new, old in origin.items()}
        if (pair := in_place.get(child)) is not None:
            ours = maps[pair].origin(level)
            columns[f"ours, {short_name(pair[1])}"] = {new + 1: old + 1 for new, old in ours.items() if old is not None}
    frame = pd.DataFrame(columns).sort_index().astype("Int64").astype(object)
    return frame.where(frame.notna(), "").rename_axis("block of the child")


def _runs(blocks: Iterable[int], n_blocks: int) -> str:
    """Blocks counted from 1, runs drawn together: ``1 to 3, 8 (of 8)``."""
    runs: list[list[int]] = []
    for block in sorted({block + 1 for block in blocks}):
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    words = [f"{a}" if a == b else f"{a}, {b}" if a + 1 == b else f"{a} to {b}" for a, b in runs]
    return f"{', '.join(words) or 'none'} (of {n_blocks})"


# Kept units -------------------------------------------------------------------------------------------------


def recovered(partners: NDArray[np.int64], named: NDArray[np.bool_], kept: Sequence[int]) -> dict[str, int]:
    """Compare the partners of a narrower MLP's units with the units that they were.

    Returns ``called`` (units of the wider MLP that are named), ``kept`` (that were kept), ``found`` (that are both) and
    ``placed`` (units of the narrower MLP whose named partner is the very unit that they were).

    Parameters
    ----------
    partners
        ``(h,)``: unit of the wider MLP that a matching gives to each.
    named
        ``(h,)``: where this counts as a call.
    kept
        ``(h,)``: unit of the wider MLP that each was.
    """
    truth = np.asarray(kept, dtype=np.int64)
    return {
        "called": int(named.sum()),
        "kept": len(truth),
        "found": int(np.isin(partners[named], truth).sum()),
        "placed": int((partners == truth)[named].sum()),
    }


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
            np.concatenate([model.anatomy.read(model.checkpoint, role, block) for role in ("gate", "up")])
            for model, block in ((parent, old), (child, new))
        )
        rows = np.concatenate([np.array(kept.mlp[new]) + side * parent.anatomy.mlp_width for side in (0, 1)])
        cut = begun[np.ix_(rows, np.array(kept.model))]
        changes.append(np.linalg.norm(ended - cut) / np.linalg.norm(cut))
    return np.array(changes)
