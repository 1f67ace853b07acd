"""Which tests two models are asked, and at which places: one policy for `compare`, `study`, `tree` and `plan`.

What a pair is asked follows from the two models alone (`first`) and from what came out (`further`). Every door asks
pair by pair, so a pair gets the same tests alone and among many.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from provlab import plugins
from provlab import statistics as registry
from provlab.engine.all_blocks import able
from provlab.engine.memory import Pair
from provlab.engine.pairs import run_pairs, with_common_vocabulary
from provlab.engine.table import OpenedModels, PairRecord
from provlab.report.family import FamilyOfTests
from provlab.statistics import quick as few
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import Outcome

#: compares all blocks with all by a few units of each, of two models with gates
LOOK = "phi_match_all"
#: pairs units by gates alone, after those of one gate were brought together, so that imitating one view is not enough
BY_GATES = "phi_anchor"
#: what says whether the look can say anything: a test of units at blocks of one index, any order and any sign
_IN_PLACE = "phi_match_unsigned"
#: of two blocks none can be moved without leaving out half of the model
_DEPTH = 2


class Asked(NamedTuple):
    """One test of a pair: a registered name, and whether every block of one model meets every block of the other."""

    statistic: str
    all_blocks: bool = False


def first(
    a: Model,
    b: Model,
    statistics: Sequence[str] | None = None,
    *,
    blocks: Sequence[int] | None = None,
    all_blocks: bool = False,
) -> list[Asked]:
    """List what two models are asked before anything is known of them but their shapes.

    Parameters
    ----------
    a, b
        The two models.
    statistics
        Registered names; None for the usual ones, with phi_anchor where one model has more units.
    blocks
        Blocks of one index that were asked for; None for all.
    all_blocks
        All blocks meet all, by statistics that can; done unasked where the two are of unequal depth.

    Raises
    ------
    ParameterError
        All blocks are asked for, and none of the statistics compares them.
    """
    names = list(statistics) if statistics is not None else _usual(a, b)
    everywhere: list[str] = []
    if blocks is None and (all_blocks or a.anatomy.n_blocks != b.anatomy.n_blocks):
        everywhere = able(names, [a, b], explicit=all_blocks)
    return [Asked(name, name in everywhere) for name in names]


def _usual(a: Model, b: Model) -> list[str]:
    """The usual tests; where neither model has a block, as tables taken alone, those of an embedding."""
    if not (a.anatomy.n_blocks or b.anatomy.n_blocks):
        by_name = {name: registry.get(name) for name in registry.REGISTRY}
        return [name for name, test in by_name.items() if test.roles == ("embedding",) and test.assumptions]
    names = registry.checked_names(None)
    return [*names, BY_GATES] if _units_may_be_spread(a, b) else names


def _units_may_be_spread(a: Model, b: Model) -> bool:
    """Whether one model with gates has more hidden units, so that those that matter may each be a part of the other's.

    phi_MATCH pairs units one to one, and could not see it. How many matter is not known before the models are run.
    """
    if not (a.anatomy.gated and b.anatomy.gated):
        return False
    mlps = ([len(of.anatomy.mlps(block)) for block in range(of.anatomy.n_blocks)] for of in (a, b))
    counts = [of.anatomy.mlp_width * max(most, default=1) for of, most in zip((a, b), mlps, strict=True)]
    return max(counts) > min(counts)


def may_follow(a: Model, b: Model, asked: Sequence[Asked]) -> list[Asked]:
    """List the tests that two models with gates may be asked besides, where no test of units rejects.

    Blocks may have been moved, which some units of each can tell. And phi_MATCH counts units that find one partner by
    gate and by up, so that a copy hides which imitates one of the two at other units: `BY_GATES` sees through that.
    """
    if not (a.anatomy.gated and b.anatomy.gated and any(test.statistic == _IN_PLACE for test in asked)):
        return []
    depths = {a.anatomy.n_blocks, b.anatomy.n_blocks}
    look = len(depths) == 1 and min(depths) > _DEPTH
    by_gates = BY_GATES not in {test.statistic for test in asked}
    return [Asked(LOOK)] * look + [Asked(BY_GATES, len(depths) > 1)] * by_gates


def further(
    may: Sequence[Asked], asked: Sequence[Asked], outcomes: Mapping[str, Outcome], rejecting: Collection[str]
) -> list[Asked]:
    """List what a pair is asked besides, once the usual tests that it was `asked` came out.

    Those that may follow, unless a test of units in any order rejects: an order and rows of the embedding cost nothing
    to give. For the look at all blocks a test in place must have been able to reject: one that is silenced by what
    either model holds says nothing at other places. And the stream score where nothing rejects, a figure that is no
    test: a disguised copy may have silenced the tests.
    """
    in_place = outcomes.get(_IN_PLACE)
    able_in_place = in_place is not None and in_place.log10_p is not None and in_place.reach < 0
    by_units = any(registry.get(name).evidence == "units" for name in rejecting)
    score = not rejecting and any(registry.get(name).evidence != "order" for name, _ in asked)
    tests = [test for test in may if not by_units and (able_in_place or test.statistic != LOOK)]
    return tests + [Asked("stream_score")] * score


def ask(
    opened: OpenedModels,
    statistics: Sequence[str] | None,
    options: Options,
    *,
    text: str | None = None,
    blocks: Sequence[int] | None = None,
    all_blocks: bool = False,
    quick: bool = False,
    pairs: Sequence[Pair] | None = None,
    primary: str | None = None,
    fdr: bool = False,
    **engine: Any,
) -> tuple[list[PairRecord], Options]:
    """Ask each pair what the policy says: statistics outermost, pairs in their order; with the options as they ran.

    Parameters
    ----------
    opened, options, blocks, pairs, engine
        As for `provlab.engine.pairs.run_pairs`.
    statistics, all_blocks
        As for `first`.
    quick
        Read a few whole blocks, and the look at all blocks all the same (`provlab.statistics.quick`).
    text
        Held-out text, where a statistic reads any; by default prose that a scheme offers.
    primary, fdr
        As for `provlab.report.family.FamilyOfTests`: by these nothing rejects.

    Raises
    ------
    ParameterError
        As of `first`.
    """
    models = opened.models
    pairs = list(pairs) if pairs is not None else list(combinations(opened.sources, 2))
    known = {(a, b) for a, b in pairs if a in models and b in models}

    asked_for, blocks = blocks, few.blocks(models.values(), seed=options.seed) if quick else blocks
    how: dict[str, Any] = {"blocks": blocks, "all_blocks": all_blocks}
    # of a model that could not be opened the engine says why
    unknown = [Asked(name) for name in statistics or registry.checked_names(None)]
    asked = {(a, b): first(models[a], models[b], statistics, **how) if (a, b) in known else unknown for a, b in pairs}
    whole = statistics is None and asked_for is None
    may = {(a, b): may_follow(models[a], models[b], asked[a, b]) if whole else [] for a, b in known}
    names = list(dict.fromkeys(test.statistic for tests in asked.values() for test in tests))
    options = with_common_vocabulary(with_text(options, names, text), models, names)
    records: list[PairRecord] = []
    for everywhere in (True, False):
        having = {
            name: some for name in names if (some := [pair for pair in pairs if Asked(name, everywhere) in asked[pair]])
        }
        if having:
            records += run_pairs(
                opened, list(having), options, blocks=blocks, pairs=having, all_blocks=everywhere, **engine
            )
    records = in_order(records, names, pairs)
    if statistics is not None:
        return records, options
    outcomes: dict[Pair, dict[str, Outcome]] = {}
    for record in records:
        if record.outcome is not None:
            outcomes.setdefault((record.a, record.b), {})[record.statistic] = record.outcome
    again: dict[Asked, list[Pair]] = {}
    for pair, rejecting in _rejecting(records, sum(map(len, may.values())), primary, fdr=fdr).items():
        if pair in outcomes:
            for test in further(may[pair], asked[pair], outcomes[pair], rejecting):
                again.setdefault(test, []).append(pair)
    for everywhere in (True, False):
        having = {name: some for (name, all_meet), some in again.items() if all_meet == everywhere}
        if having:
            seen = run_pairs(opened, list(having), options, pairs=having, all_blocks=everywhere, **engine)
            records += [record for record in seen if record.outcome]
    return in_order(records, list(dict.fromkeys([*names, LOOK, BY_GATES, "stream_score"])), pairs), options


def with_text(options: Options, names: Sequence[str], text: str | None) -> Options:
    """Options with the text, or prose that a scheme offers if none is given and a statistic reads text.

    Called once all else is checked: the first use of the zoo's text makes its corpus, which takes a while.
    """
    reads = any("text_sha256" in registry.get(name).parameters(options) for name in names)
    if text is None and reads:
        text = plugins.default_text()
    return replace(options, text=text or "")


def in_order(records: Sequence[PairRecord], names: Sequence[str], pairs: Sequence[Pair]) -> list[PairRecord]:
    """Sort records by statistic, then by pair."""
    by_name, by_pair = ({key: i for i, key in enumerate(keys)} for keys in (names, pairs))
    return sorted(records, key=lambda record: (by_name[record.statistic], by_pair[record.a, record.b]))


def _rejecting(records: Sequence[PairRecord], n_more: int, primary: str | None, *, fdr: bool) -> dict[Pair, list[str]]:
    """Which tests of each pair reject, those that may follow counted among all: one more test is no free one."""
    family = FamilyOfTests.of(records, primary, fdr=fdr)
    nothing = np.zeros(n_more)
    counted = replace(
        family,
        statistics=(*family.statistics, *[LOOK] * n_more),
        log10_p=np.r_[family.log10_p, nothing],
        reach=np.r_[family.reach, nothing],
    )
    found: dict[Pair, list[str]] = {(r.a, r.b): [] for r in records}
    for record, rejects in zip(records, counted.rejected, strict=False):
        if rejects:
            found[record.a, record.b].append(record.statistic)
    return found
