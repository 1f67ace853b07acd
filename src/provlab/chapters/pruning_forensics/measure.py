"""What the page on pruned models measures: maps of blocks, kept units, and what further training leaves of both.

The truth about a child is the zoo's own note of what was kept, or the paper's map where that is complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab import zoo
from provlab.chapters.shared import calibration
from provlab.engine import localise
from provlab.engine.lineage import short_name
from provlab.engine.localise import BlockMap
from provlab.engine.store import Store
from provlab.errors import InputError, NotComparableError
from provlab.inference import pvalues
from provlab.plots.numbers import format_interval
from provlab.publishing.published import published_table
from provlab.statistics.base import Model, Options
from provlab.zoo import card
from provlab.zoo.prune import Kept

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
    "meta-llama/Llama-3.2-1B": ("Table 12", "; the rest of the table is not legible"),
    "princeton-nlp/Sheared-LLaMA-2.7B": ("Table 13", ", each at its own place"),
    "princeton-nlp/Sheared-LLaMA-1.3B": ("Table 14", "24 blocks; the map is not legible"),
    "nvidia/Llama-3.1-Minitron-4B-Depth-Base": ("Table 15", "16 blocks; the map is not legible"),
}
_PUBLISHED_BLOCKS = 32  # of every parent in the paper's tables


# The truth --------------------------------------------------------------------------------------------------


def published_maps() -> dict[Pair, dict[int, int]]:
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


def cuts(parent: Model, child: Model) -> list[str]:
    """In what a child is smaller than its parent: "depth" (blocks), "width" (units of an MLP)."""
    a, b = parent.anatomy, child.anatomy
    return ["depth"] * (b.n_blocks < a.n_blocks) + ["width"] * (b.mlp_width < a.mlp_width)


def recipe_card(source: str) -> dict[str, Any]:
    """Return what a zoo model says about its own training; empty for any other."""
    return card.read(zoo.locate(source.removeprefix("zoo:"))) if source.startswith("zoo:") else {}


def sizes(models: Mapping[str, Model], sources: Iterable[str]) -> pd.DataFrame:
    """Sizes of models, a row each; of zoo models also the held-out loss before and after their training."""
    rows = []
    for source in dict.fromkeys(sources):
        parts, config, about = models[source].anatomy, models[source].checkpoint.config, recipe_card(source)
        rows.append(
            {
                "model": short_name(source),
                "blocks": parts.n_blocks,
                "width": parts.width,
                "heads": config["num_attention_heads"],
                "MLP units": parts.mlp_width,
                "loss before training": about.get("initial_loss"),
                "loss after": about.get("final_loss"),
                "weights moved": f"{about['relative_change']['all']:.0%}"
                if about.get("recipe", {}).get("parent")
                else None,
            }
        )
    return pd.DataFrame(rows)


# Maps of blocks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MapRecord:
    """phi_MATCH of every block of a parent with every block of a child, and what is known of the two.

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
        values = np.asarray(self.log10_p, dtype=np.float64)
        if values.ndim != 2 or (self.kept is not None and len(self.kept) != values.shape[1]):
            raise InputError(f"{self.child}: log10_p must be blocks by blocks, and kept name one for each of its own")
        object.__setattr__(self, "log10_p", values)

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
        if self.related and self.kept is not None:
            mask[self.kept, range(len(self.kept))] = True
        return mask


def map_strangers(
    models: Mapping[str, Model], pairs: Iterable[Pair], options: Options, store: Store
) -> tuple[dict[Pair, BlockMap], list[str]]:
    """Map each pair that has one tokenizer; of the others return a line with the reason."""
    maps, refused = {}, []
    for a, b in pairs:
        try:
            maps[a, b] = localise.block_map(models[a], models[b], options, store=store)
        except NotComparableError as error:
            refused.append(f"{short_name(a)} and {short_name(b)}: {error}")
    return maps, refused


def map_records(
    models: Mapping[str, Model], maps: Mapping[Pair, BlockMap], controls: Mapping[Pair, BlockMap]
) -> list[MapRecord]:
    """Put maps of parents with their children, and of strangers, together with what is known of the pairs."""
    family = [
        MapRecord(a, b, True, cuts(models[a], models[b]), kept_blocks(models[a], models[b]), one.log10_p, one.floor)
        for (a, b), one in maps.items()
    ]
    return family + [MapRecord(a, b, False, [], None, one.log10_p, one.floor) for (a, b), one in controls.items()]


