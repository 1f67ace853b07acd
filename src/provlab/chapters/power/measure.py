"""What the page on power measures: limits from draws and by the model, over width, blocks, noise and bits."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm import tqdm

from provlab import zoo
from provlab.chapters.power import blocks_needed as powers
from provlab.chapters.power import limits as limits_of
from provlab.chapters.power import planted
from provlab.chapters.shared import calibration
from provlab.engine.lineage import recipe_of, short_name
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint
from provlab.plots import format_interval
from provlab.zoo.quantise import bits_per_weight, quantised

Matrix = NDArray[np.float32]

#: rows of simulated blocks are four times as many as columns, as in the zoo
ROWS, COLUMNS = 256, 64
#: noise on copies, in units of the standard deviation of their weights
NOISE = np.linspace(1.6, 4.6, 11)
BITS = (8, 4, 3, 2, 1)
#: model -> hidden units, weights a row, blocks
SHAPES = {"zoo": (256, 64, 4), "1B": (8192, 2048, 16), "7B": (11008, 4096, 32), "70B": (28672, 8192, 80)}


# Simulated blocks -------------------------------------------------------------------------------------------------


def shares_found(widths: Sequence[int], n_repeats: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """Share of planted partners that MATCH finds (y, with low and high) beside the cavity equation's (said)."""
    rows = []
    for width in widths:
        columns = width // 4
        for separation in np.linspace(0.5, 5, 10):
            correlation = separation / np.sqrt(columns)
            if correlation >= 1:
                continue
            pairs = (
                planted.planted_rows(width, columns, correlation, rng=rng)
                for _ in range(max(4, min(n_repeats // 2, 4096 // width)))
            )
            drawn = [
                float((match_shuffled(a, b, seed=i).indices == np.arange(width)).mean())
                for i, (a, b) in enumerate(pairs)
            ]
            mean, error = np.mean(drawn), 1.96 * np.std(drawn) / np.sqrt(len(drawn))
            said = planted.recovered_share(planted.gaussian_separation(width, columns, correlation))
            rows.append(
                {"width": width, "x": separation, "y": mean, "low": mean - error, "high": mean + error, "said": said}
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class ByWidth:
    """Smallest correlation of partners found in one block, by its width.

    Attributes
    ----------
    limits
        One row a width: width, columns, measured, low, high (bootstrap), predicted.
    measured, predicted
        By label, the share of blocks that reach the target against the correlation: drawn, and by the model.
    """

    limits: pd.DataFrame
    measured: dict[str, pd.DataFrame]
    predicted: dict[str, pd.DataFrame]


def limits_by_width(
    widths: Sequence[int], target: float, power: float, n_repeats: int, *, rng: np.random.Generator
) -> ByWidth:
    """Draw blocks of each width around the correlation that the model predicts as the smallest found."""
    rows, measured, predicted = [], {}, {}
    for width in tqdm(widths, desc="widths", leave=False, delay=5):
        columns = width // 4
        expected = powers.smallest_correlation(width, columns, 1, target, power=power)
        if expected is None:  # one block of this width cannot reach the target
            continue
        grid = np.linspace(0.7, 1.15, 7) * expected
        grid = grid[grid < 1]
        drawn = np.stack([planted.simulated_log10_p(width, columns, float(c), n_repeats, rng=rng) for c in grid])
        limit = limits_of.detection_limit(grid, drawn, target, power=power, rng=rng)
        rows.append(
            {
                "width": width,
                "columns": columns,
                "measured": limit.value,
                "low": limit.low,
                "high": limit.high,
                "predicted": expected,
            }
        )
        counts = (drawn <= target).sum(axis=1)
        low, high = zip(*(calibration.size_interval(int(k), n_repeats) for k in counts), strict=True)
        measured[f"{width} rows"] = pd.DataFrame({"x": grid, "y": counts / n_repeats, "low": low, "high": high})
        fine = np.linspace(grid[0], grid[-1], 25)
        reached = [
            powers.reach_probability(planted.gaussian_separation(width, columns, float(c)), 1, target) for c in fine
        ]
        predicted[f"{width} rows"] = pd.DataFrame({"x": fine, "y": reached})
    return ByWidth(pd.DataFrame(rows), measured, predicted)


def limits_by_blocks(
    target: float, power: float, n_repeats: int, *, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Smallest correlation found with 1 to 32 blocks: measured (x, y, low, high), and by the model (x, y)."""
    grid = np.linspace(0.18, 0.40, 23)
    pool = np.stack(
        [
            planted.simulated_log10_p(ROWS, COLUMNS, float(c), 2 * n_repeats, rng=rng)
            for c in tqdm(grid, desc="blocks", leave=False, delay=5)
        ]
    )
    found, said = [], []
    for n_blocks in (1, 2, 4, 8, 16, 32):
        limit = limits_of.limit_over_blocks(grid, pool, n_blocks, target, power=power, rng=rng)
        if limit.value is not None and limit.low is not None and limit.high is not None:
            found.append({"x": n_blocks, "y": limit.value, "low": limit.low, "high": limit.high})
        said.append({"x": n_blocks, "y": powers.smallest_correlation(ROWS, COLUMNS, n_blocks, target, power=power)})
    return pd.DataFrame(found), pd.DataFrame(said)


# Copies of a zoo model --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reserve:
    """How much noise a copy's up projections bear before the base is no longer found: its noise reserve.

    Attributes
    ----------
    y, low, high
        Measured, in standard deviations of the weights, with a bootstrap interval; None beyond the noise tried.
    predicted
        By the model, from the separation without noise.
    separation
        Mean over blocks of how far partners stand out.
    """

    y: float | None
    low: float | None
    high: float | None
    predicted: float | None
    separation: float


def up_projections(source: str) -> list[Matrix]:
    """The up projection of every block."""
    checkpoint = Checkpoint.open(source)
    parts = anatomy.of(checkpoint)
    return [parts.read(checkpoint, "up", block) for block in range(parts.n_blocks)]


def reserve(
    original: Sequence[Matrix], copies: Sequence[Matrix], target: float, n_draws: int, *, rng: np.random.Generator
) -> tuple[Reserve, NDArray[np.float64]]:
    """Measure and predict the noise reserve of a copy.

    Returns
    -------
    tuple
        The reserve, and log10 p of each block, ``(noise levels, draws, blocks)``.
    """
    blocks = np.empty((len(NOISE), n_draws, len(original)))
    for draw in range(n_draws):
        noise = [np.float32(c.std()) * rng.standard_normal(c.shape, dtype=np.float32) for c in copies]
        for i, sigma in enumerate(NOISE):
            for j, (a, b, e) in enumerate(zip(original, copies, noise, strict=True)):
                matching = match_shuffled(a, b + np.float32(sigma) * e, seed=draw)
                blocks[i, draw, j] = pvalues.spearman(matching.indices).log10_p
    aggregated = np.apply_along_axis(pvalues.fisher, 2, blocks)
    limit = limits_of.mean_crossing(NOISE, aggregated, target, rng=rng)
    before = [planted.measured_separation(a, b) for a, b in zip(original, copies, strict=True)]
    predicted = powers.noise_limit(before, original[0].shape[1], target)
    return Reserve(limit.value, limit.low, limit.high, predicted, float(np.mean([one.mean for one in before]))), blocks


def reserves_of_tunes(
    base: str, tunes: Sequence[str], target: float, n_draws: int, *, rng: np.random.Generator
) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Noise reserves of a base and its descendants, by the tokens since the base, as a share of the base's (x).

    Returns
    -------
    tuple
        model, x and the fields of `Reserve`; and log10 p of the blocks of the base itself, as `reserve` gives them.
    """
    original, rows, of_base = up_projections(base), [], np.empty(0)
    for source in tqdm([base, *tunes], desc="tunes", leave=False, delay=5):
        measured, blocks = reserve(original, up_projections(source), target, n_draws, rng=rng)
        of_base = blocks if source == base else of_base
        rows.append({"model": short_name(source), "x": share_of_base_tokens(source), **asdict(measured)})
    return pd.DataFrame(rows).sort_values("x", ignore_index=True), of_base


def share_of_base_tokens(source: str) -> float:
    """Tokens that a zoo model saw since its base, over the base's own; 0 for the base.

    Raises
    ------
    InputError
        For any other source, of whose training nothing is known.
    """
    if recipe_of(source) is None:
        raise InputError(f"{source} is no zoo model, so the tokens that it saw are not known; leave it out of tunes")
    recipes = zoo.families(source.partition("@")[2] or zoo.default_edition())
    chain = zoo.lineage(short_name(source), recipes)
    return sum(zoo.tokens(one, recipes) for one in chain[:-1]) / zoo.tokens(chain[-1], recipes)


def reserves_of_bits(base: str, target: float, n_draws: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """Noise reserves of quantised copies of a base, by bits a weight (x)."""
    original, rows = up_projections(base), []
    for bits in BITS:
        measured, _ = reserve(original, [quantised(w, bits) for w in original], target, n_draws, rng=rng)
        rows.append({"bits": bits, "x": bits_per_weight(bits, 32), **asdict(measured)})
    return pd.DataFrame(rows)


def plain(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Rows of a frame with None for what is missing, as `Run.measure` keeps them."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


# How many blocks must be read -------------------------------------------------------------------------------------


def pilots(
    noisy: NDArray[np.float64], base: str, target: float, power: float, *, rng: np.random.Generator
) -> pd.DataFrame:
    """What `blocks_needed` answers from pilots of a few blocks, and the model's answer where it is known.

    Parameters
    ----------
    noisy
        log10 p of the blocks of the base with noise, as `reserves_of_tunes` gives them.
    """
    level = int(np.argmin(np.abs(NOISE - 3.4)))
    taken: dict[str, tuple[NDArray[np.float64], planted.Separation | None]] = {
        f"{short_name(base)} with noise of {NOISE[level]:.1f}": (noisy[level, 0], None)
    }
    for correlation in (0.20, 0.15, 0.0):
        what = f"8 simulated blocks, correlation {correlation:.2f}" if correlation else "8 independent blocks"
        drawn = planted.simulated_log10_p(ROWS, COLUMNS, correlation, 8, rng=rng)
        taken[what] = (drawn, planted.gaussian_separation(ROWS, COLUMNS, correlation) if correlation else None)
    rows = []
    for what, (log10_p, separation) in taken.items():
        answer = powers.blocks_needed(target, pilot=log10_p, power=power)
        model = powers.blocks_needed(target, separation=separation, power=power).blocks if separation else None
        rows.append(
            {
                "pilot": what,
                "its log10 p by Fisher": pvalues.fisher(log10_p),
                "blocks needed": _count(answer.blocks),
                "interval": f"{_count(answer.low)} to {_count(answer.high)}",
                "by the model": _count(model) if model else "",
            }
        )
    return pd.DataFrame(rows)


def _count(blocks: int | None) -> str:
    return "no number" if blocks is None else f"{blocks:,}"


@dataclass(frozen=True)
class Coverage:
    """Whether `blocks_needed` keeps what it promises, at one correlation.

    Attributes
    ----------
    correlation
        Of partners in simulated blocks.
    n_blocks
        Simulated, from which pilots are drawn.
    needed, by_model
        Blocks needed, from all of them and by the model.
    reached
        Share of draws of so many blocks that reach the target.
    held
        Share of pilots of 8 blocks whose interval holds `needed`.
    """

    correlation: float
    n_blocks: int
    needed: int
    by_model: int | None
    reached: float
    held: float

    def __str__(self) -> str:
        """Both findings in two lines."""
        return (
            f"correlation {self.correlation:g}: {self.needed} blocks from {self.n_blocks} simulated ones, "
            f"{self.by_model} by the model\nso many blocks reach the target in {self.reached:.0%} of draws; "
            f"{self.held:.0%} of pilots of 8 blocks have an interval that holds {self.needed}"
        )


def coverage(target: float, power: float, n_repeats: int, *, rng: np.random.Generator) -> Coverage:
    """Draw pilots of 8 blocks and sets of as many blocks as are needed."""
    correlation, separation = 0.22, planted.gaussian_separation(ROWS, COLUMNS, 0.22)
    by_model = powers.blocks_needed(target, separation=separation, power=power).blocks
    many = planted.simulated_log10_p(ROWS, COLUMNS, correlation, 6 * n_repeats, rng=rng)
    needed = powers.blocks_needed(target, pilot=many, power=power).blocks
    assert needed is not None  # dependence this strong always has an answer
    held = []
    for _ in range(400):
        answer = powers.blocks_needed(target, pilot=rng.choice(many, 8, replace=False), power=power)
        held.append(answer.low is not None and answer.low <= needed and (answer.high is None or needed <= answer.high))
    reached = np.mean([pvalues.fisher(rng.choice(many, needed)) <= target for _ in range(1000)])
    return Coverage(correlation, len(many), needed, by_model, float(reached), float(np.mean(held)))


# Larger models, by the model alone --------------------------------------------------------------------------------


def _noise(correlation: float) -> float:
    """Noise on an exact copy that leaves this correlation, in standard deviations of the weights."""
    return float(np.sqrt(1 / correlation**2 - 1))


def smallest_by_shape(target: float, power: float) -> pd.DataFrame:
    """Smallest correlation of partners that is found in models of published shapes, predicted."""
    rows = []
    for name, (width, columns, n_all) in SHAPES.items():
        row = {"model": name, "hidden units": width, "weights a row": columns, "blocks": n_all}
        for heading, n_blocks in {"1 block": 1, "4 blocks": 4, "all blocks": n_all}.items():
            smallest = powers.smallest_correlation(width, columns, n_blocks, target, power=power)
            assert smallest is not None  # all these widths reach the target with one block
            noise = _noise(smallest)
            row[heading] = f"{smallest:.3f} (noise {noise:,.{0 if noise >= 10 else 1}f}x)"
        row["run"] = "yes, above" if name == "zoo" else "predicted, not run"
        rows.append(row)
    return pd.DataFrame(rows)


def blocks_by_correlation(target: float, power: float) -> pd.DataFrame:
    """Blocks to read in models of 7 and 70 billion parameters, by the correlation of partners, predicted."""
    rows = []
    for correlation in (0.5, 0.1, 0.05, 0.04, 0.03, 0.025, 0.02, 0.015, 0.01):
        row = {"correlation of partners": correlation, "noise on a copy": f"{_noise(correlation):,.1f}x"}
        for name in ("7B", "70B"):
            width, columns, n_all = SHAPES[name]
            separation = planted.gaussian_separation(width, columns, correlation)
            needed = powers.blocks_needed(target, separation=separation, power=power)
            row[f"{name}: share found"] = f"{needed.share:.4f}"
            beyond = needed.blocks is None or needed.blocks > n_all
            row[f"{name}: blocks needed"] = f"more than its {n_all}" if beyond else f"{needed.blocks}"
        rows.append(row)
    return pd.DataFrame(rows)


# What the page says, and whether this run shows it ----------------------------------------------------------------


def largest_gap(shares: pd.DataFrame) -> float:
    """Largest distance of a measured share from the cavity equation's."""
    return float((shares["y"] - shares["said"]).abs().max())


def _off(measured: pd.Series, predicted: pd.Series) -> float:
    """Largest relative distance of what was measured from what was predicted, where both are there."""
    return float((measured / predicted - 1).abs().max())


def checks(
    shares: pd.DataFrame,
    limits: pd.DataFrame,
    blocks: tuple[pd.DataFrame, pd.DataFrame],
    tuned: pd.DataFrame,
    stored: pd.DataFrame,
    covered: Coverage,
    power: float,
) -> dict[str, bool]:
    """What the page says -> whether this run shows it."""
    found, said = blocks
    merged = found.merge(said, on="x", suffixes=("", "_said"))
    both = pd.concat([tuned, stored]).dropna(subset=["y", "predicted"])
    return {
        "the cavity equation gives the share of partners found, within 0.06": largest_gap(shares) < 0.06,
        "the smallest correlation falls with the width": bool(limits["measured"].dropna().is_monotonic_decreasing),
        "the model predicts the smallest correlation within 10%": _off(limits["measured"], limits["predicted"]) < 0.1,
        "the model predicts the gain of more blocks within 10%": _off(merged["y"], merged["y_said"]) < 0.1,
        "the noise reserve is predicted from the copy's separation, within 15%": _off(both["y"], both["predicted"])
        < 0.15,
        "longer training leaves a smaller reserve (rank correlation below 0)": bool(
            tuned["x"].corr(tuned["y"], method="spearman") < 0
        ),
        "the promised power is kept, within 5 points": abs(covered.reached - power) < 0.05,
        "intervals from 8 pilot blocks hold the answer in at least 90%": covered.held >= 0.9,
    }


def worded_limits(limits: pd.DataFrame) -> pd.DataFrame:
    """The limits by width as the page's table."""
    known = limits[["measured", "low", "high"]].notna().all(axis=1)
    words = [
        format_interval(row.measured, row.low, row.high) if there else "beyond the grid"
        for row, there in zip(limits.itertuples(), known, strict=True)
    ]
    return limits.assign(measured=words).drop(columns=["low", "high"])


def worded_reserves(tuned: pd.DataFrame, stored: pd.DataFrame) -> pd.DataFrame:
    """The reserves of tunes and of quantised copies as the page's table."""
    rows = pd.concat(
        [tuned.assign(copy=tuned["model"]), stored.assign(copy=[f"{b} bits" for b in stored["bits"]])],
        ignore_index=True,
    )
    return rows[["copy", "separation", "y", "low", "high", "predicted"]].rename(
        columns={"y": "noise reserve", "separation": "separation from the base"}
    )
