"""Pairs of known origin, in the zoo and in packages: our p-values, the figures of others, how often each is wrong."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from tqdm import tqdm

from provlab import api, zoo
from provlab.engine.pairs import PairRecord
from provlab.engine.store import Store
from provlab.errors import NotComparableError, ProvlabError, reason
from provlab.report.lineage import Lineage
from provlab.report.study_report import StudyReport
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import Outcome
from provlab_study.in_the_wild import modeldna
from provlab_study.in_the_wild.accusers import ACCUSERS, Accuser, Portrait
from provlab_study.shared.accused import KIN, STRANGERS
from provlab_study.shared.huref import HUREF
from provlab_study.shared.packages import WildModel

#: the mean of HuRef's three cosines
_HUREF = Accuser("HuRef's invariants", 0.8, "Zeng et al. (2024); threshold ours", lambda *_: None)
_DNA = Accuser(f"modelDNA {modeldna.VERSION}", modeldna.DESCENT, "its own, to call descent", lambda *_: None)
#: of others, as they stand in tables
FIGURES: Sequence[Accuser] = (*ACCUSERS, _HUREF, _DNA)
DNA = _DNA.name
OURS = ("phi_u", "phi_match_unsigned")
#: of weights alone, which need no tokenizer and no network
WILD = ("phi_u", "phi_e")

Pair = tuple[str, str]


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


def judged(pairs: Mapping[str, Sequence[Pair]], study: StudyReport, options: Options) -> list[dict[str, Any]]:
    """Let every figure speak of every pair.

    Parameters
    ----------
    pairs
        Kind -> its pairs.
    study
        The study of all these pairs, by `OURS` and `HUREF`.
    options
        For the inputs on which models are run.

    Returns
    -------
    list of dict
        Keys: a, b, kind; scores, by figure, and log10_p, by statistic, each where it is defined for the pair.
    """
    records: dict[Pair, dict[str, PairRecord]] = {}
    for record in study.records:
        records.setdefault((record.a, record.b), {})[record.statistic] = record
    portrait = cache(lambda source: Portrait(Model.open(source), options))
    every = [(kind, pair) for kind, of_kind in pairs.items() for pair in of_kind]
    result = []
    for kind, (a, b) in tqdm(every, desc="pairs", unit="pair", leave=False):
        scores = _scores(portrait(a), portrait(b))
        values = [item.outcome.value for name in HUREF if (item := records[a, b][name]).outcome is not None]
        if len(values) == len(HUREF):
            scores[_HUREF.name] = float(np.mean(values))
        log10_p = _log10_p(records[a, b].values(), OURS)
        result.append({"a": a, "b": b, "kind": kind, "scores": scores, "log10_p": log10_p})
    ask_modeldna(result)
    return result


def ask_modeldna(pairs: Sequence[dict[str, Any]]) -> None:
    """Add modelDNA's probability to the scores of pairs, where it is installed and compares the two."""
    if not modeldna.here() or not pairs:
        return
    folder = cache(lambda source: Model.open(source, allow_pickle=True).checkpoint.folder())
    answers = modeldna.probabilities([(folder(pair["a"]), folder(pair["b"])) for pair in pairs])
    for pair, probability in zip(pairs, answers, strict=True):
        if probability is not None:
            pair["scores"][DNA] = probability


def _log10_p(records: Iterable[PairRecord], names: Sequence[str]) -> dict[str, float]:
    return {
        item.statistic: float(item.outcome.log10_p)
        for item in records
        if item.statistic in names and item.outcome is not None and item.outcome.log10_p is not None
    }


def _scores(a: Portrait, b: Portrait) -> dict[str, float]:
    """Return the figures that are defined for two models."""
    result = {accuser.name: accuser.score(a, b) for accuser in ACCUSERS}
    return {name: score for name, score in result.items() if score is not None}


# Models in packages ---------------------------------------------------------------------------------------------


def unreadable(result: Iterable[WildModel]) -> dict[str, str]:
    """Return the reason for each model that is here and does not open."""
    why = {}
    for model in result:
        try:
            Model.open(model.source, allow_pickle=True)
        except ProvlabError as error:
            why[model.name] = reason(error)
    return why


def wild_pairs(result: Sequence[WildModel], store: Store, options: Options) -> list[dict[str, Any]]:
    """Compare all pairs by `WILD`, and let the figures speak of those that a statistic compares.

    modelDNA is asked of all pairs.

    Returns
    -------
    list of dict
        As `judged`, with three more keys: agree (by statistic, how many units or dimensions agree, of how many);
        refused (by statistic, why it does not compare the pair); blocks (log10 p of phi_U of all blocks with all,
        ``(blocks of a, blocks of b)``, where the two differ in depth).
    """
    portrait = cache(lambda source: Portrait(Model.open(source, allow_pickle=True), options))
    pairs: list[dict[str, Any]] = []
    for item, other in tqdm(list(combinations(result, 2)), desc="pairs in the wild", unit="pair", leave=False):
        a, b = item.source, other.source
        pair = {"a": a, "b": b, "kind": KIN if item.lineage == other.lineage else STRANGERS}
        try:
            compared = api.compare(
                a, b, statistics=list(WILD), store=store, allow_pickle=True, progress=False, seed=options.seed
            )
        except NotComparableError as error:
            nothing: dict[str, Any] = {"scores": {}, "log10_p": {}, "agree": {}, "blocks": []}
            pairs.append(pair | nothing | {"refused": {"phi_u": reason(error)}})
            continue
        records = {record.statistic: record for record in compared.records}
        compared_by = {name: record.outcome for name, record in records.items() if record.outcome is not None}
        whole = compared_by["phi_u"].detail.all_blocks if "phi_u" in compared_by else None
        pairs.append(
            pair
            | {"scores": _scores(portrait(a), portrait(b)), "log10_p": _log10_p(records.values(), WILD)}
            | {"agree": {name: _agreement(outcome) for name, outcome in compared_by.items()}}
            | {"refused": {name: record.error for name, record in records.items() if record.error}}
            | {"blocks": (whole or {}).get("log10_p", [])}
        )
    ask_modeldna(pairs)
    return pairs


def _agreement(outcome: Outcome) -> str:
    counts = [(item.detail.agree, item.detail.n or 0) for item in outcome.blocks if item.detail.agree is not None]
    return f"{sum(a for a, _ in counts):,} of {sum(n for _, n in counts):,}"
