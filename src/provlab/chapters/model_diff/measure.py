"""What the page on language models measures: pairs compared, densities of states, and what their inputs are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.chapters.model_diff.labels import TextKinds, repetition
from provlab.chapters.model_diff.records import CapabilityRecord, DomainsRecord, RepetitionRecord, WaysRecord
from provlab.errors import ProvlabError
from provlab.kept import Kept
from provlab.modeldiff import pipeline, reweighting
from provlab.modeldiff.bootstrap import percentiles
from provlab.modeldiff.comparison import Comparison
from provlab.modeldiff.composition import Bin, composition, label_share
from provlab.modeldiff.held_out import HeldOut, Range
from provlab.modeldiff.pipeline import Model
from provlab.modeldiff.representative import Direction, Draws
from provlab.zoo import corpus

_BINS = 25  # of loss
_LEAST_DRAWS = 30  # in a bin whose inputs are described
_EXAMPLES = 4  # of each bin of D
_QUARTERS = (0, 0.25, 0.5, 0.75, 1)

Pair = tuple[str, str]


def open_pairs(pairs: Sequence[Pair], *, device: str, allow_pickle: bool) -> dict[str, Model]:
    """Open the models of several pairs, each once, on the tokens that they share with those they are compared with."""
    groups: list[
        set[str]
    ] = []  # of models that some chain of pairs connects: they are to be compared on the same tokens
    for pair in pairs:
        joined = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in joined] + [set(pair).union(*joined)]
    models: dict[str, Model] = {}
    for group in groups:
        models |= pipeline.open_models(sorted(group), device=device, allow_pickle=allow_pickle)
    return {source: models[source] for pair in pairs for source in pair}


def short_names(models: Mapping[str, Model]) -> dict[str, str]:
    """Name of each source without its revision."""
    return {source: model.checkpoint.name.partition("@")[0] for source, model in models.items()}


def sides_finding(compared: Mapping[str, Comparison]) -> str:
    """Say on which side of zero the differences lie, from the comparisons."""
    shares = [
        f"{name}: D is below 0 on {one.a.share_below()[0]:.1%} of A's inputs and above 0 on "
        f"{1 - one.b.share_below()[0]:.1%} of B's"
        for name, one in compared.items()
    ]
    return "; ".join(shares) + "."


def by_exchange(a: Model, b: Model, z: Range, settings: pipeline.Exchange, kept: Kept) -> Comparison | str:
    """Compare two models by replica exchange, or say why that gives no number."""
    try:
        return pipeline.model_diff(a, b, z, settings, kept)
    except ProvlabError as error:
        return str(error)


def two_ways(
    generated: Mapping[str, Comparison], exchanged: Mapping[str, Comparison | str], *, seed: int
) -> list[WaysRecord]:
    """Numbers and shares of each comparison by both ways to draw, where replica exchange gives any."""
    records = []
    for pair, other in exchanged.items():
        if isinstance(other, str):
            continue
        for k, side in enumerate("AB"):
            both = [(one.a, one.b)[k] for one in (generated[pair], other)]
            counts, shares = [_count(one, seed) for one in both], [_disagreement(one, seed) for one in both]
            records.append(WaysRecord(pair, f"log10 of {side}'s inputs in Z", counts[0], counts[1]))
            records.append(WaysRecord(pair, f"share of disagreement among {side}'s", shares[0], shares[1]))
    return records


def _count(one: Direction, seed: int) -> list[float]:
    drawn = one.log10_numbers(np.random.default_rng(seed))
    return [float(drawn[0]), *map(float, percentiles(drawn[1:], one.n_chains))]


def _disagreement(one: Direction, seed: int) -> list[float]:
    value, low, high = one.share(one.disagreement, seed=seed)
    reach = 3 / one.effective  # what none of so many draws shows may be as much (rule of three)
    return [value, max(0.0, min(low, value - reach)), min(1.0, max(high, value + reach))]


def lower_end(
    model: Model, drawn: Draws, z: Range, settings: pipeline.Exchange, kept: Kept, *, seed: int
) -> WaysRecord | str:
    """Count a model's inputs in the lowest third of Z by both ways, replica exchange from the model's own text down.

    Parameters
    ----------
    model
        Whose inputs.
    drawn
        By generation, colder tempers among them.
    z, settings, kept, seed
        As elsewhere; the settings' ladder begins at the model's own temperature.
    """
    ends = (z[0], z[0] + (z[1] - z[0]) / 3)
    try:
        found = [drawn, reweighting.reweight(pipeline.exchanged(model, settings, kept))]
        found = [reweighting.representative(one, ends) for one in found]
    except ProvlabError as error:
        return str(error)
    states = [reweighting.density_of_states(one, ends, seed=seed) for one in found]
    counts = [[float(one.log10_count[0]), float(one.log10_low[0]), float(one.log10_high[0])] for one in states]
    what = f"log10 of {model.checkpoint.name.partition('@')[0]}'s inputs with NLL {ends[0]:.2f} to {ends[1]:.2f}"
    return WaysRecord("lower end", what, counts[0], counts[1])


def ways_finding(records: Sequence[WaysRecord], exchanged: Mapping[str, Comparison | str]) -> str:
    """Say how far both ways agree, from the records."""
    words = [
        f"{pair}: replica exchange gives no number, {one}" for pair, one in exchanged.items() if isinstance(one, str)
    ]
    if records:
        far = max(records, key=lambda row: row.apart)
        words.append(
            f"Of {len(records)} numbers, the one that differs most between the two ways ({far.what}, {far.pair}) does "
            f"so by {far.apart:.2f} times the reach of both 95% intervals together"
        )
    return "; ".join(words) + "."


def capability(
    pairs: Sequence[Pair], compared: Sequence[Comparison], models: Mapping[str, Model], text: HeldOut, length: int
) -> list[CapabilityRecord]:
    """Number of inputs in Z of two models, beside their losses on held-out text."""
    short = short_names(models)
    return [
        CapabilityRecord(
            [short[source] for source in pair],
            text.losses([models[source] for source in pair], length),
            text.loss_apart(models[pair[0]], models[pair[1]], length),
            list(one.log10_more(seed=text.seed)),
        )
        for pair, one in zip(pairs, compared, strict=True)
    ]


def capability_finding(records: Sequence[CapabilityRecord]) -> str:
    """Say which model of each pair has more inputs in Z, from the records."""
    words = []
    for row in records:
        value, low, high = row.log10_more
        more, fewer = (1, 0) if value > 0 else (0, 1)
        sure = low > 0 or high < 0
        lower = row.held_out[more] < row.held_out[fewer]
        words.append(
            f"{row.models[more]}, the model of {'lower' if lower else 'higher'} held-out loss, has "
            f"{10 ** abs(value):.2f} times the inputs of {row.models[fewer]} in Z"
            + ("" if sure else " (the interval includes equality)")
        )
    return "; ".join(words) + "."


def bins_of_loss(drawn: Mapping[str, Draws], z: Range) -> NDArray[np.float64]:
    """Edges of bins from the lowest losses of any model to one nat above Z."""
    low = min(np.quantile(one.nll, 0.002) for one in drawn.values())
    return np.linspace(max(low, 0.0), z[1] + 1.0, _BINS + 1)


def densities(drawn: Mapping[str, Draws], edges: NDArray[np.float64], *, seed: int) -> dict[str, pd.DataFrame]:
    """Log10 of the number of inputs by loss, with 95% intervals, as frames x, y, low, high."""
    frames = {}
    for name, one in drawn.items():
        states = reweighting.density_of_states(one, edges, seed=seed)
        columns = {"y": states.log10_count, "low": states.log10_low, "high": states.log10_high}
        frames[name] = pd.DataFrame({"x": (edges[1:] + edges[:-1]) / 2, **columns})
    return frames


def repetitions(
    drawn: Mapping[str, Draws], edges: NDArray[np.float64], z: Range, text: Mapping[str, NDArray[np.int64]]
) -> tuple[list[RepetitionRecord], dict[str, pd.DataFrame]]:
    """Mean repetition of the inputs by loss, every input of the space counted equally.

    Parameters
    ----------
    drawn
        Draws by the names of models.
    edges, z
        Bins of loss, and typical losses.
    text
        Pieces of text in the tokens of each model.

    Returns
    -------
    list of RepetitionRecord
        One for each model that has draws in Z.
    dict of DataFrame
        Their curves: columns x, the bins' middles up to Z's end that hold enough draws, and y.
    """
    middle = (edges[1:] + edges[:-1]) / 2
    records, curves = [], {}
    for name, one in drawn.items():
        score, place = repetition(one.tokens), np.digitize(one.nll, edges) - 1
        least = max(1, min(_LEAST_DRAWS, len(one) // 100))

        def mean(rows: NDArray[np.bool_], score: NDArray[np.float64] = score, one: Draws = one) -> float:
            weight = np.exp(one.log_weight[rows] - one.log_weight[rows].max())
            return float(np.average(score[rows], weights=weight))

        bins = [k for k in np.flatnonzero(middle <= z[1]) if (place == k).sum() >= least]
        curve = pd.DataFrame({"x": middle[bins], "y": [mean(place == k) for k in bins]})
        in_z = (one.nll >= z[0]) & (one.nll <= z[1])
        if curve.empty or not in_z.any():
            continue
        nll, lowest = float(curve["x"].iloc[0]), float(curve["y"].iloc[0])
        records.append(RepetitionRecord(name, nll, lowest, mean(in_z), float(repetition(text[name]).mean())))
        curves[name] = curve
    return records, curves


@dataclass(frozen=True, eq=False)
class Domains:
    """Two tunes compared by kinds of text.

    Attributes
    ----------
    compared
        The model tuned on code (A) and the one tuned on prose (B).
    bins
        Quarters of each model's inputs by D, with examples.
    texts
        Each model's inputs as text.
    record
        What is kept.
    """

    compared: Comparison
    bins: tuple[list[Bin], list[Bin]]
    texts: tuple[list[str], list[str]]
    record: DomainsRecord


def domains(compared: Comparison, models: tuple[Model, Model], held_out: HeldOut, length: int) -> Domains:
    """Label each model's inputs as code or prose, and ask what the inputs are that it prefers most.

    Labels are by pairs of tokens, learned from the zoo's training text; they know neither model.

    Parameters
    ----------
    compared
        The model tuned on code, and the one tuned on prose.
    models
        These two.
    held_out
        Text on which the labels are tested.
    length
        Of its pieces.
    """
    seed, train = held_out.seed, corpus.load()
    judge = TextKinds.fit(train.tokens("code"), train.tokens("prose"), models[0].nll.vocabulary)
    pieces = held_out.pieces_by_kind(models[0], length)
    right = [(judge.score(pieces["code"]) > 0).mean(), (judge.score(pieces["prose"]) <= 0).mean()]
    bins, texts, shares, rest = [], [], [], []
    for direction, model in zip((compared.a, compared.b), models, strict=True):
        shown = model.texts(_draws(direction).tokens)
        is_code = (judge.score(_draws(direction).tokens) > 0).astype(float)
        quarters = np.unique(direction.quantile(_QUARTERS))
        # D = NLL_A - NLL_B: A prefers its lowest quarter most, B its highest
        preferred = (
            direction.difference <= quarters[1] if direction.side == "A" else direction.difference >= quarters[-2]
        )
        shares.append(label_share(direction, is_code, preferred, seed=seed))
        rest.append(label_share(direction, is_code, ~preferred, seed=seed))  # of the same resampled chains
        texts.append(shown)
        labels = {"code": is_code}
        bins.append(composition(direction, quarters, labels=labels, distinct=shown, n_examples=_EXAMPLES, seed=seed))

    def ends(values: NDArray[np.float64]) -> list[float]:
        low, high = percentiles(values[1:][~np.isnan(values[1:])], compared.n_chains)
        return [float(values[0]), float(low), float(high)]

    record = DomainsRecord(
        float(shares[0][0]),
        float(shares[1][0]),
        ends(shares[0] - shares[1]),
        ends(shares[0] - rest[0]),
        ends(rest[1] - shares[1]),
        float(np.mean(right)),
    )
    return Domains(compared, (bins[0], bins[1]), (texts[0], texts[1]), record)


def domains_finding(record: DomainsRecord) -> str:
    """Say how the two sides differ, from the record."""
    gap, low, high = record.gap
    rises = [f"{value:+.2f} ({low:+.2f} to {high:+.2f})" for value, low, high in (record.code_rise, record.prose_rise)]
    return (
        f"Of the quarter of inputs that each model prefers most, {record.code_side:.0%} look like code on the code "
        f"model's side and {record.prose_side:.0%} on the prose model's (difference {gap:.2f}, 95% interval {low:.2f} "
        f"to {high:.2f}). Against the rest of the own inputs its own kind is more frequent there by {rises[0]} and "
        f"{rises[1]}. "
        f"The labels are right on {record.accuracy:.0%} of held-out pieces."
    )


def _draws(direction: Direction) -> Draws:
    assert direction.draws is not None  # only an enumeration has none
    return direction.draws
