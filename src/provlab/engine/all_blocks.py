"""Where two models have a common origin: every block of one with every block of the other (Section 4.4.2).

A model that was cut out of another keeps some of its blocks, at other places, and some of their hidden units. phi_MATCH
needs neither equal depth nor equal width, so it can be asked of all pairs of blocks. Their p-values share
activations and are not independent: Holm's correction is read, never Fisher's aggregate.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from provlab.engine.jobs import Place
from provlab.engine.memory import Pair
from provlab.engine.reference import Result
from provlab.engine.table import JobTable, Missing, PairRecord
from provlab.errors import NotComparableError, NoUnitsError, ParameterError, reason
from provlab.statistics import get
from provlab.statistics.model import Model
from provlab.statistics.order import of_pair
from provlab.statistics.results import FEW, BlockResult, Detail, Outcome, of_all_blocks, reachable, silence

Blocks = tuple[int, int]


def able(names: Sequence[str], models: Sequence[Model], *, explicit: bool) -> list[str]:
    """Name those of these statistics that compare all blocks with all: how many tests there are is known before any.

    These say so by `Statistic.meets_all`; of models without gates, those that need none.

    Raises
    ------
    ParameterError
        It is asked for, and none of them can.
    """
    gated = all(model.anatomy.has("gate") for model in models)
    tests = [get(name) for name in names]
    can = [test.name for test in tests if test.meets_all and (gated or not test.needs_gates)]
    if explicit and not can:
        raise ParameterError("all blocks are compared by phi_match, where both models have gates, or phi_u; name one")
    return can


class AllBlocks(JobTable):
    """Every block of one model with every block of the other, and one p-value for these: for models of any depth.

    The p-value is the smallest of all pairs of blocks, adjusted by Holm over all of them. Blocks of the outcome are
    those of the first model, each with its best partner in the second and the p-value adjusted likewise; its detail
    says under ``all_blocks`` how many blocks there are, what was found where, and how many pairs could not be compared
    and count as no evidence.
    """

    def __init__(self, *arguments: Any) -> None:
        self.refused: dict[Pair, list[NotComparableError]] = {}
        super().__init__(*arguments)

    def places(self, a: Model, b: Model, only: Sequence[int] | None) -> Sequence[Place]:
        """All pairs of blocks."""
        self.statistic.require(a, b)
        return list(product(range(a.anatomy.n_blocks), range(b.anatomy.n_blocks)))

    def jobs(self) -> list[Missing]:
        """One job a pair of models: a block that is read meets all the other's."""
        left: dict[Pair, list[Place]] = {}
        for place, pairs in self.missing().items():
            for pair in pairs:
                left.setdefault(pair, []).append(place)
        return [(tuple(places), [pair]) for pair, places in left.items()]

    def take(self, pair: Pair, place: Place, result: Result) -> None:
        """Two blocks that cannot be compared are no evidence, and end nothing."""
        if place is not None and isinstance(result, BlockResult) and result.left_out:
            result = NoUnitsError(result.why)
        if place is not None and isinstance(result, NotComparableError):
            self.refused.setdefault(pair, []).append(result)
        else:
            super().take(pair, place, result)

    def compared(self, pair: Pair) -> dict[Blocks, BlockResult]:
        """Results of the pairs of blocks that were compared.

        Raises
        ------
        NotComparableError
            None was; the reason is that of the first, or of the first that is another one than that a block has no
            units (`provlab.errors.NoUnitsError`).
        """
        known = ((place, self.results.get((pair, place))) for place in self._places[pair])
        results = {place: result for place, result in known if isinstance(place, tuple) and result is not None}
        if not results:
            refused = self.refused[pair]
            raise next((error for error in refused if not isinstance(error, NoUnitsError)), refused[0])
        return results

    def record(self, pair: Pair) -> PairRecord:
        """Bring the pairs of blocks to one p-value."""
        shape = tuple(model.anatomy.n_blocks for model in self._models(pair))
        name = self.statistic.name
        try:
            results = self.compared(pair)
        except NoUnitsError:  # no two blocks both have hidden units
            none = self.statistic.outcome([self.statistic.without(block, []) for block in range(shape[0])])
            return PairRecord(*pair, name, none, None)
        except NotComparableError as error:
            return PairRecord(*pair, name, None, reason(error))
        keys = self.keys((pair, place) for place in results)
        return PairRecord(*pair, name, _outcome(name, results, (shape[0], shape[1])), None, keys)


def _outcome(name: str, results: dict[Blocks, BlockResult], shape: Blocks) -> Outcome:
    """Bring all pairs of blocks that were compared, of so many, to one p-value."""
    of_a, of_b = shape
    log10_p = np.zeros(shape)  # a pair of blocks that was not compared is no evidence
    for pair, result in results.items():
        log10_p[pair] = result.log10_p
    holm, everywhere, pairs = of_all_blocks(log10_p, len(results))
    could = np.zeros(shape)
    for pair, result in results.items():
        could[pair] = result.reach
    tests = float(np.log10(holm.size))
    blocks = []
    for i, row in enumerate(holm):
        if compared := [(log10_p[i, j], j) for j in range(of_b) if (i, j) in results]:
            j = min(compared)[1]
            result = results[i, j]
            reach = min(0.0, float(could[i].min()) + tests)
            detail = Detail(n=result.detail.n, agree=result.detail.agree, partner=j)
            why = None if reach else result.why or FEW
            blocks.append(BlockResult(i, result.value, float(row[j]), reach, why, detail))
    # either model may have silenced some of its blocks: what is left of the weaker one
    left = max(float(reachable(could.min(axis=axis)).min()) for axis in (0, 1))
    reach = min(0.0, left + tests)
    message = (
        f"{name} compared all {of_a} blocks of one with all {of_b} of the other; its p-value is the smallest "
        f"of {of_a * of_b} pairs of blocks, by Holm over them (found: {pairs})."
    )
    best = min(blocks, key=lambda block: (float(holm[block.block].min()), -block.value))
    why = None if reach else silence(blocks) or FEW
    found = Detail(all_blocks=everywhere, said=message)
    outcome = Outcome(best.value, best.log10_p, tuple(blocks), reach, why, found)
    orders = [result.detail.order for result in results.values() if result.detail.order is not None]
    about, both_sorted, _ = of_pair(orders) if orders else (Detail(), None, None)
    return replace(outcome, detail=found | about).without_p(both_sorted) if both_sorted else outcome
