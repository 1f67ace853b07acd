"""What the page on phi_MATCH between independent models measures: uniformity, actual sizes, and their cause."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from provlab import zoo
from provlab.chapters.robust_null import common_units
from provlab.chapters.robust_null.common_units import Matchings
from provlab.chapters.shared import calibration
from provlab.chapters.shared.joint_null import joint_null
from provlab.engine.lineage import Lineage
from provlab.engine.localise import BlockMap, block_map
from provlab.engine.store import Store
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.models.activations import random_tokens
from provlab.plots import format_interval
from provlab.publishing import published
from provlab.statistics.base import Model, Options

Floats = NDArray[np.float64]
Pair = tuple[str, str]
LEVELS = (0.05, 0.01, 0.001)
PER = {"block": "per block", "pair": "aggregated"}


@dataclass(frozen=True)
class Collection:
    """Models whose pairs are compared.

    Attributes
    ----------
    models
        Sources.
    pairs
        The independent ones among them.
    sequence_length
        Tokens in each sequence of text.
    origins
        What each model descends from; models of one origin share an initialisation.
    """

    models: list[str]
    pairs: list[Pair]
    sequence_length: int
    origins: dict[str, str]


@dataclass(frozen=True, eq=False)
class Compared:
    """phi_MATCH of all pairs of one collection on one text.

    Attributes
    ----------
    matchings
        Of each pair, for each block ``(2, h)``, by gate and by up.
    options
        Of the study that computed them.
    """

    matchings: Matchings
    options: Options

    @cached_property
    def log10_p(self) -> Floats:
        """The paper's p-values, two-sided by the t tail, ``(pairs, blocks)`` log10."""
        table = np.array(list(self.matchings.values()))  # (pairs, blocks, 2, h)
        return pvalues.log10_p_t(pvalues.distances(table[:, :, 0], table[:, :, 1]), self.width)

    @property
    def blocks(self) -> Floats:
        """All p-values, ``(pairs * blocks,)`` log10."""
        return self.log10_p.ravel()

    @cached_property
    def aggregated(self) -> Floats:
        """Fisher's aggregate of each pair, ``(pairs,)`` log10."""
        return pvalues.fisher(self.log10_p, axis=1)

    @cached_property
    def common(self) -> NDArray[np.int64]:
        """Units in common, ``(pairs, blocks)``."""
        return np.array([[common_units.common_units(*m) for m in blocks] for blocks in self.matchings.values()])

    @property
    def width(self) -> int:
        """Hidden units of a block."""
        return len(next(iter(self.matchings.values()))[0][0])


def collections_of(tree: Sequence[str], bases: Sequence[str]) -> dict[str, Collection]:
    """The two collections of the page: a tree, of which pairs across families are independent, and bases.

    Raises
    ------
    InputError
        If no pair of the tree is known to be independent.
    """
    lineage = Lineage.of(tree)
    across = [(a, b) for a, b in combinations(tree, 2) if lineage.dependent(a, b) is False]
    if not across:
        raise InputError("no pair of models is known to be independent; name some of two families of known origin")
    roots = {source: lineage.root(source) or source for source in tree}
    return {
        "bases": Collection(list(bases), list(combinations(bases, 2)), 32, {source: source for source in bases}),
        "tree": Collection(list(tree), across, 64, roots),
    }


#: (text, kind of collection) -> its comparisons
Tables = Mapping[tuple[str, str], Compared]


def text_of(name: str, tokenizer: PreTrainedTokenizerBase, n_sequences: int, *, seed: int) -> str:
    """A held-out text by the name of its domain; "noise" is random tokens, written out."""
    if name != "noise":
        return zoo.held_out_text(name)
    return str(tokenizer.decode(random_tokens(len(tokenizer), 1, 4 * n_sequences * 64, seed=seed)[0]))


# All independent pairs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Uniformity:
    """p-values of the independent pairs of one collection on one text: what claim I17 is judged from.

    Attributes
    ----------
    text, models, per
        On which text, of which collection, and p-values of each "block" or of each "pair".
    n_pairs
        Pairs of models.
    smallest
        The smallest p-value, log10.
    ks_p, n_copies
        p-value of the Kolmogorov-Smirnov distance from the uniform among so many joint copies, in which gate and up
        are relabelled independently.
    level, size, low, high
        Nominal levels; the actual size at each, and its 95% interval.
    """

    text: str
    models: str
    per: str
    n_pairs: int
    smallest: float
    ks_p: float
    n_copies: int
    level: list[float]
    size: list[float]
    low: list[float]
    high: list[float]


