"""Steps of the page on language models: pairs opened together, two ways to draw compared, and kinds of inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.errors import ProvlabError
from provlab.kept import ArrayCache
from provlab.modeldiff import pipeline, reweighting
from provlab.modeldiff import report as difference
from provlab.modeldiff.bootstrap import chain_counts, percentiles
from provlab.modeldiff.comparison import TERMS, BothDirections, Summary
from provlab.modeldiff.composition import composition, label_share
from provlab.modeldiff.diagnostics import converged
from provlab.modeldiff.held_out import HeldOut, Range
from provlab.modeldiff.pipeline import SequenceModel
from provlab.modeldiff.representative import LEAST_EFFECTIVE, Direction, Draws, bin_of, within
from provlab.plots import format_number
from provlab.zoo import corpus
from provlab_study.model_diff.labels import TextKinds, repetition
from provlab_study.model_diff.predicates import REACH_TAIL, Domains, Reach, Repetition, Ways
from provlab_study.publishing.published import published_table

QUARTERS = (0, 0.25, 0.5, 0.75, 1)
# comparisons of this page to experiments of Table 2
_EXPERIMENTS = {"sizes": "2", "long": "3", "generations": "4"}
# and to the paper's settings of them
_SETTINGS = {"sizes": "GPT2 length 25", "long": "GPT2 length 100", "generations": "Llama length 25"}
_RESAMPLES = 500  # of chains, for the interval of a reach
_FAR = 1e9  # in the place of infinity, which a record cannot hold

Pair = tuple[str, str]


def open_pairs(pairs: Sequence[Pair], *, device: str, allow_pickle: bool) -> dict[str, SequenceModel]:
    """Open the models of several pairs, each once, on the tokens that they share with those they are compared with."""
    groups: list[set[str]] = []  # models that some chain of pairs connects are to be compared on the same tokens
    for pair in pairs:
        joined = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in joined] + [set(pair).union(*joined)]
    models: dict[str, SequenceModel] = {}
    for group in groups:
        models |= pipeline.open_models(sorted(group), device=device, allow_pickle=allow_pickle)
    return {source: models[source] for pair in pairs for source in pair}


def sides_finding(compared: Mapping[str, BothDirections]) -> str:
    """Say on which side of zero the differences lie, from the comparisons."""
    shares = [
        f"{name}: D is below 0 on {pair.a.share_below()[0]:.1%} of A's inputs and above 0 on "
        f"{1 - pair.b.share_below()[0]:.1%} of B's"
        for name, pair in compared.items()
    ]
    return "; ".join(shares) + "."


def published_and_ours(
    summaries: Mapping[str, Summary], pairs: Mapping[str, Pair], short: Mapping[str, str]
) -> pd.DataFrame:
    """Rows of Table 2 beside the comparisons that stand in their places."""
    lines = {(row["experiment"], row["representative_inputs"][0]): row for row in published_table("modeldiff_table2")}
    rows = []
    for name, experiment in _EXPERIMENTS.items():
        ours = summaries[name]
        for side, source, extent in zip("AB", pairs[name], (ours.extent_a, ours.extent_b), strict=True):
            line, first = lines[experiment, side], side == "A"
            rows.append(
                {
                    "published inputs": line["representative_inputs"],
                    "published D": f"{line['D_min']} to {line['D_max']}",
                    "published ratio": " : ".join(line[term] for term in TERMS) if first else "",
                    "our inputs": f"{side}: {short[source]}",
                    "our D, 1% to 99%": " to ".join(
                        "unknown" if end is None else format_number(end, ".2f") for end in extent
                    ),
                    "ours by R3": difference.ratio_text(ours.by_r3) if first else "",
                    "ours by count": difference.ratio_text(ours.by_count) if first else "",
                }
            )
    return pd.DataFrame(rows)


# The paper's way to draw, beside generation ---------------------------------------------------------------------------


def number_of_inputs(direction: Direction, seed: int) -> list[float]:
    """Log10 of the number of inputs, and its 95% interval by chain bootstrap."""
    numbers = direction.log10_numbers(np.random.default_rng(seed))
    return [float(numbers[0]), *map(float, percentiles(numbers[1:], direction.n_chains))]


def lower_end(
    model: SequenceModel, drawn: Draws, z: Range, settings: pipeline.Exchange, kept: ArrayCache, *, seed: int
) -> Ways | str:
    """Count a model's inputs in the lowest third of Z by both ways, replica exchange from the model's own text down.

    Parameters
    ----------
    model
        Whose inputs.
    drawn
        Draws by generation, some by colder tempers.
    z, settings, kept, seed
        As elsewhere; the settings' ladder begins at the model's own temperature.

    Returns
    -------
    Ways or str
        The numbers, or why there are none.
    """
    ends = (z[0], z[0] + (z[1] - z[0]) / 3)
    try:
        both = [drawn, reweighting.reweight(pipeline.exchanged(model, settings, kept))]
        both = [reweighting.representative(draws, ends) for draws in both]
    except ProvlabError as error:
        return str(error)
    states = [reweighting.density_of_states(draws, ends, seed=seed) for draws in both]
    if (worth := min(float(state.effective[0]) for state in states)) < LEAST_EFFECTIVE:
        return f"the draws there are worth {worth:.0f} equal ones, and {LEAST_EFFECTIVE:.0f} are needed"
    counts = [[float(ends[0]) for ends in (s.log10_count, s.log10_low, s.log10_high)] for s in states]
    what = f"log10 of {model.checkpoint.name.partition('@')[0]}'s inputs with NLL {ends[0]:.2f} to {ends[1]:.2f}"
    return Ways("lower end", "", what, counts[0], counts[1])


def reach(name: str, models: Sequence[str], compared: BothDirections, *, seed: int) -> dict[str, Any]:
    """How far D of each model's inputs reaches to its own side, as a record of `predicates.Reach`.

    The interval is by resampling whole chains.
    """
    of_a = -_quantiles(compared.a, REACH_TAIL, seed)
    of_b = _quantiles(compared.b, 1 - REACH_TAIL, seed + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = of_a / of_b
    low, high = percentiles(times[1:], compared.n_chains)
    ends = [float(times[0]), float(low), float(np.nan_to_num(high, posinf=_FAR))]
    effective = [compared.a.effective, compared.b.effective]
    return asdict(Reach(name, list(models), float(of_a[0]), float(of_b[0]), ends, effective))


def _quantiles(side: Direction, share: float, seed: int) -> NDArray[np.float64]:
    """The D that a share of the inputs do not exceed, and after it those of resampled chains: ``(1 + resamples,)``."""
    order = np.argsort(side.difference, kind="stable")
    d, weight, chain = side.difference[order], side.weight[order], side.chain[order]
    counts = chain_counts(side.n_chains, _RESAMPLES, np.random.default_rng(seed))
    found = np.empty(1 + _RESAMPLES)
    for k, times in enumerate(np.vstack([np.ones(side.n_chains, dtype=counts.dtype), counts])):
        reached = np.cumsum(weight * times[chain])
        found[k] = d[min(np.searchsorted(reached, share * reached[-1]), len(d) - 1)] if reached[-1] > 0 else np.nan
    return found


def ways_table(rows: Sequence[Ways]) -> pd.DataFrame:
    """Each number by both ways, with 95% intervals."""
    shown = "{:.3f} ({:.3f} to {:.3f})".format
    return pd.DataFrame(
        {
            "comparison": row.pair,
            "number": row.what,
            "by generation": shown(*row.generation),
            "by replica exchange": shown(*row.exchange),
            "apart, in joint intervals": row.apart,
        }
        for row in rows
    )


# The paper's ladders, beside ours ------------------------------------------------------------------------------------


def published_ladder(comparison: str) -> tuple[float, float]:
    """Ends of the paper's ladder of temperatures for a comparison, hottest first (Appendix C)."""
    for row in published_table("modeldiff_scalars"):
        if row["experiment"] == _SETTINGS[comparison] and row["quantity"] == "temperature ladder":
            coldest, hottest = (10 ** float(end.removeprefix("10^")) for end in row["value"].split(" .. "))
            return hottest, coldest
    raise KeyError(comparison)