def map_table(records: Sequence[MapRecord], level: float) -> pd.DataFrame:
    """Return how many pairs of blocks are called and kept, and how far apart the two groups are."""
    rows = []
    for one in records:
        truth = one.truth()
        kept = one.log10_p[truth] if truth is not None else np.array([])
        other = one.log10_p[~truth] if truth is not None else np.array([])
        rows.append(
            {
                "first": short_name(one.parent),
                "second": short_name(one.child),
                "pairs of blocks": one.log10_p.size,
                "kept": None if truth is None else kept.size,
                "called": int(one.called(level).sum()),
                "weakest log10 p of a kept pair": float(kept.max()) if kept.size else None,
                "strongest log10 p of another": float(other.min()) if other.size else None,
                "floor": one.floor,
            }
        )
    return pd.DataFrame(rows)


def map_findings(records: Sequence[MapRecord], level: float) -> str:
    """Return what the maps say, in Markdown: against the truth where it is known, and of strangers."""
    known = [(one.called(level), truth) for one in records if one.related and (truth := one.truth()) is not None]
    said = []
    if known:
        exact = sum(bool((mask == kept).all()) for mask, kept in known)
        called, truth = (np.concatenate([masks[i].ravel() for masks in known]) for i in (0, 1))
        said.append(
            f"**For {exact} of the {len(known)} children whose cut is known, the map is exactly that of the cut.** Of "
            f"their kept pairs of blocks {(called & truth).sum()} of {truth.sum()} are called, of all other pairs "
            f"{(called & ~truth).sum()} of {(~truth).sum()}."
        )
    strangers = [one for one in records if not one.related]
    if strangers:
        n_called = sum(int(one.called(level).sum()) for one in strangers)
        log10_p = np.concatenate([one.log10_p.ravel() for one in strangers])
        small = int((log10_p <= np.log10(0.05)).sum())
        share = format_interval(small / log10_p.size, *calibration.size_interval(small, log10_p.size))
        said.append(
            f"Of {log10_p.size} pairs of blocks of strangers {n_called} {'is' if n_called == 1 else 'are'} called; "
            f"a share of {share} has p at most 0.05. These pairs share activations, so the interval is an indication "
            "only."
        )
    return "\n\n".join(said)


def published_and_ours(maps: Mapping[Pair, BlockMap], level: float) -> pd.DataFrame:
    """Tables 11 to 15: which blocks of the parent each child uses, as published, and ours of the model in its place."""
    published = {child: origin for (_, child), origin in published_maps().items()}
    in_place = {recipe_card(b).get("recipe", {}).get("mirrors") or b: (a, b) for a, b in maps}
    rows = []
    for child, (table, remark) in _TABLES.items():
        origin = published.get(child, {})
        blocks = _blocks_in_words(origin.values(), _PUBLISHED_BLOCKS) if origin else ""
        row = {
            "published child": child.rpartition("/")[2],
            "": table,
            "blocks of the parent that match, published": blocks + remark,
            "zoo child in its place": "–",
            "ours, zoo": "–",
            "ours, the paper's model": "not run here",
        }
        if (pair := in_place.get(child)) is not None:
            ours = {new: old for new, old in maps[pair].origin(level).items() if old is not None}
            words = _blocks_in_words(ours.values(), maps[pair].log10_p.shape[0])
            if pair[1] == child:
                agree = sum(ours.get(new) == old for new, old in origin.items())
                row["ours, the paper's model"] = words + (f"; {agree} of {len(origin)} as published" if origin else "")
            else:
                row["zoo child in its place"], row["ours, zoo"] = short_name(pair[1]), words
        rows.append(row)
    return pd.DataFrame(rows)


def _blocks_in_words(blocks: Iterable[int], n_blocks: int) -> str:
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


@dataclass(frozen=True)
class UnitsRecord:
    """How the units that matchings name in one kept pair of blocks agree with those that were kept.

    Attributes
    ----------
    child
        Source of the child.
    old, new
        Block of the parent, and of the child.
    by
        "both" names the units on which both matchings agree, "gate" and "up" all partners of one.
    called, kept, found, placed, width, precision, recall, chance
        As of `localise.Recovered`.
    """

    child: str
    old: int
    new: int
    by: str
    called: int
    kept: int
    found: int
    placed: int
    width: int
    precision: float
    recall: float
    chance: float


