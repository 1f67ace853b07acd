"""Measurements of phi_MATCH between independent models: causes of units in common, their numbers, power."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from provlab.inference import pvalues
from provlab.plots import format_interval
from provlab.statistics import get
from provlab.statistics.base import Array
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import GateAndUp, PhiMatch
from provlab_study.robust_null import common_units as units
from provlab_study.robust_null.common_units import Matchings
from provlab_study.robust_null.predicates import PER
from provlab_study.shared import calibration
from provlab_study.shared.block_map import BlockMap

Floats = NDArray[np.float64]
Pair = tuple[str, str]
LEVELS = (0.05, 0.01, 0.001)
BOTH = {"phi_match": "signed", "phi_match_unsigned": "unsigned"}

# Which units these are --------------------------------------------------------------------------------------------


def alignments(
    features: Mapping[str, GateAndUp], matchings: Matchings
) -> tuple[pd.DataFrame, dict[tuple[str, int, int], int]]:
    """How aligned gate and up are in units in common and in all others, and which units are in common most often.

    Parameters
    ----------
    features
        Activations of some models, by source.
    matchings
        All pairs of them, in the order of `features`, and possibly others.

    Returns
    -------
    tuple
        One row a block; and (model, block, unit) -> the number of other models with which it is in common.
    """
    rows, popular = [], dict[tuple[str, int, int], int]()
    for block in range(len(next(iter(features.values())).gate)):
        aligned = {source: units.alignment(f.gate[block], f.up[block]) for source, f in features.items()}
        inside, outside = [], []
        for a, b in combinations(features, 2):
            by_gate, by_up = matchings[a, b][block]
            agree = by_gate == by_up
            inside += aligned[a][agree].tolist()
            outside += aligned[a][~agree].tolist()
            for unit in np.flatnonzero(agree):
                for place in ((a, block, int(unit)), (b, block, int(by_gate[unit]))):
                    popular[place] = popular.get(place, 0) + 1
        rows.append(
            {"block": block, "alignment of units in common": np.median(inside), "of all others": np.median(outside)}
        )
    return pd.DataFrame(rows), popular


def most_common(
    features: Mapping[str, GateAndUp],
    popular: Mapping[tuple[str, int, int], int],
    tokens: NDArray[np.int64],
    tokenizer: PreTrainedTokenizerBase,
) -> pd.DataFrame:
    """The eight units in common with the most models, with the tokens to which they respond most."""
    names = np.unique(tokens)

    def strongest(activation: Floats) -> str:
        mean = np.array([np.abs(activation[tokens == name]).mean() for name in names])
        return "  ".join(repr(tokenizer.decode([int(names[i])])) for i in np.argsort(-mean)[:3])

    rows = []
    for (source, block, unit), times in sorted(popular.items(), key=lambda item: -item[1])[:8]:
        gate, up = features[source].gate[block], features[source].up[block]
        rows.append(
            {
                "model": source.partition(":")[2],
                "block": block,
                "unit": unit,
                f"in common with, of {len(features) - 1}": times,
                "gate responds most to": strongest(gate[unit]),
                "up responds most to": strongest(up[unit]),
                "alignment": units.alignment(gate, up)[unit],
            }
        )
    return pd.DataFrame(rows)


# Sizes and power: each a table, and sentences on it -----------------------------------------------------------------


def against_uniform(uniform: Sequence[Mapping[str, Any]], level: float) -> tuple[pd.DataFrame, str]:
    """Tests of uniformity with Holm's correction over all of them, and how many reject at a level."""
    frame = pd.DataFrame(uniform)
    frame["after Holm"] = 10.0 ** pvalues.holm(np.log10(frame["ks_p"]))
    frame["p-values"], frame["smallest p"] = frame["per"].map(PER), 10.0 ** frame["smallest"]
    rows = frame[frame["after Holm"] <= level * (1 + 1e-9)]
    rejected = "; ".join(rows["text"] + ", " + rows["models"] + " " + rows["p-values"])
    table = frame[["text", "models", "p-values", "n_pairs", "smallest p", "ks_p", "after Holm"]]
    return (
        table.rename(columns={"n_pairs": "pairs", "ks_p": "KS, by copies"}),
        f"Of {len(frame)} tests of uniformity, at {level:g} after Holm's correction, "
        + (f"{len(rows)} reject: {rejected}." if len(rows) else "none rejects."),
    )


def fisher_in_words(rows: Iterable[Mapping[str, float]], width: int) -> str:
    """Sentences on the level to use for an aggregate over 32 blocks, and on wide blocks."""
    level = next(row["0.01 is had at"] for row in rows if row["blocks"] == 32)
    narrow, wide = (next(f for f in range(2, h) if units.predicted_size([f], h, 0.01) >= 0.02) for h in (width, 11_008))
    return (
        f"With common units as in this zoo, a test of actual size 0.01 by an aggregate over 32 blocks rejects when $p$ "
        f"is below {level:.4f}. The actual size of one block at 0.01 doubles with {narrow} common units of "
        f"{width} in every pair, or with {wide:,} of the 11,008 of a 7B model."
    )