def rungs(comparison: str, n: int) -> tuple[float, ...]:
    """The paper's ladder as `n` temperatures, evenly apart in their logs: it gives the ends alone."""
    return tuple(np.geomspace(*published_ladder(comparison), n).tolist())


def climb(
    comparison: str,
    whose: str,
    model: SequenceModel,
    settings: pipeline.Exchange,
    z: Range,
    kept: ArrayCache,
    seed: int,
) -> dict[str, Any]:
    """One model on one ladder: exchange rates, journeys, how well it mixed, and what it gives of the inputs in Z.

    Returns
    -------
    dict
        A row of `ladder_table`; ``swaps`` and ``taken`` are shares by ``exponent`` of the model's own law, and
        ``error`` says why no number is given.
    """
    row: dict[str, Any] = {"comparison": comparison, "ladder": whose, "length": settings.length}
    try:
        samples = pipeline.exchanged(model, settings, kept)
    except ProvlabError as error:  # no ladder could be laid
        return row | {"error": str(error)}
    gate = converged(samples)
    tried = samples.attempted.sum(axis=1)
    tried = np.where(tried > 0, tried, np.nan)  # a hottest level that is drawn directly makes no attempts
    row |= {
        "temperatures": [float(t) if np.isfinite(t) else None for t in samples.temperatures],
        "exponent": (samples.betas / (settings.length - 1)).tolist(),
        "steps": settings.n_steps,
        "swaps": samples.swap_rate.tolist(),
        "taken": [x if np.isfinite(x) else None for x in (samples.accepted.sum(axis=1) / tried).tolist()],
        "trips": float(samples.round_trips.mean()),
        "rhat": float(np.nan_to_num(gate.rhat.max(), posinf=_FAR)),
        "worth": float(gate.ess.min()),
        "nll": float(samples.nll[-1].mean()),
    }
    try:
        gate.require()
        draws = reweighting.representative(reweighting.reweight(samples), z)
    except ProvlabError as error:
        return row | {"error": str(error)}
    return row | {"error": "", "log10_inputs": float(np.logaddexp.reduce(draws.log_weight) / np.log(10))}


