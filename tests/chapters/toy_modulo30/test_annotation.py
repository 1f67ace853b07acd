"""Precision and recall from scores: by hand, by an oracle, and by brute force."""

import numpy as np
import pytest

from provlab.chapters.toy_modulo30.annotation import agreement, oracle
from provlab.errors import InputError
from provlab.modeldiff.representative import Direction

EDGES = [-2.0, -1.0, 0.0, 1.0]


def made(difference, weight=None):
    n = len(difference)
    return Direction(
        "A",
        np.asarray(difference, dtype=float),
        np.ones(n) if weight is None else np.asarray(weight, dtype=float),
        np.ones(n, bool),
        np.zeros(n, int),
        1,
    )


# Equations 8 and 9 ----------------------------------------------------------------------------------------------------


def test_precision_and_recall_by_hand():
    """Bins of weight 2, 4, 4 with mean scores 0.5, 1, 0.25: D < 0 has (1 + 4) / 6 and (1 + 4) / (1 + 4 + 1)."""
    direction = made([-1.5, -1.5, -0.5, 0.5, 0.5], [1, 1, 4, 2, 2])
    found = agreement(direction, EDGES, [1, 0, 1, 0.5, 0], (-2, 0))
    assert found.precision == pytest.approx(5 / 6)
    assert found.recall == pytest.approx(5 / 6)
    assert found.n == 3


def test_an_oracle_on_everything_is_the_plain_share():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 10, (3000, 4))
    direction = made(rng.uniform(-2, 1, 3000), rng.uniform(0.5, 2, 3000))
    scores = oracle(tokens, lambda t: (t.sum(axis=1) % 3 == 0).astype(float))
    edges = np.linspace(-2, 1, 13)
    found = agreement(direction, edges, scores, (-2, 0))
    below = direction.difference < 0
    good = direction.weight * scores
    assert found.precision == pytest.approx(good[below].sum() / direction.weight[below].sum(), abs=1e-9)
    assert found.recall == pytest.approx(good[below].sum() / good.sum(), abs=0.01)


def test_weights_count_within_a_bin():
    """Nine tenths of the weight is good, half of the rows: precision is 0.9; an input of no weight tells nothing."""
    direction = made([-0.5, -0.5, -0.4, -0.4, -0.3], [9, 9, 1, 1, 0])
    found = agreement(direction, [-1, 0], [1, 1, 0, 0, 0], (-1, 0))
    assert found.precision == pytest.approx(0.9)
    assert (found.recall, found.n) == (1.0, 4)
    with pytest.raises(InputError, match="is scored"):
        agreement(direction, [-1, 0], [np.nan] * 4 + [0.0], (-1, 0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement(made([-0.5, 0.5]), EDGES, [1.0, np.nan], (-2, 0)), r"no input with D in \[0, 1\] is scored"),
        (lambda: agreement(made([-0.5]), EDGES, [1.0], (0, 1)), "no input lies in a bin"),
        (lambda: agreement(made([-0.5]), EDGES, [1.0, 0.0], (-2, 0)), "scores must hold one for each of 1 inputs"),
        (lambda: oracle(np.zeros((3, 2), int), lambda t: [0.0, 2.0, 1.0]), "one score from 0 to 1 for each of 3"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()
