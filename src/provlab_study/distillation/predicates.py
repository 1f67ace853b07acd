"""The predicate about models without gates: what phi_MATCH says of their gated students."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from provlab.inference import pvalues
from provlab_study.distillation.measure import Distilled, n_called, size_and_power
from provlab_study.publishing.evidence import FAILS, NOT_RUN, Bar, ClaimStatus, judge, log10_words, read
from provlab_study.shared import calibration

AT_MOST = 5.0  # times the level: what a valid test may be taken for, with few pairs


def distilled_is_found(
    distilled: Mapping[str, Mapping[str, Any]],
    perfect: Sequence[float],
    one_teacher: Sequence[float],
    *,
    recipe: str,
    level: float,
    size_level: float,
    least: int,
    width: float,
) -> ClaimStatus:
    """Students of dependent models are found, and those of independent ones are not called related too often.

    Judged by the recipe named, whose students must be `width` times as wide as their teachers; the others are reported.
    Holm's procedure at `level` must find every dependent pair and no independent one, and the share of independent
    pairs with p up to `size_level`, at least `least` of them, must not lie significantly above it. Two more
    measurements must be there. `perfect` has the independent pairs once more, each model in its perfect gated form,
    which a student comes ever nearer to: where the test rejects these, it is invalid, whatever the students of one
    recipe show. It does where their share at `level`, or at `size_level`, is above it with its interval; where the
    interval reaches `AT_MOST` times the larger level, too few were tried to say. `one_teacher`, two students of one
    MLP each, says how much of the test's power students lose.
    """
    recipes = dict(zip(distilled, read(Distilled, list(distilled.values())), strict=True))
    judged = recipes[recipe]
    dependent, independent = np.array(judged.dependent, dtype=float), np.array(judged.independent, dtype=float)
    if not dependent.size or independent.size < least:
        return ClaimStatus(
            NOT_RUN,
            "",
            f"{dependent.size} dependent and {independent.size} independent pairs; it takes {least} of these",
        )
    if judged.width_factor != width:
        return ClaimStatus(
            NOT_RUN, "", f"students {judged.width_factor:g} times as wide as their teachers, not {width:g}"
        )
    if np.isnan(dependent).any() or np.isnan(independent).any():
        return ClaimStatus(NOT_RUN, "", "a pair has no value")
    fares = size_and_power(judged, level=size_level)
    n_found = n_called(dependent, level)
    accused = n_called(independent, level)
    words = [
        f"students {width:g} times as wide, relative error {judged.relative:.2g}, |cosine| {judged.cosine:.2f}",
        f"{n_found} of {dependent.size} dependent pairs found, strongest {log10_words(float(dependent.min()))}",
        f"{independent.size} independent pairs: share below {size_level:g} is {fares.size:.2f} "
        f"({fares.low:.2f} to {fares.high:.2f}), smallest {log10_words(fares.smallest)}",
    ]
    for name, other in recipes.items():
        if name != recipe:
            rest = size_and_power(other, level=size_level)
            words.append(
                f"{name}: {rest.power:.2f} of the dependent and {rest.size:.2f} of the independent pairs below"
            )
    forms = np.array(perfect, dtype=float)
    if not forms.size:
        return ClaimStatus(NOT_RUN, "", "no pair of independent models in their perfect gated form")
    at_level = {at: int((forms <= math.log10(at)).sum()) for at in (level, size_level)}
    problems = [
        *(
            (
                calibration.size_interval(n, forms.size)[0] > at,
                "invalid as a test: of pairs of independent MLPs in their exact gated form, whose gate and up rows are "
                f"the same, {n} of {forms.size} are below {at:g}, the largest at {log10_words(float(forms.max()))}",
            )
            for at, n in at_level.items()
        ),
        (n_found < dependent.size, f"Holm at {level:g} misses {dependent.size - n_found} dependent pairs"),
        (fares.low > size_level, f"independent pairs are below {size_level:g} significantly more often than that"),
        (accused > 0, f"Holm at {level:g} calls {accused} independent pairs related"),
    ]
    why = f"each dependent pair is found, and independent ones are below {size_level:g} no more often than they may be"
    weakest = Bar("weakest dependent pair, by Holm", [float(pvalues.holm(dependent).max())], math.log10(level))
    share = at_level[size_level] / forms.size
    ends = calibration.size_interval(at_level[size_level], forms.size)
    known = Bar(f"share of perfect forms below {size_level:g}", [share], AT_MOST * size_level, interval=ends)
    verdict = replace(judge("; ".join(words), why, problems, [known]), margin=weakest.margin)
    verdict = replace(verdict, replicates=f"{n_found} of {dependent.size}")
    twins = np.array(one_teacher, dtype=float)
    if verdict.status != FAILS or not twins.size:
        return verdict
    n = int((twins <= math.log10(size_level)).sum())
    lost = f"of pairs of students of one and the same MLP, {n} of {twins.size} are below {size_level:g}"
    return replace(verdict, why=f"{verdict.why}; {lost}")
