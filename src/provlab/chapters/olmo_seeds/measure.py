"""Runs of one recipe at several budgets: which are compared, whether p-values are uniform, what they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from provlab import zoo
from provlab.chapters.shared import calibration
from provlab.engine.lineage import short_name
from provlab.inference import pvalues
from provlab.inference.matching import cosine_similarity
from provlab.models import anatomy
from provlab.models.activations import mlp_activations, random_tokens
from provlab.models.checkpoint import Checkpoint
from provlab.plots import style
from provlab.publishing.published import published_table

Pair = tuple[str, str]
Matrix = NDArray[np.float32]
Matchings = Mapping[Pair, Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]]]  # by gate and by up, block by block
OWN_SEEDS, SAME_START = "own seeds", "same initialisation"  # what the two kinds of pairs share
# columns of the paper's Table 9
_PUBLISHED = {"phi_u": "p_U", "phi_h": "p_H", "phi_l2": "p_l2", "phi_match": "p_match"}
N_REDRAWN = 20_000  # random orders of the second model's units


@dataclass(frozen=True)
class Budget:
    """Pairs of runs that have seen equally many tokens.

    Attributes
    ----------
    tokens : int
        Seen by each run.
    independent : list of pairs
        Runs with their own seeds; no run is in two pairs.
    same_start : list of pairs
        A run and its rerun, from one initialisation.
    """

    tokens: int
    independent: list[Pair]
    same_start: list[Pair]

    @classmethod
    def read(cls, tokens: int, independent: Sequence[Sequence[str]], same_start: Sequence[Sequence[str]]) -> "Budget":
        """Make it from its record, in which JSON has lists for pairs."""
        return cls(tokens, [(a, b) for a, b in independent], [(a, b) for a, b in same_start])


def budgets(runs: str, reruns: str, n_budgets: int, n_pairs: int) -> list[Budget]:
    """Name the pairs at each budget: run 1 and run n + 1, run 2 and run n + 2, ...; run 1 and rerun 1, ..."""
    recipes = zoo.families(runs.partition("@")[2] or zoo.default_edition())
    found = []
    for budget in range(1, n_budgets + 1):
        names = [runs.format(budget=budget, n=n + 1) for n in range(2 * n_pairs)]
        again = [reruns.format(budget=budget, n=n + 1) for n in range(n_pairs)]
        first, second = names[:n_pairs], names[n_pairs:]
        tokens = zoo.tokens(short_name(first[0]), recipes)
        found.append(Budget(tokens, list(zip(first, second, strict=True)), list(zip(first, again, strict=True))))
    return found


def labels(stages: Sequence[Budget]) -> dict[Pair, tuple[int, str]]:
    """Tokens seen and common start of each pair."""
    starts = ((OWN_SEEDS, "independent"), (SAME_START, "same_start"))
    return {pair: (stage.tokens, start) for stage in stages for start, key in starts for pair in getattr(stage, key)}


def log10_uniformity(log10_p: ArrayLike, n_permutations: int | None = None) -> float:
    """log10 p of the uniformity of p-values, by Kolmogorov and Smirnov, or of PERMTEST's on their own grid.

    Parameters
    ----------
    log10_p
        ``(pairs,)``, of disjoint pairs.
    n_permutations
        T, if the p-values lie on the grid 1/(T+1), ..., 1.
    """
    values = np.asarray(log10_p, dtype=float)
    if n_permutations is None:
        return float(np.log10(calibration.ks_uniform(values).p))
    return float(np.log10(calibration.discrete_uniform_excess(10.0**values, n_permutations).p_two_sided))


def power_of_uniformity(n_pairs: int, n_budgets: int, n_tests: int, level: float) -> float:
    """Share of studies that find a statistic not uniform whose p-values are squares of uniform ones, at every budget.

    Kolmogorov and Smirnov's test at each of the budgets, against `level` over all the `n_tests` of the study; 2,000
    draws of a fixed seed.
    """
    p = np.sort(np.random.default_rng(0).random((2000, n_budgets, n_pairs)) ** 2)
    steps = np.arange(1, n_pairs + 1) / n_pairs
    distance = np.maximum(steps - p, p - steps + 1 / n_pairs).max(axis=-1)
    return float((distance.max(axis=1) >= stats.kstwo.isf(level / n_tests, n_pairs)).mean())


def most_opposite(blocks: pd.DataFrame, at: Mapping[Pair, tuple[int, str]]) -> pd.DataFrame:
    """For each statistic of matchings the block, in runs with their own seeds, whose correlation is the most negative.

    Parameters
    ----------
    blocks
        A row for each statistic, pair and block: a, b, statistic, block, value (the correlation), log10_p (one-sided),
        paper_log10_p (two-sided).
    at
        Tokens seen and common start of each pair.

    Returns
    -------
    DataFrame
        A row a statistic; "after Holm" is of the two-sided p over all blocks of the statistic.
    """
    own = blocks[[at[pair][1] == OWN_SEEDS for pair in zip(blocks["a"], blocks["b"], strict=True)]]
    lines = []
    for statistic, group in own[own["paper_log10_p"].notna()].groupby("statistic", sort=False):
        holm = pvalues.holm(group["paper_log10_p"].to_numpy())
        place = int(group["value"].to_numpy().argmin())
        row = group.iloc[place]
        lines.append(
            {
                "statistic": statistic,
                "a": row["a"],
                "b": row["b"],
                "tokens": at[row["a"], row["b"]][0],
                "block": int(row["block"]),
                "of blocks": len(group),
                "correlation": row["value"],
                "p, one-sided": 10 ** row["log10_p"],
                "p, two-sided": 10 ** row["paper_log10_p"],
                "after Holm": 10 ** holm[place],
            }
        )
    return pd.DataFrame(lines)


def not_accused_for(opposite: pd.DataFrame, level: float) -> str:
    """Say whether a two-sided test would accuse for any of `most_opposite`, in Markdown."""
    worst = opposite.loc[opposite["after Holm"].idxmin()]
    words = (
        f"Of {worst['a']} and {worst['b']} at {worst['tokens']:,} tokens, block {worst['block']} has a correlation of "
        f"{worst['correlation']:.2f} ({style.word(worst['statistic'])}): two-sided p = {worst['p, two-sided']:.2g}, "
        f"{worst['after Holm']:.2g} after Holm over the {worst['of blocks']} blocks of that statistic; one-sided p = "
        f"{worst['p, one-sided']:.6f}."
    )
    if worst["after Holm"] > level:
        return f"{words} At {level:g} a two-sided test would not accuse either."
    return (
        f"{words} **At {level:g} a two-sided test would call this pair of independent runs dependent.** The one-sided "
        "test does not: no common origin is known that makes matchings run against each other. That does not explain "
        "where the correlation comes from."
    )


def uniformity(own: pd.DataFrame, n_permutations: int) -> pd.DataFrame:
    """Spread of the p-values of runs with their own seeds, and its p of uniformity with Holm's correction.

    Parameters
    ----------
    own
        Columns statistic, tokens, log10_p.
    n_permutations
        T of phi_l2.
    """
    rows = []
    for (statistic, tokens), group in own.groupby(["statistic", "tokens"], sort=False):
        grid = n_permutations if statistic == "phi_l2" else None
        rows.append(
            {
                "statistic": statistic,
                "tokens": tokens,
                "n": len(group),
                "smallest p": 10 ** group["log10_p"].min(),
                "largest p": 10 ** group["log10_p"].max(),
                "p of uniformity": 10 ** log10_uniformity(group["log10_p"], grid),
            }
        )
    spread = pd.DataFrame(rows)
    spread["after Holm"] = 10.0 ** pvalues.holm(np.log10(spread["p of uniformity"]))
    return spread


def agreement(matchings: Matchings, at: Mapping[Pair, tuple[int, str]]) -> pd.DataFrame:
    """Units to which gate and up give the same partner, in runs with their own seeds: mean by tokens and block.

    A random permutation has one fixed point on average, with variance one, whatever the number of units.
    """
    lines = [
        {"tokens": at[pair][0], "block": block, "agree": int((gate == up).sum())}
        for pair, blocks in matchings.items()
        if at[pair][1] == OWN_SEEDS
        for block, (gate, up) in enumerate(blocks)
    ]
    agree = pd.DataFrame(lines).groupby(["tokens", "block"])["agree"].agg(["count", "mean"]).reset_index()
    agree["in standard errors from 1"] = (agree["mean"] - 1) * np.sqrt(agree["count"])
    return agree


def redrawn(gate: NDArray[np.intp], up: NDArray[np.intp], *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Spearman's correlation of two matchings when the units of the second model are put in random orders.

    Parameters
    ----------
    gate, up
        ``(h,)``, the partner of each unit by either matching; among the units of a larger side where some of this side
        were left out, and then ranked.

    Returns
    -------
    array
        ``(N_REDRAWN,)``.
    """
    h, n = len(gate), 1 + max(gate.max(), up.max())
    distances = np.empty(N_REDRAWN)
    for draw in range(N_REDRAWN):
        order = rng.permutation(n)
        distances[draw] = np.square(np.subtract(*(np.argsort(np.argsort(order[one])) for one in (gate, up)))).sum()
    return 1 - 6 * distances / (h * (h**2 - 1))


