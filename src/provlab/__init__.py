"""Were these two language models trained independently, and where do they disagree?

The library under the provlab study. `compare` tests a pair of models, `study` all pairs of many, `tree` finds
their families, and `diff` says over which inputs two models disagree. Names are loaded on first use, so that
``import provlab`` costs nothing.
"""

from typing import TYPE_CHECKING, Any

from provlab.lazy import lazily

if TYPE_CHECKING:
    from provlab.api import compare
    from provlab.claimed.door import check
    from provlab.errors import ProvlabError
    from provlab.forest.door import tree
    from provlab.modeldiff.door import diff
    from provlab.modeldiff.report import Difference
    from provlab.report.comparison import Comparison
    from provlab.report.study_report import StudyReport
    from provlab.studying import study

__all__ = ["Comparison", "Difference", "ProvlabError", "StudyReport", "check", "compare", "diff", "study", "tree"]

#: the module that holds each name
HOMES = {
    "compare": "provlab.api",
    "study": "provlab.studying",
    "tree": "provlab.forest.door",
    "diff": "provlab.modeldiff.door",
    "check": "provlab.claimed.door",
    "ProvlabError": "provlab.errors",
    "Comparison": "provlab.report.comparison",
    "StudyReport": "provlab.report.study_report",
    "Difference": "provlab.modeldiff.report",
}
_find = lazily(__name__, HOMES)


def __getattr__(name: str) -> Any:
    """Load a name on first use; the version is that of the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    return _find(name)
