"""Do p-values behave as p-values should? Bands, tests, and one check that puts them together.

`bands` has the single questions, each answered over a whole set of p-values at once; `check` asks all of them and
names those whose answers are further out than the level allows; `rounds` is for pairs that share models.
"""

from provlab_study.shared.calibration.bands import (
    correlation_band,
    ks_uniform,
    simultaneous_band,
    size_interval,
    uniform_on_grid,
)
from provlab_study.shared.calibration.check import (
    SIZES,
    CalibrationReport,
    check,
    too_few_copies,
    too_few_small,
    too_many_small,
    uniformity,
)
from provlab_study.shared.calibration.rounds import jackknife, round_robin, tournament

__all__ = [
    "SIZES",
    "CalibrationReport",
    "check",
    "correlation_band",
    "jackknife",
    "ks_uniform",
    "round_robin",
    "simultaneous_band",
    "size_interval",
    "too_few_copies",
    "too_few_small",
    "too_many_small",
    "tournament",
    "uniform_on_grid",
    "uniformity",
]
