"""Were these two language models trained independently, and where do they disagree?

The library under the provlab study. `compare` tests a pair of models, `study` all pairs of many, `diff` says over which
inputs two models disagree, and `begin` starts an experiment in a notebook. Names are loaded on first use, so that
``import provlab`` costs nothing.
"""

import warnings
from typing import TYPE_CHECKING, Any

from provlab.lazy import lazily

if TYPE_CHECKING:
    from provlab.api import compare, study
    from provlab.diffing import diff
    from provlab.errors import ProvlabError
    from provlab.publishing.experiment import begin
    from provlab.report import Comparison, StudyReport
    from provlab.report.difference import Difference

__all__ = ["Comparison", "Difference", "ProvlabError", "StudyReport", "begin", "compare", "diff", "study"]

#: the module that holds each name
HOMES = {
    "compare": "provlab.api",
    "study": "provlab.api",
    "diff": "provlab.diffing",
    "ProvlabError": "provlab.errors",
    "begin": "provlab.publishing.experiment",
    "Comparison": "provlab.report",
    "StudyReport": "provlab.report",
    "Difference": "provlab.report.difference",
}
_find = lazily(__name__, HOMES)


def __getattr__(name: str) -> Any:
    with warnings.catch_warnings():  # of a progress bar that we do not use in notebooks
        warnings.filterwarnings("ignore", message="IProgress not found")
        return _find(name)
