"""What the page on power refuses."""

import pytest

from provlab.chapters.power import measure
from provlab.errors import InputError


def test_a_tune_of_unknown_training_is_refused():
    with pytest.raises(InputError, match="org/tuned is no zoo model"):
        measure.share_of_base_tokens("org/tuned")
