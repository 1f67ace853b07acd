"""One statistic on one pair, block by block, until the question is settled: for models that are large or far away."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from provlab.engine.pairs import run_pairs
from provlab.engine.store import Store
from provlab.engine.table import OpenedModels, PairRecord
from provlab.errors import NotComparableError
from provlab.inference import evalues
from provlab.statistics import get as get_statistic
from provlab.statistics.base import Options, tensor_bytes
from provlab.statistics.order import of_pair
from provlab.statistics.results import BlockResult, Outcome

_ORDER = 1  # what this stream of random numbers is for


def until_settled(
    opened: OpenedModels,
    name: str,
    options: Options,
    *,
    level: float,
    store: Store | None,
    blocks: Sequence[int] | None,
    progress: float,
) -> PairRecord:
    """Read blocks in a seeded order until the product of their e-values reaches 1 / level, or all are read.

    Returns
    -------
    PairRecord
        Whose p-value is valid whenever reading stops (`evalues.anytime_log10_p`), and whose detail has, under
        ``until_settled``, log10_e, the blocks in the order read, of how many, and the bytes of both models read and
        left unread.

    Raises
    ------
    NotComparableError
        If the statistic cannot be read block by block, or does not apply.
    """
    statistic = get_statistic(name)
    a, b = (opened.models[source] for source in opened.sources)
    places = [block for block in statistic.blocks(a, b) if block is not None and (blocks is None or block in blocks)]
    if statistic.recorded is not None or not places:
        raise NotComparableError(
            f"{name} is not read block by block, so nothing could be left unread; "
            "--until-settled is for statistics of weights such as phi_u and phi_l2_blocks"
        )
    if not statistic.independent_blocks:
        raise NotComparableError(
            f"the blocks of {name} are not independent, as the product of their e-values needs; --until-settled is for "
            "statistics such as phi_u and phi_l2_blocks"
        )
    order = [int(block) for block in np.random.default_rng([options.seed, _ORDER]).permutation(places)]
    records: list[PairRecord] = []
    results: list[BlockResult] = []
    log10_p: list[float] = []
    for block in order:
        (record,) = run_pairs(opened, [name], options, store=store, blocks=[block], progress=progress)
        if record.outcome is None:
            return record
        (result,) = record.outcome.blocks
        if result.log10_p is None:
            raise NotComparableError(f"{name} has no p-value of a block, so blocks cannot be read until it is settled")
        records.append(record)
        results.append(result)
        log10_p = independent(results)
        if evalues.running(log10_p)[-1] >= -np.log10(level):
            break
    size = [_bytes(name, opened, block, options) for block in order]
    detail = {
        "log10_e": float(evalues.running(log10_p)[-1]),
        "read": order[: len(records)],
        "blocks": len(order),
        "bytes_read": sum(size[: len(records)]),
        "bytes_left": sum(size[len(records) :]),
    }
    left, total = sum(size[len(records) :]), sum(size)
    sentence = (
        f"{len(records)} of {len(order)} blocks were read, in an order drawn beforehand, until the product of their "
        f"e-values, 10^{detail['log10_e']:.1f}, reached {1 / level:g} or none was left; the p-value is the inverse of "
        f"the largest product on the way, a bound that is valid whenever reading stops. {left / total:.0%} of "
        f"{total:,} bytes were left unread."
    )
    combined = statistic.outcome(results)
    about = replace(combined.detail, paper_log10_p=None, until_settled=detail, said=sentence)
    anytime = None if about.withheld else evalues.anytime_log10_p(log10_p)
    outcome = Outcome(combined.value, anytime, combined.blocks, None, about)
    keys = tuple(key for record in records for key in record.keys)
    first, second = opened.sources
    return PairRecord(first, second, name, outcome, None, keys)


def independent(results: Sequence[BlockResult]) -> list[float]:
    """log10 p of blocks, of which those that stand in one order in both models count once: the first that was read."""
    results = [result for result in results if not result.detail.left_out]
    if not results:
        return [0.0]
    labels = np.arange(len(results))
    if results[0].detail.order is not None:
        _, labels = of_pair([result.detail.needed("order") for result in results])
    return [results[first].log10_p or 0.0 for first in np.sort(np.unique(labels, return_index=True)[1])]


def _bytes(name: str, opened: OpenedModels, block: int, options: Options) -> int:
    """Bytes of one block's tensors in the files of both models, as far as the statistic reads them."""
    a, b = (opened.models[source] for source in opened.sources)
    return sum(
        tensor_bytes(model, tensor, rows)
        for model, other in ((a, b), (b, a))
        for tensor, rows in get_statistic(name).tensors(model, other, block, options).items()
    )
