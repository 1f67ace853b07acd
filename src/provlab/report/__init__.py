"""Results as a reader meets them: text, tables, frames, pictures, JSON."""

from typing import TYPE_CHECKING

from provlab.lazy import lazily

if TYPE_CHECKING:
    from provlab.report.comparison import Comparison
    from provlab.report.family import LEVEL
    from provlab.report.study_report import StudyReport
    from provlab.report.views import describe

__all__ = ["LEVEL", "Comparison", "StudyReport", "describe"]

__getattr__ = lazily(
    __name__,
    {
        "LEVEL": "provlab.report.family",
        "Comparison": "provlab.report.comparison",
        "StudyReport": "provlab.report.study_report",
        "describe": "provlab.report.views",
    },
)
