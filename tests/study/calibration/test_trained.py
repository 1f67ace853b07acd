"""Residual networks trained by the thousand: gradient descent by the book, equivariance, activations, ties."""

import numpy as np
import torch
from numpy.testing import assert_allclose, assert_array_equal

from provlab_study.calibration import trained as null_training
from provlab_study.calibration.trained import train_residual_pairs
from provlab_study.shared.small_networks import gradient_descent

NETWORK = null_training.Residual(6)


def start_and_task(seed=0):
    generator = torch.Generator().manual_seed(seed)
    task = NETWORK.task(5, generator)
    return NETWORK.start(5, generator), task


def test_training_is_gradient_descent_on_each_network_alone():
    """The third network of the batch, trained again on its own in float64: the same weights to rounding."""
    start, (z, y) = start_and_task()
    together = gradient_descent(NETWORK, start, (z, y), 30, 0.02)
    alone = [part[2] if part.ndim == 3 else part[:, 2] for part in start]
    embedding, gate, up, down, readout = (part.double().clone().requires_grad_() for part in alone)

    def normed(x):
        return x / (x.square().mean(dim=0) + 1e-6).sqrt()

    for _ in range(30):
        stream = embedding @ z[2].double()
        for block in range(3):
            by_gate = gate[block] @ normed(stream)
            hidden = by_gate * torch.sigmoid(by_gate) * (up[block] @ normed(stream))
            stream = stream + down[block] @ hidden
        loss = (readout @ normed(stream) - y[2].double()).square().mean()
        gradients = torch.autograd.grad(loss, (embedding, gate, up, down, readout))
        with torch.no_grad():
            for part, gradient in zip((embedding, gate, up, down, readout), gradients, strict=True):
                part -= 0.02 * gradient
    for part, by_hand in zip(together, (embedding, gate, up, down, readout), strict=True):
        assert_allclose(part[2] if part.ndim == 3 else part[:, 2], by_hand.detach(), atol=1e-5)


def test_training_commutes_with_renumbering_each_block_on_its_own_and_the_stream():
    """Definition 2 for several blocks, which Theorem 2 rests on: one permutation a block, before or after training."""
    start, task = start_and_task(1)
    orders = [torch.tensor(order) for order in ([3, 1, 5, 0, 2, 4], [1, 0, 2, 5, 4, 3], [5, 4, 3, 2, 1, 0])]
    stream = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])

    def renumber(theta):
        embedding, gate, up, down, readout = theta
        gate, up = (
            torch.stack([block[:, order] for block, order in zip(part, orders, strict=True)])[..., stream]
            for part in (gate, up)
        )
        down = torch.stack([block[:, :, order] for block, order in zip(down, orders, strict=True)])[:, :, stream]
        return embedding[:, stream], gate, up, down, readout[..., stream]

    after = gradient_descent(NETWORK, renumber(start), task, 30, 0.02)
    before = renumber(gradient_descent(NETWORK, start, task, 30, 0.02))
    for a, b in zip(after, before, strict=True):
        assert_allclose(a, b, atol=1e-5)


def test_networks_learn_and_their_activations_are_theirs():
    pairs = train_residual_pairs(20, seed=2, hidden_units=8, n_inputs=7, steps=100)
    assert len(pairs) == 20
    assert pairs.final_loss < 0.2 * pairs.initial_loss
    first, second = pairs.networks()
    assert first.up.shape == second.down.shape == (20, 3, 8, 8)
    assert first.hidden.shape == (20, 3, 8, 7)
    # what enters the first block's projections is the embedded input of this pair, over its root mean square
    x = pairs.second[0][3].numpy() @ pairs.inputs[3].numpy()
    assert_allclose(second.seen_up[3, 0], second.up[3, 0] @ (x / np.sqrt((x**2).mean(axis=0))), atol=1e-5)
    gate = first.seen_gate[5, 2]
    assert_allclose(first.hidden[5, 2], gate / (1 + np.exp(-gate)) * first.seen_up[5, 2], atol=1e-5)


def test_one_sign_a_unit_leaves_two_kinds_of_rows():
    networks, _ = train_residual_pairs(4, seed=2, hidden_units=8, n_inputs=7, steps=2).networks(tied=True)
    for rows in (networks.gate, networks.up, networks.down, networks.seen_gate, networks.seen_up):
        assert_allclose(np.abs(rows), np.abs(rows[..., :1, :]).repeat(8, axis=2), rtol=1e-5)
        assert 0.2 < (rows < 0).mean() < 0.8


def test_same_seed_same_networks():
    first, again = (train_residual_pairs(3, seed=5, steps=3) for _ in range(2))
    assert_array_equal(first.second[1], again.second[1])
    assert not np.array_equal(first.second[1], train_residual_pairs(3, seed=6, steps=3).second[1])
