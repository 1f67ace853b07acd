"""Pairs of known origin, in the zoo and in packages: our p-values, the figures of others, how often each is wrong."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from provlab import api, zoo
from provlab.chapters.in_the_wild.accusers import ACCUSERS, Accuser, Portrait
from provlab.chapters.in_the_wild.packages import WildModel, packages
from provlab.chapters.shared.calibration import size_interval
from provlab.chapters.shared.huref import HUREF
from provlab.engine.lineage import Lineage, short_name
from provlab.engine.pairs import PairRecord
from provlab.engine.store import Store
from provlab.errors import NotComparableError, ProvlabError, reason
from provlab.inference import pvalues
from provlab.report.study_report import StudyReport
from provlab.statistics import REGISTRY
from provlab.statistics.base import Model, Options

LEVEL = 0.01
STRANGERS, KIN, HIDDEN = "independent", "parent and child", "the same, permuted"
#: the mean of HuRef's three cosines
_HUREF = Accuser("HuRef's invariants", 0.8, "Zeng et al. (2024); threshold ours", lambda *_: None)
#: of others, as they stand in tables
FIGURES: Sequence[Accuser] = (*ACCUSERS, _HUREF)
OURS = ("phi_u", "phi_match_unsigned")
#: of weights alone, which need no tokenizer and no network
WILD = ("phi_u", "phi_e")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Judged:
    """One pair of known origin, with all that is said of it.

    Attributes
    ----------
    a, b
        Sources.
    kind
        `STRANGERS`, `KIN` or `HIDDEN`.
    scores
        Figure -> its score; figures that are not defined for the pair are absent.
    log10_p
        Statistic -> log10 p; those that cannot compare the pair are absent.
    """

    a: str
    b: str
    kind: str
    scores: dict[str, float] = field(default_factory=dict)
    log10_p: dict[str, float] = field(default_factory=dict)


# Pairs of the zoo -----------------------------------------------------------------------------------------------


def strangers(edition: str, n: int, *, seed: int) -> list[Pair]:
    """Draw pairs of zoo models of one shape that are independent by their recipes.

    They are all pairs of the Llama tree whose roots differ, all pairs of bases of other collections that were drawn
    from different seeds, and as many pairs of the small bases of the null collection as are missing.
    """
    recipes = zoo.families(edition)
    bases = [recipe for recipe in recipes.values() if recipe.parent is None and recipe.kind == "base"]
    named = {recipe.name: f"zoo:{recipe.name}@{edition}" for recipe in recipes.values()}
    tree = [named[recipe.name] for recipe in recipes.values() if recipe.collection == "tree"]
    known = Lineage.of(tree)
    result = [pair for pair in combinations(tree, 2) if known.dependent(*pair) is False]
    by_shape: dict[tuple[object, ...], list[str]] = {}
    for recipe in bases:
        # runs of one seed but another length share their first weights
        if recipe.collection not in ("tree", "seeds"):
            by_shape.setdefault((recipe.shape, recipe.architecture, recipe.collection), []).append(recipe.name)
    seeds = {recipe.name: recipe.seed for recipe in bases}
    last: list[Pair] = []
    for (_, _, collection), names in by_shape.items():
        pairs = [(named[a], named[b]) for a, b in combinations(names, 2) if seeds[a] != seeds[b]]
        if collection == "null":
            last = pairs
        else:
            result += pairs
    rng = np.random.default_rng(seed)
    if len(result) > n:
        return [result[i] for i in sorted(rng.choice(len(result), n, replace=False))]
    more = rng.choice(len(last), min(len(last), n - len(result)), replace=False)
    return result + [last[i] for i in sorted(more)]


def kin(edition: str) -> list[Pair]:
    """Return parents and children of the Llama tree."""
    recipes = [recipe for recipe in zoo.families(edition).values() if recipe.collection == "tree"]
    return [(f"zoo:{item.parent}@{edition}", f"zoo:{item.name}@{edition}") for item in recipes if item.parent]


def hidden(pairs: Sequence[Pair], n: int) -> list[Pair]:
    """Return the first children of different parents again, units and dimensions permuted: outputs are the same."""
    first = dict(pairs[::-1])  # the first child of each parent
    return [(parent, f"disguised:T1+T2:{first[parent]}") for parent in list(dict.fromkeys(a for a, _ in pairs))[:n]]


def judged(pairs: Mapping[str, Sequence[Pair]], study: StudyReport, options: Options) -> list[Judged]:
    """Let every figure speak of every pair.

    Parameters
    ----------
    pairs
        Kind -> its pairs.
    study
        Of all these pairs, by `OURS` and `HUREF`.
    options
        For the inputs on which models are run.
    """
    records: dict[Pair, dict[str, PairRecord]] = {}
    for record in study.records:
        records.setdefault((record.a, record.b), {})[record.statistic] = record
    portraits = Portraits(options)
    result = []
    total = sum(map(len, pairs.values()))
    with tqdm(total=total, desc="pairs", unit="pair", leave=False) as bar:
        for kind, ones in pairs.items():
            for a, b in ones:
                scores = portraits.scores(a, b)
                values = [item.outcome.value for name in HUREF if (item := records[a, b][name]).outcome is not None]
                if len(values) == len(HUREF):
                    scores[_HUREF.name] = float(np.mean(values))
                result.append(Judged(a, b, kind, scores, _log10_p(records[a, b].values(), OURS)))
                bar.update()
    return result


def _log10_p(records: Iterable[PairRecord], names: Sequence[str]) -> dict[str, float]:
    return {
        item.statistic: float(item.outcome.log10_p)
        for item in records
        if item.statistic in names and item.outcome is not None and item.outcome.log10_p is not None
    }


class Portraits:
    """The portraits of models, each opened once."""

    def __init__(self, options: Options, *, allow_pickle: bool = False) -> None:
        self._options = options
        self._allow_pickle = allow_pickle
        self._kept: dict[str, Portrait] = {}

    def scores(self, a: str, b: str) -> dict[str, float]:
        """Return the figures that are defined for two models."""
        item, other = self._of(a), self._of(b)
        result = {accuser.name: accuser.score(item, other) for accuser in ACCUSERS}
        return {name: score for name, score in result.items() if score is not None}

    def _of(self, source: str) -> Portrait:
        if source not in self._kept:
            self._kept[source] = Portrait(Model.open(source, allow_pickle=self._allow_pickle), self._options)
        return self._kept[source]


# Rates ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """How often a figure accuses pairs of one kind.

    Attributes
    ----------
    figure, kind
        Of `FIGURES` or a statistic of ours with the rule by which it accuses; kind of pairs.
    accused, n
        Of the pairs for which it is defined.
    ours
        Whether it is a p-value.
    """

    figure: str
    kind: str
    accused: int
    n: int
    ours: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson, 95%, as if pairs were independent of each other."""
        return size_interval(self.accused, self.n)