def uniformity(
    tables: Tables,
    collections: Mapping[str, Collection],
    *,
    n_copies: int,
    n_draws: int,
    seed: int,
) -> list[Uniformity]:
    """Hold all independent pairs against the uniform and find the actual sizes at `LEVELS`, per block and aggregated.

    Parameters
    ----------
    tables, collections
        What was compared.
    n_copies
        Joint copies of each table.
    n_draws
        Orders of units for each pair.
    seed
        Of copies and orders.
    """
    rows: list[Uniformity] = []
    for (text, kind), one in tables.items():
        origins = collections[kind].origins
        copies = joint_null(one.matchings, origins, n_draws=n_copies, seed=seed)
        for per, values in (("block", one.blocks), ("pair", one.aggregated)):
            aggregated = per == "pair"
            joint = copies.ks(aggregated=aggregated, law=pvalues.log10_p_t)
            rng = np.random.default_rng([seed, len(rows)])
            sizes = common_units.actual_sizes(
                one.matchings, LEVELS, n_draws=n_draws, rng=rng, aggregated=aggregated, trees=origins
            )
            columns = {key: [getattr(size, key) for size in sizes] for key in ("level", "size", "low", "high")}
            smallest = float(values.min())
            rows.append(Uniformity(text, kind, per, joint.n_pairs, smallest, joint.p, n_copies, **columns))
    return rows


def against_uniform(rows: Sequence[Uniformity]) -> pd.DataFrame:
    """The tests of uniformity as a table, with Holm's correction over all of them."""
    holm = 10.0 ** pvalues.holm(np.log10([row.ks_p for row in rows]))
    return pd.DataFrame(
        [
            {
                "text": row.text,
                "models": row.models,
                "p-values": PER[row.per],
                "pairs": row.n_pairs,
                "smallest p": 10.0**row.smallest,
                "KS, by copies": row.ks_p,
                "after Holm": adjusted,
            }
            for row, adjusted in zip(rows, holm, strict=True)
        ]
    )


def said_of_uniformity(rows: Sequence[Uniformity], level: float) -> str:
    """A sentence on how many of the tests of uniformity reject, for the page."""
    holm = pvalues.holm(np.log10([row.ks_p for row in rows]))
    rejected = [
        f"{row.text}, {row.models} {PER[row.per]}" for row, p in zip(rows, holm, strict=True) if p <= np.log10(level)
    ]
    found = f"{len(rejected)} reject: {'; '.join(rejected)}" if rejected else "none rejects"
    return f"Of {len(rows)} tests of uniformity, at {level:g} after Holm's correction, {found}."


# Actual sizes -----------------------------------------------------------------------------------------------------


def sizes_by_level(rows: Sequence[Uniformity], tables: Tables) -> list[dict[str, str | float | None]]:
    """One row for each text, collection and kind of p-value; beside the sizes stands what the counts alone predict."""
    found = []
    for row in rows:
        one = tables[row.text, row.models]
        intervals = zip(row.level, row.size, row.low, row.high, strict=True)
        block = row.per == "block"
        found.append(
            {
                "text": row.text,
                "models": row.models,
                "p-values": PER[row.per],
                **{f"{level:g}": format_interval(size, low, high, 4) for level, size, low, high in intervals},
                "0.05, from f alone": common_units.predicted_size(one.common, one.width, 0.05) if block else None,
                "units in common": float(one.common.mean()) if block else None,
            }
        )
    return found


def counts_by_block(bases: Compared, tree: Compared) -> dict[str, NDArray[np.int64]]:
    """Units in common of each block of the bases, and of the tree's first and last block, for the page's picture."""
    last = tree.common.shape[1] - 1
    return {f"bases, block {b}": bases.common[:, b] for b in range(bases.common.shape[1])} | {
        f"tree, block {b}": tree.common[:, b] for b in (0, last)
    }


def said_of_sizes(rows: Sequence[Uniformity], tables: Tables) -> str:
    """Sentences on the actual sizes of single blocks and on units in common, for the page."""
    blocks = [row for row in rows if row.per == "block"]
    words = []
    for k, level in enumerate(LEVELS):
        size = [row.size[k] for row in blocks]
        above = sum(row.low[k] > level for row in blocks)
        words.append(
            f"at {level:g} from {min(size):.4f} to {max(size):.4f} ({above} of {len(size)} intervals above the level)"
        )
    mean = [one.common.mean() for one in tables.values()]
    return (
        f"Actual sizes of one block: {'; '.join(words)}. Pairs have {min(mean):.1f} to {max(mean):.1f} units in common "
        "on average, where chance gives one."
    )


