"""How nbgrader runs this course: from this folder; the first name of a flaw counts, and feedback hides hidden tests."""

import sys
from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.converters import Autograde
from nbgrader.preprocessors import GetGrades

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from hide_tests import FirstName, HideTests, OwnTools, pages_alone

c = get_config()  # noqa: F821
c.CourseDirectory.root = str(HERE)
c.CourseDirectory.course_id = "provlab"
c.Execute.timeout = 600  # seconds of a cell: the last assignment trains small models when they are first asked for
c.Autograde.sanitize_preprocessors = [FirstName, *Autograde.sanitize_preprocessors.default_args[0], OwnTools]
c.GenerateFeedback.preprocessors = [GetGrades, HideTests, CSSHTMLHeaderPreprocessor]
c.GenerateFeedback.post_convert_hook = pages_alone
