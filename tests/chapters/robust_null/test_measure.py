"""What the page on phi_MATCH refuses."""

import pytest

from provlab.chapters.robust_null import measure
from provlab.errors import InputError


def test_models_of_unknown_origin_are_refused():
    with pytest.raises(InputError, match="no pair of models is known to be independent"):
        measure.collections_of(["org/a", "org/b"], ["org/c", "org/d"])
