"""Blocks of one pair brought together: one p-value by Fisher's method, and one reach by the same."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.inference import pvalues
from provlab.statistics import order
from provlab.statistics.results import BlockResult, Detail, Outcome, reachable, silence


def nothing_compared(blocks: Sequence[BlockResult]) -> Outcome:
    """The outcome of blocks that were all left out."""
    return Outcome(0.0, None, tuple(blocks)).without_p(silence(blocks) or "no block was compared")


def aggregated(blocks: Sequence[BlockResult]) -> Outcome:
    """Aggregate the blocks of one pair; a single result of the whole model (block None) stands for itself.

    p-values are combined by Fisher's method (Algorithm 3), which is valid where blocks are independent under the null;
    Theorem 2 gives that for statistics of MATCH per block. Blocks that stand in one order in both models are one test
    first, by Bonferroni. Reaches are combined likewise, as far as a thief who silenced some blocks leaves them
    (`reachable`); the paper's two-sided p-values, where they are known, as the paper does. The value is the mean over
    blocks. There is no p-value where both models are sorted (`provlab.statistics.order`), or where no block gives one
    below 1 and none could.
    """
    first = blocks[0]
    about, both_sorted, labels = Detail(), None, np.arange(len(blocks))
    if first.detail.order is not None:
        about, both_sorted, labels = order.of_pair([block.detail.needed("order") for block in blocks])
    if first.block is None:
        outcome = Outcome(first.value, first.log10_p, tuple(blocks), first.reach, first.why, first.detail | about)
        return outcome.without_p(both_sorted) if both_sorted else outcome
    value = float(np.mean([block.value for block in blocks]))
    if first.log10_p is None:
        return Outcome(value, None, tuple(blocks))

    def fisher(numbers: Sequence[Any] | NDArray[np.float64], labels: NDArray[np.int64]) -> float:
        return pvalues.fisher(order.bonferroni(np.asarray(numbers, dtype=np.float64), labels))

    if first.detail.paper_log10_p is not None:
        paper = [block.detail.needed("paper_log10_p") for block in blocks]
        about = replace(about, paper_log10_p=fisher(paper, np.arange(len(blocks))))
    if len(np.unique(labels)) < len(blocks):
        about = replace(about, together=labels.tolist())
    log10_p = fisher([block.log10_p for block in blocks], labels)
    reach = fisher(reachable([block.reach for block in blocks]), labels)
    why = silence(blocks) if reach == 0 else None
    outcome = Outcome(value, log10_p, tuple(blocks), reach, why, about)
    unsaid = why if all(block.reach == block.log10_p == 0 for block in blocks) else None
    no_p = both_sorted or unsaid
    return outcome.without_p(no_p) if no_p else outcome
