"""Repetition and kinds of text, against sequences whose answer is plain."""

import numpy as np
import pytest

from provlab.errors import InputError
from provlab_study.model_diff.labels import TextKinds, repetition


def test_repetition_by_hand():
    """Pairs of neighbours: none twice; of aaaa one pair thrice; of abab the pair ab twice."""
    tokens = np.array([[0, 1, 2, 3], [5, 5, 5, 5], [0, 1, 0, 1], [1, 0, 2, 1]])
    np.testing.assert_allclose(repetition(tokens), [0, 2 / 3, 1 / 3, 0])
    with pytest.raises(InputError, match="length of at least 2"):
        repetition(np.zeros((3, 1), int))


def test_kinds_are_told_apart():
    """Two texts over the same tokens in different order: rising, and falling."""
    rng = np.random.default_rng(0)
    rising = np.cumsum(rng.integers(1, 3, 5000)) % 20
    falling = rising[::-1].copy()
    kinds = TextKinds.fit(rising[:4000], falling[:4000], 20)
    held_out = np.lib.stride_tricks.sliding_window_view(rising[4100:], 10)[::10]
    assert (kinds.score(held_out) > 0).all()
    assert (kinds.score(held_out[:, ::-1]) < 0).all()
    assert np.isfinite(kinds.log_odds).all()
    with pytest.raises(InputError, match="at least two tokens"):
        TextKinds.fit([1], [1, 2], 20)
