"""What the page on phi_MATCH between independent models measures: uniformity, actual sizes, and their cause."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from provlab import zoo
from provlab.chapters.robust_null import common_units
from provlab.chapters.robust_null.common_units import ActualSize, Matchings
from provlab.chapters.shared import calibration
from provlab.chapters.shared.joint_null import joint_ks
from provlab.engine.lineage import Lineage
from provlab.engine.localise import BlockMap, block_map
from provlab.engine.store import Store
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.models.activations import random_tokens
from provlab.plots import format_interval
from provlab.publishing import published
from provlab.report import StudyReport
from provlab.statistics.base import Model, Options

Floats = NDArray[np.float64]
Pair = tuple[str, str]
LEVELS = (0.05, 0.01, 0.001)


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
    log10_p
        Of each pair, ``(blocks,)``.
    matchings
        Of each pair, for each block ``(2, h)``, by gate and by up.
    options
        Of the study that computed them.
    """

    log10_p: dict[Pair, Floats]
    matchings: Matchings
    options: Options

    @classmethod
    def of(cls, study: StudyReport, store: Store) -> "Compared":
        """Collect what a study by phi_MATCH found."""
        rows = study.blocks_frame().groupby(["a", "b"], sort=False)["log10_p"]
        log10_p = {(str(a), str(b)): values.to_numpy() for (a, b), values in rows}
        return cls(log10_p, study.matchings("phi_match", store), study.options)

    @cached_property
    def blocks(self) -> Floats:
        """All p-values, ``(pairs * blocks,)`` log10."""
        return np.concatenate(list(self.log10_p.values()))

    @cached_property
    def aggregated(self) -> Floats:
        """Fisher's aggregate of each pair, ``(pairs,)`` log10."""
        return pvalues.fisher(list(self.log10_p.values()), axis=1)

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
    """p-values of independent pairs on one text: what claim I17 is judged from.

    Attributes
    ----------
    bases
        (a, b, log10 p of each block) for all pairs of models that share nothing.
    tree
        p-value of the Kolmogorov-Smirnov distance of all pairs across trees among joint copies, of "blocks" and of
        "aggregated" p-values.
    size
        Actual size of one block at a nominal 0.05, among the bases.
    """

    bases: list[tuple[str, str, Sequence[float]]]
    tree: dict[str, float]
    size: float


def against_uniform(
    tables: Tables, collections: Mapping[str, Collection], *, n_copies: int, seed: int
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Compare all independent pairs with the uniform distribution, per block and aggregated.

    Returns
    -------
    tuple
        The page's table, and for each text the p-values among joint copies that `Uniformity.tree` holds.
    """
    rows: list[dict[str, Any]] = []
    by_copies: dict[str, dict[str, float]] = {}
    for text in dict.fromkeys(text for text, _ in tables):
        by_copies[text] = {}
        for name, aggregated in (("blocks", False), ("aggregated", True)):
            values = {kind: getattr(tables[text, kind], name) for kind in collections}
            joint = {
                kind: joint_ks(
                    tables[text, kind].matchings,
                    one.origins,
                    n_draws=n_copies,
                    seed=seed + (kind == "bases"),
                    aggregated=aggregated,
                )
                for kind, one in collections.items()
            }
            by_copies[text][name] = joint["tree"].p
            copies, limit = joint["bases"].copies, stats.kstwo.isf(0.05, len(values["bases"]))
            rows.append(
                {
                    "text": text,
                    "p-values": "aggregated" if aggregated else "per block",
                    "tree: n": len(values["tree"]),
                    "smallest p": 10.0 ** values["tree"].min(),
                    "KS, plain": calibration.ks_uniform(values["tree"]).p,
                    "KS, by copies": joint["tree"].p,
                    "bases: n": len(values["bases"]),
                    "smallest p ": 10.0 ** values["bases"].min(),
                    "KS, plain ": calibration.ks_uniform(values["bases"]).p,
                    "copies below 0.05": f"{int((copies >= limit).sum())} of {len(copies)}",
                }
            )
    return pd.DataFrame(rows), by_copies


def said_of_uniformity(table: pd.DataFrame, level: float) -> str:
    """A sentence on how many of the tests of uniformity reject, for the page."""
    tests = table[["KS, by copies", "KS, plain "]].to_numpy().ravel()
    rejected = int((pvalues.holm(np.log10(np.maximum(tests, 1e-300))) <= np.log10(level)).sum())
    return (
        f"Of {len(tests)} tests of uniformity (by copies for the tree, plain for the bases), {rejected or 'none'} "
        f"reject{'' if rejected > 1 else 's'} at {level:g} after Holm's correction."
    )


# Actual sizes -----------------------------------------------------------------------------------------------------


def actual_sizes(
    tables: Tables, collections: Mapping[str, Collection], *, n_draws: int, rng: np.random.Generator
) -> dict[tuple[str, str, bool], list[ActualSize]]:
    """Actual sizes at `LEVELS` for each text and collection, per block (False) and aggregated (True)."""
    return {
        (text, kind, aggregated): common_units.actual_sizes(
            one.matchings, LEVELS, n_draws=n_draws, rng=rng, aggregated=aggregated, trees=collections[kind].origins
        )
        for (text, kind), one in tables.items()
        for aggregated in (False, True)
    }


def sizes_by_level(
    sizes: Mapping[tuple[str, str, bool], list[ActualSize]], tables: Tables
) -> list[dict[str, str | float | None]]:
    """One row for each text, collection and kind of p-value; beside the sizes stands what the counts alone predict."""
    return [
        {
            "text": text,
            "models": kind,
            "p-values": "aggregated" if aggregated else "per block",
            **{f"{s.level:g}": format_interval(s.size, s.low, s.high, 4) for s in found},
            "0.05, from f alone": None if aggregated else common_units.predicted_size(one.common, one.width, 0.05),
            "units in common": None if aggregated else float(one.common.mean()),
        }
        for (text, kind, aggregated), found in sizes.items()
        for one in (tables[text, kind],)
    ]


def counts_by_block(bases: Compared, tree: Compared) -> dict[str, NDArray[np.int64]]:
    """Units in common of each block of the bases, and of the tree's first and last block, for the page's picture."""
    last = tree.common.shape[1] - 1
    return {f"bases, block {b}": bases.common[:, b] for b in range(bases.common.shape[1])} | {
        f"tree, block {b}": tree.common[:, b] for b in (0, last)
    }


def said_of_sizes(sizes: Mapping[tuple[str, str, bool], list[ActualSize]], tables: Tables) -> str:
    """Sentences on the actual sizes of single blocks and on units in common, for the page."""
    blocks = [one for (_, _, aggregated), found in sizes.items() if not aggregated for one in found]
    words = []
    for level in LEVELS:
        found = [one for one in blocks if one.level == level]
        above = sum(one.low > level for one in found)
        words.append(
            f"at {level:g} from {min(one.size for one in found):.4f} to {max(one.size for one in found):.4f} "
            f"({above} of {len(found)} intervals above the level)"
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