def against_redrawn(blocks: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]], *, seed: int) -> pd.DataFrame:
    """Correlation of gate and up matching in each block, its p-value, and the same from its own redrawn null."""
    lines = []
    for block, (gate, up) in enumerate(blocks):
        rho = pvalues.spearman(gate, up)
        null = redrawn(gate, up, rng=np.random.default_rng(seed))
        as_high, as_low = int((null >= rho.rho).sum()), int((null <= rho.rho).sum())
        lines.append(
            {
                "block": block,
                "units that agree": int((gate == up).sum()),
                "correlation": rho.rho,
                "log10 p": rho.log10_p,
                "mean when redrawn": null.mean(),
                "sd when redrawn": null.std(),
                "p when redrawn": (1 + as_high) / (1 + len(null)),
                "p of one so low": (1 + as_low) / (1 + len(null)),
            }
        )
    return pd.DataFrame(lines)


@dataclass(frozen=True)
class Control:
    """Pairs of one initialisation: a row for each statistic, a column for each number of tokens.

    Attributes
    ----------
    found : DataFrame
        How many Holm's procedure rejects, over all pairs and statistics.
    weakest : DataFrame
        The largest log10 p among them.
    """

    found: pd.DataFrame
    weakest: pd.DataFrame


def control(same_start: pd.DataFrame) -> Control:
    """Count the pairs of one initialisation that are found.

    Parameters
    ----------
    same_start
        Columns statistic, tokens, log10_p.
    """
    rows = same_start.assign(found=pvalues.holm(same_start["log10_p"].to_numpy(dtype=float)) <= -2.0)
    found = rows.pivot_table(index="statistic", columns="tokens", values="found", aggfunc="sum", sort=False)
    weakest = rows.pivot_table(index="statistic", columns="tokens", values="log10_p", aggfunc="max", sort=False)
    return Control(found.astype(int), weakest)