def ladder_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """What each ladder's diagnostics say; a ladder that could not be laid has its reason alone."""
    table = []
    for row in rows:
        line = {"comparison": row["comparison"], "tokens": row["length"], "ladder": row["ladder"]}
        if "swaps" in row:
            hot, cold = (row["temperatures"][k] for k in (0, -1))
            line |= {
                "T": f"{'infinity' if hot is None else format_number(hot, '.3g')} to {format_number(cold, '.3g')}",
                "exponent": f"{row['exponent'][0]:.2g} to {row['exponent'][-1]:.3g}",
                "levels": str(len(row["exponent"])),
                "fewest swaps": f"{min(row['swaps']):.1%}",
                "fewest moves taken": f"{min(share for share in row['taken'] if share is not None):.1%}",
                "round trips a chain": f"{row['trips']:.1f}",
                "largest R-hat": f"{row['rhat']:.2f}" if row["rhat"] < _FAR else "infinite",
                "fewest effective draws": f"{row['worth']:.0f}",
                "mean NLL at the coldest": f"{row['nll']:.2f}",
            }
        told = f"log10 of inputs in Z: {row['log10_inputs']:.2f}" if "log10_inputs" in row else row["error"]
        table.append(line | {"gate": told})
    return pd.DataFrame(table).fillna("")