def allowance_summary(rows: Sequence[Mapping[str, Any]]) -> tuple[pd.DataFrame, str]:
    """Actual sizes of both forms, one row for each collection and statistic, and the largest of them."""
    forms = ("paper", "allowed")
    table = [
        {"models": row["models"], "matched": BOTH[row["statistic"]], "pairs": row["n_pairs"], "units": row["width"]}
        | {"in common": f"{row['common']:.1f}, at most {row['most']}"}
        | {
            f"{s.level:g}, {word}": format_interval(s.size, s.low, s.high, ".4f")
            for form, word in zip(forms, ("paper", "allowance"), strict=True)
            for s in row[form]
        }
        for row in rows
    ]
    words = []
    for k, level in enumerate(LEVELS):
        paper, allowed = (max(row[form][k].size for row in rows) for form in forms)
        words.append(f"at {level:g} the paper's form is worth up to {paper:.4f}, with the allowance {allowed:.4f}")
    n_pairs = sum(row["n_pairs"] for row in rows if row["same_recipe"] and row["statistic"] == "phi_match")
    signed, unsigned = (np.mean([row["common"] for row in rows if row["statistic"] == name]) for name in BOTH)
    return pd.DataFrame(table), (
        f"Over {n_pairs:,} pairs of one recipe and the families of the tree: {'; '.join(words)}. Signed matchings have "
        f"{signed:.1f} units in common on average over these collections, unsigned ones {unsigned:.1f}."
    )


def power(origin: str, kin: Sequence[str], noise: Sequence[float], options: Options) -> list[dict[str, Any]]:
    """Compare a model with its kin, and with the first of them under noise, by both statistics and in both forms.

    Parameters
    ----------
    origin, kin
        Sources.
    noise
        Standard deviations of the noise on all gate and up activations of the first of `kin`, in those of the
        activations.
    options
        Options of the statistics; one pass serves both.
    """
    prepare = PhiMatch().prepare
    own = prepare(Model.open(origin), options)
    features = {source: prepare(Model.open(source), options) for source in kin}
    for scale in noise:
        features[f"{kin[0]}, noise of {scale:g} sd"] = _noisy(features[kin[0]], scale, options.seed)
    rows = []
    for name, theirs in features.items():
        for statistic in map(get, BOTH):
            blocks = [statistic.compare_block(own.block(k), theirs.block(k), k, options) for k in range(len(own.gate))]
            outcome = statistic.aggregate(blocks)
            agree, n = (sum(block.detail.needed(key) for block in blocks) for key in ("agree", "n"))
            rows.append(
                {"pair": name, "statistic": statistic.name, "agree": agree, "n": n}
                | {"paper": outcome.detail.paper_log10_p, "allowed": outcome.log10_p}
            )
    return rows


def _noisy(features: GateAndUp, scale: float, seed: int) -> GateAndUp:
    rng = np.random.default_rng(seed)

    def noisy(kinds: Sequence[Array]) -> list[Array]:
        return [kind + scale * np.std(kind) * rng.standard_normal(kind.shape, dtype=np.float32) for kind in kinds]

    return GateAndUp(noisy(features.gate), noisy(features.up), features.tokens)


def power_summary(rows: Sequence[Mapping[str, Any]]) -> tuple[pd.DataFrame, str]:
    """One row a pair, signed beside unsigned, and the cost of the allowance and of the unsigned matching."""
    pairs: dict[str, dict[str, Any]] = {}
    for row in rows:
        word = BOTH[row["statistic"]]
        pairs.setdefault(row["pair"], {}).update(
            {
                f"{word}: units that agree": f"{row['agree']} of {row['n']}",
                f"{word}: log10 p, paper": row["paper"],
                f"{word}: log10 p, allowance": row["allowed"],
            }
        )
    signed, unsigned = ({row["pair"]: row for row in rows if row["statistic"] == name} for name in BOTH)
    called = [row for row in signed.values() if row["paper"] <= -4.0]  # pairs that have something to lose
    kept = [row["allowed"] / row["paper"] for row in called]
    turned = [unsigned[row["pair"]]["allowed"] / row["allowed"] for row in called if row["allowed"] < 0]
    return pd.DataFrame(pairs.values(), index=pd.Index(pairs, name="pair")), (
        f"Of {len(called)} pairs that the signed paper's form puts at $10^{{-4}}$ or below, the allowance keeps "
        f"{min(kept):.0%} to {max(kept):.0%} of the exponent; matching by the size of the cosine keeps "
        f"{min(turned):.0%} to {max(turned):.0%} of what the signed matching has under the allowance."
    )


# Pairs of blocks --------------------------------------------------------------------------------------------------


def pairs_of_blocks(
    mapped: Mapping[str, Mapping[Pair, BlockMap]], *, n_draws: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Uniformity and actual size of pairs of blocks of equal and of unequal index."""
    rows = []
    for kind, maps in mapped.items():
        for equal in (True, False):
            matchings = {
                pair: [np.stack([u.by_gate, u.by_up]) for (i, j), u in sorted(m.units.items()) if (i == j) == equal]
                for pair, m in maps.items()
            }
            values = np.concatenate([m.log10_p[np.eye(len(m.log10_p), dtype=bool) == equal] for m in maps.values()])
            size = units.actual_sizes(matchings, (0.05,), n_draws=n_draws, rng=rng)[0]
            interval = format_interval(size.size, size.low, size.high, ".4f")
            rows.append(
                {
                    "models": kind,
                    "blocks": "equal index" if equal else "unequal index",
                    "pairs of blocks": len(values),
                    "smallest log10 p": values.min(),
                    "KS, plain": calibration.ks_uniform(values).p,
                    "units in common": units.common_units(matchings).mean(),
                    "0.05 is worth": interval if np.isfinite(size.low) else f"{size.size:.4f}",
                }
            )
    return rows