def table9(own: pd.DataFrame, stages: Sequence[Budget]) -> pd.DataFrame:
    """The paper's p-values, budget by budget, beside median and range of ours in the paper's two-sided form."""
    lines = []
    for line, stage in zip(published_table("independence_table9_olmo_seeds"), stages, strict=False):
        here = own[own["tokens"] == stage.tokens]
        row = {"tokens, published": line["train_tokens"], "tokens, ours": f"{stage.tokens:,}"}
        for name, column in _PUBLISHED.items():
            values = here[here["statistic"] == name]
            p = 10.0 ** values["paper_log10_p"].fillna(values["log10_p"])  # PERMTEST has one form
            row[f"{name}, published"] = line[column]
            row[f"{name}, ours"] = f"{p.median():.2f} ({p.min():.2g} to {p.max():.2g})" if len(p) else ""
        lines.append(row)
    return pd.DataFrame(lines)


def divergences(frame: pd.DataFrame, stages: Sequence[Budget]) -> pd.DataFrame:
    """The paper's log divergence of outputs, budget by budget, beside the range of ours by common start."""
    jsd = frame[frame["statistic"] == "phi_jsd"].assign(log_jsd=lambda rows: np.log(rows["value"]))
    lines = []
    for line, stage in zip(published_table("independence_table9_olmo_seeds"), stages, strict=False):
        row = {
            "tokens, published": line["train_tokens"],
            "log JSD, published": line["log_jsd"],
            "tokens, ours": f"{stage.tokens:,}",
        }
        for start, group in jsd[jsd["tokens"] == stage.tokens].groupby("start", sort=False):
            row[f"log JSD, {start}"] = f"{group['log_jsd'].min():.2f} to {group['log_jsd'].max():.2f}"
        lines.append(row)
    return pd.DataFrame(lines)