def rates(pairs: Sequence[Judged], statistics: Sequence[str]) -> list[Rate]:
    """Count accusations: by threshold, by p at most 0.01 of the pair alone, and by Holm over all pairs."""
    result = []
    kinds = list(dict.fromkeys(item.kind for item in pairs))
    for accuser in FIGURES:
        for kind in kinds:
            values = [item.scores[accuser.name] for item in pairs if item.kind == kind and accuser.name in item.scores]
            if values:
                result.append(
                    Rate(accuser.name, kind, sum(value >= accuser.threshold for value in values), len(values))
                )
    for name in statistics:
        ones = [item for item in pairs if name in item.log10_p]
        alone = np.array([item.log10_p[name] for item in ones], dtype=float)
        for rule, log10_p in ((f"p ≤ {LEVEL}", alone), ("Holm", pvalues.holm(alone) if ones else alone)):
            for kind in kinds:
                message = log10_p[[item.kind == kind for item in ones]] <= np.log10(LEVEL)
                if message.size:
                    word = f"{REGISTRY[name].word}, {rule}"
                    result.append(Rate(word, kind, int(message.sum()), message.size, ours=True))
    return result


def rate_table(result: Sequence[Rate]) -> pd.DataFrame:
    """Return a figure a row, with the threshold, its source, and the counts with their intervals."""
    sources = {accuser.name: (f"{accuser.threshold:g}", accuser.source) for accuser in FIGURES}
    rows: dict[str, dict[str, str]] = {}
    for item in result:
        low, high = item.interval
        at, source = sources.get(item.figure, ("–", "this book"))
        row = rows.setdefault(item.figure, {"accuses from": at, "figure and threshold": source})
        row[item.kind] = f"{item.accused}/{item.n} ({low:.3f} to {high:.3f})"
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–").rename_axis("figure").reset_index()