# Fisher's aggregate, and pairs of blocks --------------------------------------------------------------------------


def fisher_sizes(
    common: NDArray[np.int64], width: int, depths: Iterable[int], n_draws: int, *, rng: np.random.Generator
) -> list[dict[str, float]]:
    """Actual sizes of Fisher's aggregate over many blocks, and the nominal level whose actual size is 0.01."""
    rows = []
    for depth in depths:
        drawn = common_units.fisher_draws(common, width, depth, n_draws, rng=rng)
        worth = {f"{level:g} is worth": float(np.mean(drawn <= np.log10(level))) for level in LEVELS}
        rows.append({"blocks": depth, **worth, "0.01 is had at": float(10 ** np.quantile(drawn, 0.01))})
    return rows


def said_of_fisher(rows: Sequence[Mapping[str, float]], width: int) -> str:
    """Sentences on the level to use for an aggregate over 32 blocks, and on wide blocks, for the page."""
    level = next(row["0.01 is had at"] for row in rows if row["blocks"] == 32)
    return (
        f"With common units as in this zoo, a test of actual size 0.01 by an aggregate over 32 blocks rejects when $p$ "
        f"is below {level:.4f}. The actual size of one block at 0.01 doubles with {doubles(width)} common units of "
        f"{width} in every pair, or with {doubles(11_008):,} of the 11,008 of a 7B model."
    )


def worded(rows: Sequence[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Rows as a table, with the headings of the records, such as "0.05 is worth", in the words of the page."""
    headings = {f"{level:g} is worth": f"actual size at {level:g}" for level in LEVELS}
    return pd.DataFrame(rows).rename(columns={**headings, "0.01 is had at": "level of actual size 0.01"})


def doubles(width: int) -> int:
    """Units in common of every pair at which the actual size of one block at 0.01 is 0.02."""
    return next(n for n in range(2, width) if common_units.predicted_size([n], width, 0.01) >= 0.02)


def block_maps(pairs: Sequence[Pair], options: Options, store: Store) -> dict[Pair, BlockMap]:
    """All blocks with all blocks of each pair."""
    opened = {source: Model.open(source) for pair in pairs for source in pair}
    return {(a, b): block_map(opened[a], opened[b], options, store=store) for a, b in tqdm(pairs, desc="block maps")}


def pairs_of_blocks(
    mapped: Mapping[str, Mapping[Pair, BlockMap]], *, n_draws: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Uniformity and actual size of pairs of blocks of equal and of unequal index."""
    rows = []
    for kind, maps in mapped.items():
        for equal in (True, False):
            units = {
                pair: [np.stack([u.by_gate, u.by_up]) for (i, j), u in sorted(m.units.items()) if (i == j) == equal]
                for pair, m in maps.items()
            }
            values = np.concatenate([m.log10_p[np.eye(len(m.log10_p), dtype=bool) == equal] for m in maps.values()])
            size = common_units.actual_sizes(units, (0.05,), n_draws=n_draws, rng=rng)[0]
            interval = format_interval(size.size, size.low, size.high, 4)
            rows.append(
                {
                    "models": kind,
                    "blocks": "equal index" if equal else "unequal index",
                    "pairs of blocks": len(values),
                    "smallest log10 p": values.min(),
                    "KS, plain": calibration.ks_uniform(values).p,
                    "units in common": np.mean([common_units.common_units(*m) for ms in units.values() for m in ms]),
                    "0.05 is worth": interval if np.isfinite(size.low) else f"{size.size:.4f}",
                }
            )
    return rows


def beside_the_paper(tables: Tables) -> pd.DataFrame:
    """The independent pairs of the paper's tree beside those of ours, on each text."""
    smallest = float(published.scalar("smallest phi_MATCH over independent pairs"))
    n_published = int(published.scalar("independent pairs"))
    ours = {f"ours, {text}": one.aggregated for (text, kind), one in tables.items() if kind == "tree"}
    return pd.DataFrame(
        [
            {
                "quantity": "independent pairs",
                "published": f"{n_published}",
                **{name: f"{len(values)}" for name, values in ours.items()},
            },
            {
                "quantity": "smallest aggregated phi_MATCH",
                "published": f"{smallest:g}",
                **{name: f"{10 ** values.min():.2g}" for name, values in ours.items()},
            },
            {
                "quantity": "probability that so many independent uniform values stay above it",
                "published": f"{(1 - smallest) ** n_published:.3f}",
                **{name: f"{(1 - 10 ** values.min()) ** len(values):.3f}" for name, values in ours.items()},
            },
        ]
    )