@dataclass(frozen=True)
class Units:
    """Hidden units of a model, by block: activations on random tokens and rows of the projections.

    Attributes
    ----------
    active : mapping
        "hidden" and "gate" -> for each block ``(h, tokens)``.
    weights : mapping
        "gate" and "up" -> for each block ``(h, d)``.
    """

    active: Mapping[str, Sequence[Matrix]]
    weights: Mapping[str, Sequence[Matrix]]

    @classmethod
    def of(cls, source: str, *, seed: int, device: str = "cpu") -> "Units":
        """Run a model on 32 sequences of 32 random tokens, and read its projections."""
        checkpoint = Checkpoint.open(source)
        parts = anatomy.of(checkpoint)
        tokens = random_tokens(parts.vocab_size, 32, 32, seed=seed)
        active = mlp_activations(checkpoint, tokens, kinds=("hidden", "gate"), device=device)
        weights = {
            role: [parts.read(checkpoint, role, block) for block in range(parts.n_blocks)] for role in ("gate", "up")
        }
        return cls(active, weights)


def partners(first: NDArray[np.floating], second: NDArray[np.floating]) -> dict[str, float]:
    """How often the unit at the same place is nearest; median of its cosine, and of the largest with another unit.

    Parameters
    ----------
    first, second
        ``(h, n)``, one row a unit.
    """
    cosines = cosine_similarity(first, second)
    partner = np.diagonal(cosines).copy()
    np.fill_diagonal(cosines, -1.0)
    other = cosines.max(axis=1)
    return {"nearest": np.mean(partner > other), "partner": np.median(partner), "another": np.median(other)}


def nearest_partners(stages: Sequence[Budget], n_pairs: int, *, seed: int, device: str = "cpu") -> pd.DataFrame:
    """`partners` in runs of one initialisation, by view of the units and tokens, averaged over blocks and pairs.

    Parameters
    ----------
    stages
        Budgets.
    n_pairs
        At each budget, from the first on.
    """
    rows = []
    for stage in stages:
        for pair in stage.same_start[:n_pairs]:
            run, rerun = (Units.of(source, seed=seed, device=device) for source in pair)
            for block, gate in enumerate(run.weights["gate"]):
                # gate activations are G x, and G (h, d) has more rows than columns: its pseudoinverse gives x back
                entered = np.linalg.pinv(gate) @ run.active["gate"][block]
                active = run.active["gate"][block]
                views: dict[str, tuple[NDArray[np.floating], NDArray[np.floating]]] = {
                    "up projection": (run.weights["up"][block], rerun.weights["up"][block]),
                    "gate activations": (active, rerun.active["gate"][block]),
                    "gate activations on one input": (active, rerun.weights["gate"][block] @ entered),
                    "hidden activations": (run.active["hidden"][block], rerun.active["hidden"][block]),
                }
                rows += [{"view": view, "tokens": stage.tokens, **partners(a, b)} for view, (a, b) in views.items()]
    return pd.DataFrame(rows).groupby(["view", "tokens"], sort=False).mean().reset_index()