def swaps_by_exponent(rows: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Exchange rates between neighbouring levels against the exponent of the colder one, a series a ladder."""
    return {
        f"{row['comparison']}, {row['ladder']}": pd.DataFrame({"x": row["exponent"][1:], "y": row["swaps"]})
        for row in rows
        if "swaps" in row
    }


# The likeliest inputs, and the disputed ones --------------------------------------------------------------------------


def states_frame(states: reweighting.DensityOfStates) -> pd.DataFrame:
    """A density of states as `provlab.modeldiff.marks.densities` draws it."""
    columns = {"y": states.log10_count, "low": states.log10_low, "high": states.log10_high, "seen": states.log10_seen}
    return pd.DataFrame({"x": (states.edges[1:] + states.edges[:-1]) / 2, **columns})


def repetition_words(rows: Sequence[Repetition]) -> str:
    """Say what the curve of repetition shows, and what of the inputs of lowest loss is known; from the records."""
    lowest = ", ".join(f"{row.lowest:.2f} near NLL {row.nll:.2f} ({row.model})" for row in rows)
    text = ", ".join(sorted({f"{row.text:.2f}" for row in rows}))
    return (
        "Repetition by loss. Each point is a bin of loss, every input of the space counted alike, where draws carry a "
        f"mean; held-out text has {text}. The 30 distinct inputs of lowest loss that were drawn, each counted once, "
        f"have {lowest}."
    )


def repetition_curve(
    draws: Draws, states: reweighting.DensityOfStates, z: Range
) -> tuple[pd.DataFrame, float | None, tuple[float, float]]:
    """Mean repetition of a model's inputs by loss, every input of the space counted equally.

    Parameters
    ----------
    draws, states
        Draws of one model, and its density of states: bins whose draws carry no count carry no mean.
    z
        The range of loss of typical inputs.

    Returns
    -------
    tuple
        Frame of x, the middles of bins of loss up to Z's end, and y; the mean in Z, None where few draws lie there;
        and of the 30 distinct inputs of lowest loss that were drawn, each counted once, mean repetition and loss.
    """
    score, edges = repetition(draws.tokens), states.edges
    place, middle = bin_of(draws.nll, edges), (edges[1:] + edges[:-1]) / 2

    def mean(rows: NDArray[np.bool_]) -> float:
        weight = np.exp(draws.log_weight[rows] - draws.log_weight[rows].max())
        return float(np.average(score[rows], weights=weight))

    bins = np.flatnonzero(np.isfinite(states.log10_count) & (middle <= z[1]))
    curve = pd.DataFrame({"x": middle[bins], "y": [mean(place == k) for k in bins]})
    known = reweighting.density_of_states(draws, z).effective[0] >= LEAST_EFFECTIVE
    first = np.unique(draws.tokens, axis=0, return_index=True)[1]
    lowest = first[np.argsort(draws.nll[first], kind="stable")][: int(LEAST_EFFECTIVE)]
    return (
        curve,
        mean(within(draws.nll, z)) if known else None,
        (float(score[lowest].mean()), float(draws.nll[lowest].mean())),
    )


def peers_table(rows: pd.DataFrame) -> pd.DataFrame:
    """What each look found of planted changes, and its CPU seconds, of the records of ``benchmarks/peers.py``.

    A dash stands where a look was not asked: where a change has no words to be found by, or for want of time.
    """
    found = rows["found"].map({True: "found", False: "missed", "True": "found", "False": "missed"}).fillna("–")
    control = rows["plant"] == "again"  # a second training: there is nothing to find
    found = found.mask(control & (found == "found"), "found, of a mere second training")
    found = found.mask(control & (found == "missed"), "nothing found")
    cells = [f"{word} ({seconds:.1f} s)" for word, seconds in zip(found, rows["cpu_s"], strict=True)]
    text = np.where(rows["text has the topic"], "", ", topic not in the text")
    about = {"tokens": rows["tokens"], "planted": rows["plant"] + text, "measured": rows["date"]}
    wide = pd.DataFrame(about | {"look": rows["look"], "cell": cells})
    order = wide["look"].drop_duplicates().tolist()
    return (
        wide.pivot(index=list(about), columns="look", values="cell")
        .reindex(wide.drop_duplicates(list(about)).set_index(list(about)).index)[order]
        .reset_index()
        .fillna("–")
    )


def over_thresholds(pairs: Mapping[str, BothDirections], thresholds: Sequence[float]) -> pd.DataFrame:
    """Equation 7 by numbers of inputs where D must pass a threshold, lambda, on either side; the rest counts for none.

    A term relative to the first of its row; infinite where the first has no input.
    """
    rows = []
    for name, pair in pairs.items():
        for least in thresholds:
            sides = [np.stack([side.difference < -least, side.difference > least], axis=1) for side in (pair.a, pair.b)]
            logs = np.concatenate(
                [
                    side.log10_count(side.sums(kinds).sum(axis=0))
                    for side, kinds in zip((pair.a, pair.b), sides, strict=True)
                ]
            )
            with np.errstate(over="ignore", invalid="ignore"):
                terms = 10 ** (logs - logs[0])
            left = [
                float(np.average(~kinds.any(axis=1), weights=side.weight))
                for side, kinds in zip((pair.a, pair.b), sides, strict=True)
            ]
            rows.append(
                {"comparison": name, "lambda": least}
                | {term: f"{value:.3g}" for term, value in zip(TERMS, terms, strict=True)}
                | {f"of {whose}'s inputs within": f"{share:.1%}" for whose, share in zip("AB", left, strict=True)}
            )
    return pd.DataFrame(rows)


def inputs_by_d(side: Direction, model: SequenceModel, windows: Sequence[float], *, seed: int) -> pd.DataFrame:
    """Three inputs of one model in each window of D and beyond the last ones, drawn by weight; none where none lies.

    Parameters
    ----------
    side, model
        Its inputs, and what writes them as text.
    windows
        Rising bounds of D (nats per token).
    seed
        Of the choice within a window.
    """
    assert side.draws is not None
    ends = float(side.difference.min()), float(side.difference.max())
    edges = np.unique([min(ends[0], windows[0]), *windows, max(ends[1], windows[-1])])
    texts, rows = model.texts(side.draws.tokens), []
    for window in composition(side, edges, labels={}, distinct=texts, n_examples=3, seed=seed):
        for k, row in enumerate(window.examples):
            about = [model.checkpoint.name, f"{window.low:.2f} to {window.high:.2f}"] if k == 0 else ["", ""]
            rows.append([*about, f"{side.difference[row]:+.2f}", texts[row]])
    return pd.DataFrame(rows, columns=["inputs of", "window", "D", "input"])


def domain_labels(model: SequenceModel, held_out: HeldOut, length: int) -> tuple[TextKinds, float]:
    """Labels code and prose by pairs of tokens, from the zoo's training text; and the share right on held-out text."""
    train = corpus.load()
    judge = TextKinds.fit(train.tokens("code"), train.tokens("prose"), model.nll.vocabulary)
    pieces = held_out.pieces_by_kind(model, length)
    right = [(judge.score(pieces["code"]) > 0).mean(), (judge.score(pieces["prose"]) <= 0).mean()]
    return judge, float(np.mean(right))


def disputed(
    compared: BothDirections, is_code: Sequence[NDArray[np.float64]], accuracy: float, *, seed: int
) -> Domains:
    """Share of code among the quarter of inputs that each model prefers most, and in the rest.

    Parameters
    ----------
    compared
        The model tuned on code (A), and the one tuned on prose (B).
    is_code
        For each model ``(n,)``: 1 where an input looks like code.
    accuracy
        Share of held-out pieces that the labels get right.
    seed
        The seed of the bootstrap over chains.
    """
    shares, rest = [], []
    for side, label in zip((compared.a, compared.b), is_code, strict=True):
        quarters = np.unique(side.quantile(QUARTERS))
        # D = NLL_A - NLL_B: A prefers its lowest quarter most, B its highest
        preferred = side.difference <= quarters[1] if side.side == "A" else side.difference >= quarters[-2]
        shares.append(label_share(side, label, preferred, seed=seed))
        rest.append(label_share(side, label, ~preferred, seed=seed))  # of the same resampled chains

    def ends(values: NDArray[np.float64]) -> list[float]:
        low, high = percentiles(values[1:][~np.isnan(values[1:])], compared.n_chains)
        return [float(values[0]), float(low), float(high)]

    first, second = (float(share[0]) for share in shares)
    gap = ends(shares[0] - shares[1])
    return Domains(first, second, gap, ends(shares[0] - rest[0]), ends(rest[1] - shares[1]), accuracy)