def rate_findings(result: Sequence[Rate]) -> str:
    """Say in a sentence what the table shows."""
    wrong = {item.figure: item for item in result if item.kind == STRANGERS}
    caught = {item.figure: item for item in result if item.kind == KIN}
    often = [
        f"{name} {item.accused} of {item.n}"
        for name, item in wrong.items()
        if not item.ours and item.interval[0] > LEVEL
    ]
    sound = [name for name, item in wrong.items() if not item.ours and item.interval[0] <= LEVEL]
    ours = [
        f"{name} {item.accused} of {item.n}, and finds {caught[name].accused} of {caught[name].n} children"
        for name, item in wrong.items() if item.ours and name in caught
    ]  # fmt: skip
    message = [
        f"**Independent pairs accused.** More often than one in a hundred: {'; '.join(often) or 'no figure'}.",
        f"Not more often, as far as these pairs tell: {'; '.join(sound) or 'no figure'}.",
        f"Ours: {'; '.join(ours)}.",
    ]
    return " ".join(message)


# Models in packages ---------------------------------------------------------------------------------------------


def model_table(result: Mapping[str, WildModel], why: Mapping[str, str]) -> pd.DataFrame:
    """Return each model with its package, what it is, how it is stored, its shape, and whether it was run."""
    known, rows = packages(), []
    for name, model in result.items():
        package = known[model.package]
        row = {
            "model": name,
            "package": f"{package.name} {package.version} ({package.sha256[:8]})",
            "licence": package.licence,
            "what it is": model.about,
            "stored as": model.stored,
            "blocks": "–", "width": "–", "hidden": "–",
            "run": f"no: {why[name]}" if name in why else "yes",
        }  # fmt: skip
        if name not in why:
            anatomy = Model.open(model.source, allow_pickle=True).anatomy
            row |= {"blocks": f"{anatomy.n_blocks}", "width": f"{anatomy.width}", "hidden": f"{anatomy.mlp_width:,}"}
        rows.append(row)
    return pd.DataFrame(rows)


def unreadable(result: Iterable[WildModel]) -> dict[str, str]:
    """Return the reason for each model that is here and does not open."""
    why = {}
    for model in result:
        try:
            Model.open(model.source, allow_pickle=True)
        except ProvlabError as error:
            why[model.name] = reason(error)
    return why


@dataclass(frozen=True)
class Wild(Judged):
    """A pair of models in packages.

    Attributes
    ----------
    agree
        Statistic -> how many units or dimensions agree, of how many.
    refused
        Statistic -> why it does not compare the pair.
    blocks
        log10 p of phi_U of all blocks with all, ``(blocks of a, blocks of b)``, where the two differ in depth.
    """

    agree: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    blocks: list[list[float]] = field(default_factory=list)


def wild_pairs(result: Sequence[WildModel], store: Store, options: Options) -> list[Wild]:
    """Compare all pairs by `WILD`, and let the figures speak of those that a statistic compares."""
    portraits, pairs = Portraits(options, allow_pickle=True), []
    for item, other in tqdm(list(combinations(result, 2)), desc="pairs in the wild", unit="pair", leave=False):
        kind = KIN if item.lineage == other.lineage else STRANGERS
        names = item.source, other.source
        try:
            compared = api.compare(
                *names, statistics=list(WILD), store=store, allow_pickle=True, progress=False, seed=options.seed
            )
        except NotComparableError as error:
            pairs.append(Wild(*names, kind, refused={"phi_u": reason(error)}))
            continue
        records = {record.statistic: record for record in compared.records}
        pairs.append(
            Wild(
                *names, kind, portraits.scores(*names), _log10_p(records.values(), WILD),
                agree={name: _agreement(record) for name, record in records.items() if record.outcome is not None},
                refused={name: record.error for name, record in records.items() if record.error},
                blocks=_blocks(records.get("phi_u")),
            )
        )  # fmt: skip
    return pairs


def _agreement(record: PairRecord) -> str:
    assert record.outcome is not None
    counts = [(item.detail["agree"], item.detail["n"]) for item in record.outcome.blocks if "agree" in item.detail]
    return f"{sum(a for a, _ in counts):,} of {sum(n for _, n in counts):,}"


def _blocks(record: PairRecord | None) -> list[list[float]]:
    if record is None or record.outcome is None or not record.outcome.detail:
        return []
    result: list[list[float]] = record.outcome.detail.get("all_blocks", {}).get("log10_p", [])
    return result


def corrected(pairs: Sequence[Wild]) -> dict[tuple[str, str, str], float]:
    """Holm over all statistics and pairs: (a, b, statistic) -> log10 of the adjusted p."""
    places = [((item.a, item.b, name), value) for item in pairs for name, value in item.log10_p.items()]
    if not places:
        return {}
    adjusted = pvalues.holm(np.array([value for _, value in places]))
    return {place: float(value) for (place, _), value in zip(places, adjusted, strict=True)}


