"""Where two models have a common origin: phi_MATCH of every block with every block, and unit by unit (Section 4.4.2).

A model that was cut out of another keeps some of its blocks, at other places, and some of their hidden units. phi_MATCH
needs neither equal depth nor equal width, so it can be asked of all pairs of blocks. Their p-values share
activations and are not independent: Holm's correction is read, never Fisher's aggregate.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from provlab.engine.device import product_on
from provlab.engine.ledger import Bench, Finished, PairRecord
from provlab.engine.pairs import bar_of
from provlab.engine.reference import named
from provlab.engine.store import Store
from provlab.engine.tasks import place
from provlab.errors import PAIR_FAILURES, NotComparableError, NoUnitsError, ParameterError, reason
from provlab.inference import pvalues
from provlab.inference.matching import UnitRows, multiplied_by
from provlab.models import room
from provlab.models.room import keep
from provlab.statistics import get
from provlab.statistics.base import Model, Options, Statistic
from provlab.statistics.order import of_pair
from provlab.statistics.results import BlockResult, Detail, Outcome, withheld
from provlab.statistics.two_views import Views

_LEVEL = 0.01  # at which a pair of blocks is found, by Holm over all pairs
_SHOWN = 12  # pairs of blocks that a verdict names


def all_with_all(
    bench: Bench, names: Sequence[str], options: Options, *, explicit: bool, store: Store | None, progress: float
) -> list[PairRecord]:
    """Compare all blocks of two models with all, by those of these statistics that can.

    These are phi_match, its unsigned form and phi_anchor, where both models have gates, and phi_u: each sees what the
    others do not, and how many tests there are is known before any is made.

    Raises
    ------
    ParameterError
        It is asked for, and none of them can.
    """
    gated = all(model.anatomy.has("gate") for model in bench.models.values())
    able = [name for name in names if gated and name in ("phi_match", "phi_match_unsigned", "phi_anchor")]
    able += [name for name in names if name == "phi_u"]
    if explicit and not able:
        raise ParameterError("all blocks are compared by phi_match, where both models have gates, or phi_u; name one")
    (of_a, a), (of_b, b) = bench.models.items()
    records = [compared_everywhere(get(name), a, b, options, store=store, progress=progress) for name in able]
    return [replace(record, a=of_a, b=of_b) for record in records]  # as the models were named


def compared_everywhere(
    statistic: Statistic, a: Model, b: Model, options: Options, *, store: Store | None = None, progress: float = True
) -> PairRecord:
    """Compare every block of `a` with every block of `b` and bring it to one p-value, for models of any depth.

    The p-value is the smallest of all pairs of blocks, adjusted by Holm over all of them. Blocks of the outcome are
    those of `a`, each with its best partner in `b` and the p-value adjusted likewise; its detail says under
    ``all_blocks`` how many blocks there are, what was found where, and how many pairs could not be compared and count
    as no evidence.

    Parameters
    ----------
    statistic : Statistic
        phi_match, its unsigned form, or phi_u.
    a, b, options, store, progress
        Two models, what the statistic needs (phi_match text, phi_u up projections of one shape), where finished pairs
        of blocks are kept and found again, and whether a bar is shown.
    """
    finished = Finished(store, statistic, options)
    try:
        every = every_pair_of_blocks(statistic, a, b, finished, progress=progress)
    except NoUnitsError:  # no two blocks both have hidden units
        none = statistic.outcome([statistic.without(block, []) for block in range(a.anatomy.n_blocks)])
        return PairRecord(a.checkpoint.source, b.checkpoint.source, statistic.name, none, None)
    except PAIR_FAILURES as error:
        return PairRecord(a.checkpoint.source, b.checkpoint.source, statistic.name, None, reason(error))
    shape = of_a, of_b = a.anatomy.n_blocks, b.anatomy.n_blocks
    results = {pair: result for pair, result in every.items() if result is not None}
    log10_p = np.zeros(shape)  # a pair of blocks that was not compared is no evidence
    for pair, result in results.items():
        log10_p[pair] = result.log10_p
    holm = pvalues.holm(log10_p.ravel()).reshape(shape)
    floor = min(0.0, min(result.detail.needed("floor") for result in results.values()) + float(np.log10(holm.size)))
    reached = {pair: float(result.detail.reach or 0.0) for pair, result in results.items()}
    could = min(0.0, min(reached.values()) + float(np.log10(holm.size)))
    blocks = []
    for i, row in enumerate(holm):
        if compared := [(log10_p[i, j], j) for j in range(of_b) if (i, j) in results]:
            j = min(compared)[1]
            result = results[i, j]
            nothing = all(reached[i, k] == 0 for _, k in compared)  # why no partner could have been found
            kept = ("n", "agree", "of_units", *("blind", "withheld") * nothing)
            counts = {name: getattr(result.detail, name) for name in kept}
            detail = Detail(**counts, floor=floor, power=could, partner=j)
            blocks.append(BlockResult(i, result.value, float(row[j]), detail))
    everywhere: dict[str, Any] = {
        "shape": list(shape),
        "found": np.argwhere(holm <= np.log10(_LEVEL)).tolist(),
        "not_compared": len(every) - len(results),
        "log10_p": log10_p.tolist(),
    }
    pairs = ", ".join(f"{i} with {j}" for i, j in everywhere["found"][:_SHOWN]) or "none"
    more = f" and {left} more" if (left := len(everywhere["found"]) - _SHOWN) > 0 else ""
    lost = f"; {everywhere['not_compared']} pairs could not be compared" if everywhere["not_compared"] else ""
    message = (
        f"{statistic.name} compared all {of_a} blocks of one with all {of_b} of the other; its p-value is the smallest "
        f"of {of_a * of_b} pairs of blocks, by Holm over them (found: {pairs}{more}{lost})."
    )
    keys = tuple(finished.key((a, b), pair) for pair in results)
    best = min(blocks, key=lambda block: (float(holm[block.block].min()), -block.value))
    outcome = Outcome(best.value, best.log10_p, tuple(blocks), floor, Detail(all_blocks=everywhere, said=message))
    orders = [result.detail.order for result in results.values() if result.detail.order is not None]
    if orders and (about := of_pair(orders)[0]).withheld:
        outcome = withheld(replace(outcome, detail=outcome.detail | about), about.withheld)
    return PairRecord(a.checkpoint.source, b.checkpoint.source, statistic.name, outcome, None, keys)


def every_pair_of_blocks(
    statistic: Statistic, a: Model, b: Model, finished: Finished, *, progress: float
) -> dict[tuple[int, int], BlockResult | None]:
    """Results of all pairs of blocks; None where two blocks cannot be compared, as where one has a row of zeros.

    Raises
    ------
    NotComparableError
        No pair of blocks can be compared; the reason is that of the first, or of the first that is another one than
        that a block has no units (`provlab.errors.NoUnitsError`).
    """
    statistic.require(a, b)
    shape = a.anatomy.n_blocks, b.anatomy.n_blocks
    options = finished.options
    keys = {pair: finished.key((a, b), pair) for pair in product(range(shape[0]), range(shape[1]))}
    results: dict[tuple[int, int], BlockResult | None] = {pair: finished.get(key) for pair, key in keys.items()}
    left = [pair for pair, result in results.items() if result is None]
    if not left:
        return results
    of_a, of_b = (statistic.prepare(model, options) for model in (a, b))
    # a block of a is at hand while it meets all blocks of b, and these wait normalised
    first = functools.lru_cache(maxsize=1)(of_a.block)
    second = functools.cache(lambda j: _kept(of_b.block(j), room.IN_MEMORY // shape[1]))
    refused: list[NotComparableError] = []
    with bar_of(len(left), progress) as bar:
        bar.set_description("blocks", refresh=False)
        for i, j in left:
            try:
                name = place(statistic.name, (i, j))
                with named(name, a.name, b.name), multiplied_by(product_on(options.device)):
                    result = statistic.checked(statistic.compare_block(first(i), second(j), i, options))
                results[i, j] = result
                finished.put(keys[i, j], (a.checkpoint.source, b.checkpoint.source), (a, b), (i, j), result)
            except NotComparableError as error:
                refused.append(error)
            bar.update()
    if len(refused) == len(results):
        raise next((error for error in refused if not isinstance(error, NoUnitsError)), refused[0])
    return results


def _kept(features: Any, limit: int) -> Any:
    """Return one block's features, in temporary files where they are large."""
    if isinstance(features, dict):  # of experts
        return {name: _kept(rows, limit // len(features)) for name, rows in features.items()}
    if isinstance(features, UnitRows):
        return replace(features, unit=keep(features.unit, limit))
    if isinstance(features, Views):
        gate, up = (_kept(view, limit // 2) for view in features[:2])
        return features._replace(gate=gate, up=up)
    return features
