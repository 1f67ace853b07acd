"""Whether PERMTEST gives valid p-values."""

from collections.abc import Mapping

import numpy as np

from provlab.chapters.exchangeability.measure import ExampleOne
from provlab.chapters.shared import calibration
from provlab.publishing.evidence import Bar, Evidence, Verdict, judge


def permtest_uniform(evidence: Evidence, measurement: str, min_pairs: Mapping[str, int]) -> Verdict:
    """P(p <= k/(T+1)) within its binomial band for all k at once, and fine-tunes at 1/(T+1)."""
    measured = ExampleOne(**evidence.measurement(measurement))
    independent, dependent, t = np.array(measured.independent), np.array(measured.dependent), measured.n_permutations
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    grid = calibration.discrete_uniform_excess(independent, t)
    at_minimum = int((np.rint(dependent * (t + 1)) == 1).sum())
    ours = (
        f"{len(independent):,} independent pairs, T = {t}: P(p ≤ 0.05) = {np.mean(independent <= 0.05):.3f}, "
        f"uniform with p = {grid.p_two_sided:.2g}; {at_minimum} of {len(dependent)} fine-tunes at 1/{t + 1}"
    )
    problems = [
        (len(independent) < enough, f"only {len(independent)} pairs, fewer than {enough}"),
        (at_minimum < len(dependent), f"{len(dependent) - at_minimum} fine-tunes above 1/{t + 1}"),
    ]
    bars = [Bar("p of uniformity on the grid", [grid.p_two_sided], 0.01, above=True)]
    return judge(
        ours, "the share of p-values up to k/(T+1) is within the exact band at every k at once", problems, bars
    )