def wild_table(pairs: Sequence[Wild], kind: str) -> pd.DataFrame:
    """Return the compared pairs of a kind: p-values, what agrees, the verdict, and the other figures that accuse."""
    adjusted, rows = corrected(pairs), []
    for item in pairs:
        if item.kind != kind or not item.log10_p:
            continue
        row: dict[str, Any] = {"pair": f"{short_name(item.a)} and {short_name(item.b)}"}
        for name in WILD:
            row[f"{REGISTRY[name].word}, log10 p"] = item.log10_p.get(name)
            row[f"{REGISTRY[name].word} agree"] = item.agree.get(name, "–")
        least = min(adjusted[item.a, item.b, name] for name in item.log10_p)
        row["by Holm"] = "dependent" if least <= np.log10(LEVEL) else "not rejected"
        accused = [a.name for a in FIGURES if item.scores.get(a.name, -np.inf) >= a.threshold]
        row["accused by others"] = f"{len(accused)} of {len(item.scores)}: {', '.join(accused)}" if accused else (
            f"0 of {len(item.scores)}"
        )  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows)


def score_table(pairs: Sequence[Wild]) -> pd.DataFrame:
    """Return the scores of all figures on the pairs that a statistic compares, independent ones first."""
    ones = sorted((item for item in pairs if item.log10_p), key=lambda item: item.kind != STRANGERS)
    return pd.DataFrame(
        [
            {
                "pair": f"{short_name(item.a)} and {short_name(item.b)}",
                "by the cards": item.kind if item.kind == STRANGERS else "dependent",
                **{accuser.name: item.scores.get(accuser.name) for accuser in ACCUSERS},
            }
            for item in ones
        ]
    )


def refusals(pairs: Sequence[Wild]) -> pd.DataFrame:
    """Return why pairs were not compared at all, how many, and one of them."""
    counted: dict[str, list[str]] = {}
    for item in pairs:
        if not item.log10_p:
            why = "; ".join(message.partition(", but ")[0] for message in item.refused.values())
            counted.setdefault(why, []).append(f"{short_name(item.a)} and {short_name(item.b)}")
    rows = [{"reason": why, "pairs": len(who), "such as": who[0]} for why, who in counted.items()]
    return pd.DataFrame(rows, columns=["reason", "pairs", "such as"])


def wild_findings(pairs: Sequence[Wild]) -> str:
    """Say what was found in the packages, or that nothing was run."""
    compared = [item for item in pairs if item.log10_p]
    if not compared:
        return "**Not run here.**"
    adjusted = corrected(pairs)
    models = {name for item in compared for name in (item.a, item.b)}
    counts = {}
    for kind in (KIN, STRANGERS):
        ones = [item for item in compared if item.kind == kind]
        hit = sum(any(adjusted[item.a, item.b, name] <= np.log10(LEVEL) for name in item.log10_p) for item in ones)
        counts[kind] = hit, len(ones)
    tests = len(adjusted)
    return (
        f"**{len(models)} models that others trained, {len(compared)} pairs that the statistics can compare.** "
        f"{counts[KIN][0]} of {counts[KIN][1]} pairs that share weights by what their cards say are found; "
        f"{counts[STRANGERS][0]} of {counts[STRANGERS][1]} pairs that share none are accused (Holm over all {tests} "
        f"tests, family-wise error at most {LEVEL})."
    )


def of_pair(pairs: Sequence[Wild], a: str, b: str) -> Wild | None:
    """Return a pair by the names of its models, in either order; None if it was not run."""
    return next((item for item in pairs if {short_name(item.a), short_name(item.b)} == {a, b} and item.log10_p), None)


def two_cases(pairs: Sequence[Wild]) -> str:
    """Say of the quantised copy, and of the two that share no block, what was measured."""
    message = []
    if copy := of_pair(pairs, "minilm-l6", "minilm-l6-int8"):
        message.append(
            f"minilm-l6 against its copy in 8 bits: φ_U has log10 p {copy.log10_p['phi_u']:,.1f}, "
            f"{copy.agree['phi_u']} units agree."
        )
    if (cut := of_pair(pairs, "minilm-l6", "minilm-l3")) and cut.blocks and "phi_e" in cut.log10_p:
        values = np.array(cut.blocks)
        message.append(
            f"minilm-l6 against minilm-l3: the smallest log10 p of φ_U among {values.size} pairs of blocks is "
            f"{values.min():.1f} before correction ({cut.log10_p['phi_u']:.1f} after Holm over them); φ_E of the "
            f"embeddings has {cut.log10_p['phi_e']:,.1f}, {cut.agree['phi_e']} columns agree."
        )
    return "\n\n".join(message) or "**Not run here.**"
