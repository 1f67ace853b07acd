"""Were these two language models trained independently, and where do they disagree?

The library under the provlab study. `compare` tests a pair of models, `study` all pairs of many, `tree` finds
their families, `diff` says over which
inputs two models disagree, and `begin` starts an experiment in a notebook. Names are loaded on first use, so that
``import provlab`` costs nothing.
"""

import warnings
from typing import TYPE_CHECKING, Any

from provlab.lazy import lazily

if TYPE_CHECKING:
    from provlab.api import compare
    from provlab.diffing import diff
    from provlab.errors import ProvlabError
    from provlab.growing import tree
    from provlab.publishing.experiment import begin
    from provlab.report.comparison import Comparison
    from provlab.report.difference import Difference
    from provlab.report.study_report import StudyReport
    from provlab.studying import study

__all__ = ["Comparison", "Difference", "ProvlabError", "StudyReport", "begin", "compare", "diff", "study", "tree"]

#: the module that holds each name
HOMES = {
    "compare": "provlab.api",
    "study": "provlab.studying",
    "tree": "provlab.growing",
    "diff": "provlab.diffing",
    "ProvlabError": "provlab.errors",
    "begin": "provlab.publishing.experiment",
    "Comparison": "provlab.report.comparison",
    "StudyReport": "provlab.report.study_report",
    "Difference": "provlab.report.difference",
}
_find = lazily(__name__, HOMES)


def __getattr__(name: str) -> Any:
    with warnings.catch_warnings():  # of a progress bar that we do not use in notebooks
        warnings.filterwarnings("ignore", message="IProgress not found")
        return _find(name)
