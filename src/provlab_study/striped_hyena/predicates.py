"""Predicates about single tensors: which of them two models share, tested one by one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge
from provlab_study.shared import calibration


def taken_tensors_found(
    sharing: Sequence[Mapping[str, Any]], *, axis: str, correction: str, level: float
) -> ClaimStatus:
    """Every taken tensor is called, no other pair of tensors is, and nothing against an unrelated model.

    All pairs of matrices of equal shape decide, over one axis. The level is kept over all comparisons of models
    together: p-values that are corrected within each are multiplied by their number. Each comparison must have tested
    as many pairs that were not taken as a hybrid took, or more: otherwise hardly a wrong call was possible. No more
    pairs with unrelated models may be at 0.01 and 0.001 than chance has there; one pair of tensors repeats
    itself in all hybrids of one base. All pairs with an unrelated model must be there, and not all near 1: a test that
    is dead between strangers leaves them alone too. Calls over the other axis are reported.
    """
    runs = [run for run in sharing if run["axis"] == axis]
    related = [run for run in runs if run["related"]]
    if not related or len(related) == len(runs):
        return ClaimStatus(NOT_RUN, "", "it takes a hybrid against its parent, and one against an unrelated model")
    bound = float(np.log10(level))

    def corrected(pair: Mapping[str, Any]) -> float:
        return min(0.0, float(pair[correction]) + float(np.log10(len(runs))))

    def called(some: Sequence[Mapping[str, Any]], *, shared: bool) -> list[str]:
        return [
            f"{pair['first']} ~ {pair['second']}"
            for run in some
            for pair in run["pairs"]
            if corrected(pair) <= bound and pair["taken"] == shared
        ]

    def words(some: Sequence[Mapping[str, Any]]) -> str:
        n_taken, tested = (sum(run[key] for run in some) for key in ("n_taken", "n_tests"))
        wrong = called(some, shared=False)
        return (
            f"{len(called(some, shared=True))} of {n_taken} taken tensors called in {len(some)} hybrids, "
            f"{len(wrong)} of the other {tested - n_taken:,} pairs" + (f" ({_few(wrong)})" if wrong else "")
        )

    missed = sum(run["n_taken"] for run in related) - len(called(related, shared=True))
    wrong, unrelated = called(related, shared=False), called([run for run in runs if not run["related"]], shared=False)
    ours = f"by {axis} {words(related)}; {len(unrelated)} against unrelated models"
    for other in dict.fromkeys(run["axis"] for run in sharing if run["axis"] != axis):
        ours += (
            f"; by {other}, not judged, {words([run for run in sharing if run['related'] and run['axis'] == other])}"
        )
    fewest, most = min(run["n_tests"] - run["n_taken"] for run in runs), max(run["n_taken"] for run in runs)
    null = [(run, pair) for run in runs if not run["related"] for pair in run["pairs"]]
    strangers = "pairs of tensors of unrelated models"
    log10_p, alike = (
        [pair["log10_p"] for _, pair in null],
        [(run["against"], pair["first"], pair["second"]) for run, pair in null],
    )
    unseen = sum(run["n_tests"] - len(run["pairs"]) for run in runs if not run["related"])
    problems = [
        *calibration.too_many_small(strangers, log10_p, groups=alike),
        *calibration.too_few_small(strangers, log10_p, groups=alike),
        (unseen != 0, f"{unseen} {strangers} are counted and not there"),
        (fewest < most, f"a comparison tested only {fewest} pairs that were not taken, fewer than the {most} taken"),
        (missed > 0, f"{missed} taken tensors not called"),
        (bool(wrong), f"called though not taken: {_few(wrong)}"),
        (bool(unrelated), f"called between unrelated models: {_few(unrelated)}"),
    ]
    name = correction.replace("_", " ").title().replace(" ", "-")
    kept = {flag: [corrected(p) for run in runs for p in run["pairs"] if p["taken"] == flag] for flag in (True, False)}
    bars = [
        # pairs that were not taken are recorded where their corrected p is below 0.1
        Bar(f"strongest pair not taken, by {name}, log10 p", [min(kept[False], default=-1.0)], bound, above=True),
    ]
    if kept[True]:
        bars.append(Bar(f"weakest taken pair, by {name}, log10 p", [max(kept[True])], bound))
    why = f"by {axis}, {name} at {level:g} over {len(runs)} comparisons: the list is that of the recipe"
    return judge(ours, why, problems, bars)


def _few(pairs: Sequence[str]) -> str:
    unique = list(dict.fromkeys(pairs))
    return ", ".join(unique[:3]) + (f" and {len(unique) - 3} more" if len(unique) > 3 else "")
