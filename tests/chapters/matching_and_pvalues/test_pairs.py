"""Which pairs the page shows."""

from types import SimpleNamespace

import pandas as pd
import pytest

from provlab.chapters.matching_and_pvalues import measure
from provlab.errors import ParameterError


def study(*dependent):
    rows = {"statistic": "phi_u", "error": None, "a": "a", "b": [f"b{n}" for n in range(len(dependent))]}
    frame = pd.DataFrame(rows | {"dependent": list(dependent)})
    return SimpleNamespace(to_frame=lambda: frame)


def test_the_first_pair_of_each_kind():
    assert measure.one_of_each(study(False, True, True)) == {"fine-tune": ("a", "b1"), "independent": ("a", "b0")}


def test_models_without_a_pair_of_a_kind_are_refused():
    with pytest.raises(ParameterError, match="has no fine-tune to compare; see models"):
        measure.one_of_each(study(False, False))
