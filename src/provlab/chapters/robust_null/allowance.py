"""phi_MATCH with an allowance for units in common, beside the paper's form: actual sizes, and power.

Between independent models a few units have one partner by gate and by up without evidence. `provlab compare` allows for
a share of the units, declared beforehand (`PhiMatch.COMMON`): up to so many units in common are left out before the
rest is tested. What that does to independent pairs is found by the law of renumbered matchings (`common_units`), and
what it costs on dependent pairs by the statistic itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from provlab.chapters.robust_null import common_units
from provlab.chapters.robust_null.common_units import ActualSize, Matchings
from provlab.plots import format_interval
from provlab.statistics import get
from provlab.statistics.base import Array, Model, Options
from provlab.statistics.phi_match import GateAndUp, PhiMatch

ALLOWANCE = PhiMatch.COMMON  # share of the units that may be in common without evidence
LEVELS = (0.05, 0.01, 0.001)
SIGNED, UNSIGNED = "phi_match", "phi_match_unsigned"


# Size ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Independent:
    """Independent pairs of models, matched.

    Attributes
    ----------
    same_recipe
        Whether the models of a pair differ in their seeds alone.
    matchings
        By statistic.
    origins
        Of each model: models of one origin are left out together; by default each is its own.
    """

    same_recipe: bool
    matchings: Mapping[str, Matchings]
    origins: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Sizes:
    """Actual sizes of the aggregate over blocks, among independent pairs.

    Attributes
    ----------
    models, statistic
        Which models, by which statistic.
    same_recipe
        Whether the models of a pair differ in their seeds alone.
    n_pairs, width
        Pairs of models, and hidden units of a block.
    common, most
        Units in common of a block, mean and largest number.
    paper, allowed
        At each of `LEVELS`, by the paper's form and under the allowance.
    """

    models: str
    statistic: str
    same_recipe: bool
    n_pairs: int
    width: int
    common: float
    most: int
    paper: list[ActualSize]
    allowed: list[ActualSize]


def sizes(collections: Mapping[str, Independent], *, n_draws: int, seed: int) -> list[Sizes]:
    """Find the actual sizes of both forms, and of both statistics, in each collection.

    Parameters
    ----------
    collections
        By name.
    n_draws
        Orders of units for each pair.
    seed
        Of the orders; both forms are drawn in their own.
    """
    rows: list[Sizes] = []
    for name, one in collections.items():
        for statistic, matchings in one.matchings.items():
            rng = np.random.default_rng([seed, len(rows)])
            paper, allowed = (
                common_units.actual_sizes(
                    matchings, LEVELS, n_draws=n_draws, rng=rng, aggregated=True, trees=one.origins, allowance=allowance
                )
                for allowance in (None, ALLOWANCE)
            )
            table = np.array(list(matchings.values()))  # (pairs, blocks, 2, h)
            common = (table[:, :, 0] == table[:, :, 1]).sum(axis=-1)
            rows.append(
                Sizes(
                    models=name,
                    statistic=statistic,
                    same_recipe=one.same_recipe,
                    n_pairs=len(matchings),
                    width=table.shape[-1],
                    common=float(common.mean()),
                    most=int(common.max()),
                    paper=paper,
                    allowed=allowed,
                )
            )
    return rows


def size_table(rows: Sequence[Sizes]) -> pd.DataFrame:
    """Table of sizes: one row for each collection and statistic."""
    return pd.DataFrame(
        [
            {
                "models": row.models,
                "matched": WORDS[row.statistic],
                "pairs": row.n_pairs,
                "units": row.width,
                "in common": f"{row.common:.1f}, at most {row.most}",
                **{
                    f"{one.level:g}, {form}": format_interval(one.size, one.low, one.high, 4)
                    for form, found in (("paper", row.paper), ("allowance", row.allowed))
                    for one in found
                },
            }
            for row in rows
        ]
    )


WORDS = {SIGNED: "signed", UNSIGNED: "unsigned"}


def said_of_sizes(rows: Sequence[Sizes]) -> str:
    """How large the sizes are at most, for the page."""
    pairs = sum(row.n_pairs for row in rows if row.same_recipe and row.statistic == SIGNED)
    words = []
    for k, level in enumerate(LEVELS):
        paper, allowed = (max(getattr(row, form)[k].size for row in rows) for form in ("paper", "allowed"))
        words.append(f"at {level:g} the paper's form is worth up to {paper:.4f}, with the allowance {allowed:.4f}")
    common = [np.mean([row.common for row in rows if row.statistic == one]) for one in (SIGNED, UNSIGNED)]
    return (
        f"Over {pairs:,} pairs of one recipe and the families of the tree: {'; '.join(words)}. Signed matchings have "
        f"{common[0]:.1f} units in common on average over these collections, unsigned ones {common[1]:.1f}."
    )


# Power --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Power:
    """One pair of models by one statistic.

    Attributes
    ----------
    pair, statistic
        Which pair, by which statistic.
    agree, n
        Units in common over all blocks, of so many.
    paper, allowed
        log10 p by the paper's form and under the allowance, aggregated over blocks.
    """

    pair: str
    statistic: str
    agree: int
    n: int
    paper: float
    allowed: float


def power(origin: str, kin: Sequence[str], noise: Sequence[float], options: Options) -> list[Power]:
    """Compare a model with its kin, and with the first of them under noise.

    Parameters
    ----------
    origin, kin
        Sources.
    noise
        Standard deviations of the noise on all gate and up activations of the first of `kin`, in those of the
        activations.
    options
        Of the statistics; one pass serves both.
    """
    prepare = PhiMatch().prepare
    own = prepare(Model.open(origin), options)
    found = {source: prepare(Model.open(source), options) for source in kin}
    for scale in noise:
        found[f"{kin[0]}, noise of {scale:g} sd"] = _noisy(found[kin[0]], scale, options.seed)
    rows = []
    for name, features in found.items():
        for statistic in (SIGNED, UNSIGNED):
            one = get(statistic)
            blocks = [one.compare_block(own.block(k), features.block(k), k, options) for k in range(len(own.gate))]
            outcome = one.aggregate(blocks)
            assert outcome.log10_p is not None
            agree, n = (sum(block.detail[key] for block in blocks) for key in ("agree", "n"))
            rows.append(Power(name, statistic, agree, n, outcome.detail["paper_log10_p"], outcome.log10_p))
    return rows


def _noisy(features: GateAndUp, scale: float, seed: int) -> GateAndUp:
    rng = np.random.default_rng(seed)

    def noisy(kinds: Sequence[Array]) -> list[Array]:
        return [kind + scale * np.std(kind) * rng.standard_normal(kind.shape, dtype=np.float32) for kind in kinds]

    return GateAndUp(noisy(features.gate), noisy(features.up), features.tokens)


def power_table(rows: Sequence[Power]) -> pd.DataFrame:
    """Table of power: one row a pair, signed beside unsigned."""
    pairs: dict[str, dict[str, str | float]] = {row.pair: {} for row in rows}
    for row in rows:
        word = WORDS[row.statistic]
        pairs[row.pair] |= {
            f"{word}: units that agree": f"{row.agree} of {row.n}",
            f"{word}: log10 p, paper": row.paper,
            f"{word}: log10 p, allowance": row.allowed,
        }
    return pd.DataFrame(pairs.values(), index=pd.Index(pairs, name="pair"))


def said_of_power(rows: Sequence[Power]) -> str:
    """What the allowance and the unsigned matching cost, for the page."""
    signed, unsigned = ({row.pair: row for row in rows if row.statistic == one} for one in (SIGNED, UNSIGNED))
    # where there is something to lose: pairs that the paper's form calls at 10^-4
    called = [row for row in signed.values() if row.paper <= -4.0]
    kept = [row.allowed / row.paper for row in called]
    turned = [unsigned[row.pair].allowed / row.allowed for row in called if row.allowed < 0]
    return (
        f"Of {len(called)} pairs that the signed paper's form puts at $10^{{-4}}$ or below, the allowance keeps "
        f"{min(kept):.0%} to {max(kept):.0%} of the exponent; matching by the size of the cosine keeps "
        f"{min(turned):.0%} to {max(turned):.0%} of what the signed matching has under the allowance."
    )
