"""Do p-values behave as p-values should? Bands, tests, and one check that puts them together.

`bands` holds the single questions, each answered over a whole set of p-values at once; `check` asks all of them and
says which answer, if any, is further out than the level allows.
"""

from provlab.chapters.shared.calibration.bands import (
    Band,
    GridUniformity,
    KolmogorovSmirnov,
    correlation_band,
    discrete_uniform_excess,
    ks_uniform,
    simultaneous_band,
    size_interval,
)
from provlab.chapters.shared.calibration.check import SIZES, CalibrationReport, Size, check
from provlab.chapters.shared.calibration.rounds import RoundRobin, jackknife, round_robin, tournament

__all__ = [
    "SIZES",
    "Band",
    "CalibrationReport",
    "GridUniformity",
    "KolmogorovSmirnov",
    "RoundRobin",
    "Size",
    "check",
    "correlation_band",
    "discrete_uniform_excess",
    "jackknife",
    "ks_uniform",
    "round_robin",
    "simultaneous_band",
    "size_interval",
    "tournament",
]
