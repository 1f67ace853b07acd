"""Results as a reader meets them."""

from provlab.report.comparison import Comparison
from provlab.report.study_report import StudyReport
from provlab.report.views import LEVEL, describe

__all__ = ["LEVEL", "Comparison", "StudyReport", "describe"]
