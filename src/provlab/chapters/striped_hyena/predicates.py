"""Predicates about single tensors: which of them two models share, tested one by one."""

from collections.abc import Sequence

import numpy as np

from provlab.chapters.striped_hyena.measure import Sharing
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge


def taken_tensors_found(
    evidence: Evidence, measurement: str, axis: str, correction: str, level: float, beyond: Sequence[str]
) -> Verdict:
    """Every taken tensor is called, no other pair of the published kinds is, and nothing against an unrelated model.

    Pairs with a tensor named in `beyond`, of a kind that the paper's table does not have, are counted and reported, and
    do not decide.
    """
    runs = [run for run in evidence.records(measurement, Sharing) if run.axis == axis]
    related = [run for run in runs if run.related]
    if not related or len(related) == len(runs):
        return Verdict(NOT_RUN, "", "it takes a hybrid against its parent, and one against an unrelated model")
    bound = float(np.log10(level))

    def called(run: Sharing, *, taken: bool, outside: bool) -> list[str]:
        return [
            f"{pair['first']} ~ {pair['second']}"
            for pair in run.pairs
            if pair[correction] <= bound
            and pair["taken"] == taken
            and bool({pair["first"], pair["second"]} & set(beyond)) == outside
        ]

    n_taken = sum(run.n_taken for run in related)
    found = sum(len(called(run, taken=True, outside=outside)) for run in related for outside in (False, True))
    wrong = [pair for run in related for pair in called(run, taken=False, outside=False)]
    reported = [pair for run in related for pair in called(run, taken=False, outside=True)]
    unrelated = [
        pair for run in runs if not run.related for outside in (False, True)
        for pair in called(run, taken=False, outside=outside)
    ]  # fmt: skip
    tested = sum(run.n_tests for run in related)
    ours = (
        f"{found} of {n_taken} taken tensors called in {len(related)} hybrids, {len(wrong)} of the other "
        f"{tested - n_taken:,} pairs; {len(unrelated)} against unrelated models"
    )
    if reported:
        ours += f"; beyond the table's kinds {len(reported)} more ({_few(reported)})"
    problems = [
        (found < n_taken, f"{n_taken - found} taken tensors not called"),
        (bool(wrong), f"called though not taken: {_few(wrong)}"),
        (bool(unrelated), f"called between unrelated models: {_few(unrelated)}"),
    ]
    return judge(
        ours, f"by {axis}, {correction.replace('_', ' ')} at {level:g}: the list is that of the recipe", problems
    )


def _few(pairs: Sequence[str]) -> str:
    unique = list(dict.fromkeys(pairs))
    return ", ".join(unique[:3]) + (f" and {len(unique) - 3} more" if len(unique) > 3 else "")
