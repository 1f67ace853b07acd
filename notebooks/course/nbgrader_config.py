"""How nbgrader runs this course: from this folder, with feedback that hides the hidden tests."""

import sys
from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import GetGrades

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from hide_tests import HideTests, pages_alone

c = get_config()  # noqa: F821
c.CourseDirectory.root = str(HERE)
c.CourseDirectory.course_id = "provlab"
c.Execute.timeout = 600  # seconds of a cell: the last assignment trains small models when they are first asked for
c.GenerateFeedback.preprocessors = [GetGrades, HideTests, CSSHTMLHeaderPreprocessor]
c.GenerateFeedback.post_convert_hook = pages_alone
