"""Example 1 at scale: Theorem 1 on networks that really were trained, and a planted fault to find."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from provlab.errors import InputError
from provlab.inference.permtest import permtest
from provlab_study.shared import example_one
from provlab_study.shared.calibration import uniform_on_grid
from provlab_study.shared.example_one import TwoLayers, permtest_pairs, train_pairs
from provlab_study.shared.small_networks import gradient_descent


@pytest.fixture(scope="module")
def independent():
    return train_pairs(1000, dependent=False, seed=0)


class HiddenUnits:
    def __init__(self, m):
        self.m = m

    def sample(self, rng):
        order = rng.permutation(self.m)
        return lambda theta: theta[order]


def test_networks_learn_their_task(independent):
    assert independent.final_loss < 0.05 * independent.initial_loss
    assert len(independent) == 1000
    assert independent.theta1.shape == independent.theta2.shape == (1000, 16, 5)


def test_training_is_gradient_descent_on_each_network_alone():
    """One pair of the batch, trained again by the textbook: the same weights to rounding."""
    generator = torch.Generator().manual_seed(3)
    network = TwoLayers(6)
    x, y = network.task(4, generator)
    (start,) = network.start(4, generator)
    (together,) = gradient_descent(network, (start,), (x, y), 50, 0.1)
    W1, W2 = (w.clone().double().requires_grad_() for w in (start[2, :, :-1], start[2, :, -1:].T))
    for _ in range(50):
        loss = ((W2 @ torch.tanh(W1 @ x[2].double().T)).T - y[2].double()).square().mean()
        g1, g2 = torch.autograd.grad(loss, (W1, W2))
        with torch.no_grad():
            W1 -= 0.1 * g1
            W2 -= 0.1 * g2
    assert_allclose(together[2, :, :-1], W1.detach(), atol=1e-5)
    assert_allclose(together[2, :, -1:].T, W2.detach(), atol=1e-5)


def test_training_commutes_with_renumbering():
    """Definition 2, run: permute the start, or permute the result."""
    assert example_one.equivariance_gap(20, seed=4) < 1e-5


def test_training_that_minds_the_numbering_shows_a_gap(monkeypatch):
    """The planted fault: hidden unit 0 is never trained."""

    def freeze_first(network, theta, task, steps, learning_rate):
        (trained,) = gradient_descent(network, theta, task, steps, learning_rate)
        trained[:, 0] = theta[0][:, 0]
        return (trained,)

    monkeypatch.setattr(example_one, "gradient_descent", freeze_first)
    assert example_one.equivariance_gap(20, seed=4) > 0.01


def test_independent_pairs_are_uniform_on_the_grid(independent):
    p = permtest_pairs(independent, n_permutations=99, seed=1).p
    assert uniform_on_grid(p, 99) > 0.001


def test_fine_tunes_get_the_smallest_p():
    pairs = train_pairs(200, dependent=True, seed=0)
    assert not np.array_equal(pairs.theta1, pairs.theta2)
    assert (permtest_pairs(pairs, n_permutations=99, seed=1).p == 0.01).all()


def test_a_shared_initialisation_is_found():
    """The planted fault: trained apart on different tasks, yet not independent."""
    pairs = train_pairs(200, dependent=False, shared_initialisation=True, seed=0)
    p = permtest_pairs(pairs, n_permutations=99, seed=1).p
    assert uniform_on_grid(p, 99) < 1e-6
    assert np.mean(p == 0.01) > 0.95


def test_together_as_one_by_one():
    """Same observed statistic, and copies from the same distribution, as the general PERMTEST."""
    pairs = train_pairs(2, dependent=False, seed=5, hidden_units=6, steps=20)
    together = permtest_pairs(pairs, n_permutations=4000, seed=6)
    for k in range(2):
        alone = permtest(
            lambda a, b: -float(np.linalg.norm(a - b)),
            pairs.theta1[k], pairs.theta2[k], HiddenUnits(6), n_permutations=4000, rng=7,
        )  # fmt: skip
        assert together.observed[k] == pytest.approx(alone.observed, rel=1e-12)
        assert abs(together.p[k] - alone.p) < 4 * np.sqrt(2 * 0.25 / 4000)
        assert_allclose(np.sort(together.permuted[k])[[0, -1]], np.sort(alone.permuted)[[0, -1]], rtol=1e-9)


def test_a_copy_equal_to_the_pair_is_an_exact_tie():
    """One hidden unit has one numbering: every copy ties, and p must be 1 whatever the rounding."""
    pairs = train_pairs(50, dependent=False, seed=8, hidden_units=1, steps=20)
    assert (permtest_pairs(pairs, n_permutations=19, seed=0).p == 1.0).all()


def test_same_seed_same_result(independent):
    again = train_pairs(1000, dependent=False, seed=0)
    assert_array_equal(independent.theta2, again.theta2)
    first, second = (permtest_pairs(again, n_permutations=9, seed=s) for s in (2, 2))
    assert_array_equal(first.permuted, second.permuted)
    other = train_pairs(2, dependent=False, seed=1, steps=2)
    assert not np.array_equal(other.theta1, train_pairs(2, dependent=False, seed=2, steps=2).theta1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train_pairs(0, dependent=False, seed=0), "n_pairs is 0"),
        (lambda: train_pairs(2, dependent=False, seed=0, steps=0), "steps is 0"),
        (lambda: train_pairs(2, dependent=False, seed=0, learning_rate=1e6), "diverged"),
        (lambda: permtest_pairs(train_pairs(1, dependent=True, seed=0), n_permutations=0, seed=0), "n_permutations is"),
    ],
)
def test_what_cannot_be_trained_or_permuted_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