def unit_records(models: Mapping[str, Model], maps: Mapping[Pair, BlockMap]) -> list[UnitsRecord]:
    """Compare the units named in each kept pair of blocks with the zoo's note, for children with narrower MLPs."""
    records = []
    for (a, b), found in maps.items():
        note = Kept.of(models[b].checkpoint)
        if note is None or "width" not in cuts(models[a], models[b]):
            continue
        for new, old in enumerate(note.blocks):
            for by in ("both", "gate", "up"):
                got = found.units[old, new].against(note.mlp[new], by)
                records.append(
                    UnitsRecord(
                        b, old, new, by, **asdict(got), precision=got.precision, recall=got.recall, chance=got.chance
                    )
                )
    return records


def units_table(records: Sequence[UnitsRecord]) -> pd.DataFrame:
    """Return how many named units are at their place and how many are kept ones, a row for each kept pair of blocks."""
    by_place = {(one.child, one.old, one.new, one.by): one for one in records}
    return pd.DataFrame(
        [
            {
                "child": short_name(child),
                "block": f"{old} to {new}",
                "kept": f"{both.kept} of {both.width}",
                "both: named": both.called,
                "at their place": both.placed / both.called if both.called else None,
                "recall": both.placed / both.kept,
                "kept ones": both.precision,
                "chance of a kept one": both.chance,
                **{
                    f"by {by} alone": one.placed / one.called
                    for by in ("up", "gate")
                    for one in (by_place[child, old, new, by],)
                },
            }
            for (child, old, new, named), both in by_place.items()
            if named == "both"
        ]
    )


def units_findings(records: Sequence[UnitsRecord]) -> str:
    """Precision and recall over all kept pairs of blocks, by both matchings and by each alone, in Markdown."""
    lines = []
    for by, name in (("both", "where both matchings agree"), ("gate", "by gate alone"), ("up", "by up alone")):
        rows = [one for one in records if one.by == by]
        called, kept, found, placed = (
            sum(getattr(one, key) for one in rows) for key in ("called", "kept", "found", "placed")
        )
        lines.append(
            f"- {name}: precision {placed / called:.4f}, recall {placed / kept:.3f}, of units at their very place; "
            f"kept ones of any place: {found / called:.4f}"
            if called
            else f"- {name}: no unit is named"
        )
    return "Over all kept pairs of blocks,\n\n" + "\n".join(lines)


# Training on ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Healed:
    """What is left of a cut after further training.

    Attributes
    ----------
    row
        What the page's table says of the child, and what is kept of it.
    log10_p
        ``(blocks of the child,)``: of each block with the one that it was.
    changes
        How far each of them moved, see `moved`.
    """

    row: dict[str, Any]
    log10_p: NDArray[np.float64]
    changes: NDArray[np.float64]


def healed(parent: Model, child: Model, found: BlockMap, level: float) -> Healed:
    """Compare the map of a zoo child that was trained on after its cut with the note of that cut."""
    source, note = child.checkpoint.source, Kept.of(child.checkpoint)
    if note is None:
        raise InputError(f"{source} has no note of what was kept of its parent; give zoo models that were pruned")
    about = recipe_card(source)
    kept = [(old, new) for new, old in enumerate(note.blocks)]
    missed, wrong = found.mistakes(note.blocks, level)
    log10_p, changes = np.array([found.log10_p[pair] for pair in kept]), moved(parent, child, note)
    units = [found.units[old, new].against(note.mlp[new]) for old, new in kept]
    others = [int(one.agreed.sum()) for pair, one in found.units.items() if pair not in kept]
    row = {
        "child": short_name(source).removeprefix(f"{short_name(parent.checkpoint.source)}-"),
        "steps": about["recipe"]["stop_after"] or about["recipe"]["steps"],
        "loss": about["final_loss"],
        "gate, up moved (mean)": float(changes.mean()),
        "blocks found": f"{len(kept) - len(missed)} of {len(kept)}",
        "wrong": len(wrong),
        "log10 p, weakest": float(log10_p.max()),
        "log10 p, median": float(np.median(log10_p)),
        "precision": sum(one.placed for one in units) / max(1, sum(one.called for one in units)),
        "recall": sum(one.placed for one in units) / sum(one.kept for one in units),
        "agreed, kept pair (median)": int(np.median([one.called for one in units])),
        "agreed, other pair (most)": max(others),
    }
    return Healed(row, log10_p, changes)


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
