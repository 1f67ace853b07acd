"""Residual networks trained by the thousand: gradient descent by the book, equivariance, matchings pair by pair."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from provlab.chapters.calibration import trained as null_training
from provlab.chapters.calibration.trained import train_residual_pairs
from provlab.chapters.shared.small_networks import gradient_descent
from provlab.errors import InputError
from provlab.inference.matching import match

NETWORK = null_training.Residual(6)


def start_and_task(seed=0):
    generator = torch.Generator().manual_seed(seed)
    task = NETWORK.task(5, generator)
    return NETWORK.start(5, generator), task


def test_training_is_gradient_descent_on_each_network_alone():
    """The third network of the batch, trained again on its own in float64: the same weights to rounding."""
    start, (x, y) = start_and_task()
    together = gradient_descent(NETWORK, start, (x, y), 30, 0.02)
    up, down, readout = (
        part.double().clone().requires_grad_() for part in (start[0][:, 2], start[1][:, 2], start[2][2])
    )
    for _ in range(30):
        stream = x[2].double()
        for block in range(3):
            stream = stream + down[block] @ torch.tanh(up[block] @ stream)
        loss = (readout @ stream - y[2].double()).square().mean()
        gradients = torch.autograd.grad(loss, (up, down, readout))
        with torch.no_grad():
            for part, gradient in zip((up, down, readout), gradients, strict=True):
                part -= 0.02 * gradient
    assert_allclose(together[0][:, 2], up.detach(), atol=1e-5)
    assert_allclose(together[1][:, 2], down.detach(), atol=1e-5)
    assert_allclose(together[2][2], readout.detach(), atol=1e-5)


def test_training_commutes_with_renumbering_each_block_on_its_own():
    """Definition 2 for several blocks, which Theorem 2 rests on: one permutation a block, before or after training."""
    (up, down, readout), task = start_and_task(1)
    orders = [torch.tensor(order) for order in ([3, 1, 5, 0, 2, 4], [1, 0, 2, 5, 4, 3], [5, 4, 3, 2, 1, 0])]

    def renumber(theta):
        return (
            torch.stack([one[:, order] for one, order in zip(theta[0], orders, strict=True)]),
            torch.stack([one[:, :, order] for one, order in zip(theta[1], orders, strict=True)]),
            theta[2],
        )

    after = gradient_descent(NETWORK, renumber((up, down, readout)), task, 30, 0.02)
    before = renumber(gradient_descent(NETWORK, (up, down, readout), task, 30, 0.02))
    for a, b in zip(after, before, strict=True):
        assert_allclose(a, b, atol=1e-5)


def test_networks_learn_and_their_activations_are_theirs():
    pairs = train_residual_pairs(20, seed=2, hidden_units=8, n_inputs=7)
    assert len(pairs) == 20
    assert pairs.final_loss < 0.2 * pairs.initial_loss
    assert pairs.up1.shape == pairs.up2.shape == (20, 3, 8, 4)
    assert pairs.hidden1.shape == pairs.hidden2.shape == (20, 3, 8, 7)
    # the first block reads the inputs themselves, so activations of both networks belong to one input
    first, second = (np.arctanh(h[3, 0].astype(float)) for h in (pairs.hidden1, pairs.hidden2))
    x = np.linalg.lstsq(pairs.up1[3, 0].astype(float), first, rcond=None)[0]
    assert_allclose(pairs.up2[3, 0] @ x, second, atol=1e-3)


def test_a_shared_start_is_shared_and_an_independent_one_is_not():
    shared, apart = (
        train_residual_pairs(30, seed=3, steps=1, learning_rate=1e-6, shared_initialisation=choice)
        for choice in (True, False)
    )
    assert_allclose(shared.up1, shared.up2, atol=1e-3)
    assert abs(np.corrcoef(apart.up1.ravel(), apart.up2.ravel())[0, 1]) < 0.05


def test_matchings_are_those_of_match_pair_by_pair():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, 3, 2, 9, 5))
    found = null_training.matchings(a, b, seed=0)
    for i in range(3):
        for j in range(2):
            assert_array_equal(found[i, j], match(a[i, j], b[i, j]).indices)
    assert_array_equal(found, null_training.matchings(a, b, seed=1, shuffled=False))


def test_same_seed_same_networks():
    one, two = (train_residual_pairs(3, seed=5, steps=3) for _ in range(2))
    assert_array_equal(one.up2, two.up2)
    assert not np.array_equal(one.up2, train_residual_pairs(3, seed=6, steps=3).up2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train_residual_pairs(0, seed=0), "n_pairs is 0"),
        (lambda: train_residual_pairs(2, seed=0, hidden_units=0), "hidden_units is 0"),
        (lambda: train_residual_pairs(2, seed=0, learning_rate=1e9), "diverged"),
        (lambda: null_training.matchings(np.ones((2, 3)), np.ones((3, 3)), seed=0), "shapes"),
    ],
)
def test_what_cannot_be_trained_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
