"""Plain MLPs as GLU MLPs: shares of degrees against sampling, the gated form against the network itself."""

import math

import numpy as np
import pytest
import torch

from provlab.errors import InputError, ParameterError
from provlab_study.distillation.ridges import (
    gated_form,
    hermite_shares,
    random_ridges,
    stretched,
    without_gate_direction,
)
from provlab_study.shared.students import Point, Student
from provlab_study.shared.teachers import BlockMlp

WIDTH, UNITS = 6, 10


def mlp(activation="gelu", bias=True, seed=0, **more):
    rng = torch.Generator().manual_seed(seed)
    weights = {
        "up": torch.randn(UNITS, WIDTH, generator=rng),
        "down": torch.randn(WIDTH, UNITS, generator=rng),
        **({"up_bias": torch.randn(UNITS, generator=rng)} if bias else {}),
        **more,
    }
    return BlockMlp("tiny", weights, activation)


def test_shares_of_one_relu_ridge_are_the_known_ones():
    """Relu(z) has variance 1/2 - 1/(2 pi), of which 1/4 is linear, 1/(4 pi) quadratic and none cubic."""
    ridge = BlockMlp("ridge", {"up": torch.tensor([[1.0, 0.0]]), "down": torch.ones(1, 1)}, "relu")
    variance = 0.5 - 1 / (2 * math.pi)
    shares = hermite_shares(ridge, factor=3.0)
    np.testing.assert_allclose(shares[:3], [0.25 / variance, 1 / (4 * math.pi) / variance, 0.0], atol=2e-3)
    assert shares.sum() < 1


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_the_linear_share_is_what_a_regression_explains(factor):
    network = mlp()
    x = factor * torch.randn(400_000, WIDTH, generator=torch.Generator().manual_seed(1))
    y = network(x).double()
    y -= y.mean(0)
    x = x.double()
    left = y - x @ torch.linalg.lstsq(x, y).solution
    sampled = 1 - float(left.square().mean() / y.square().mean())
    assert hermite_shares(network, factor=factor)[0] == pytest.approx(sampled, abs=3e-3)


def test_a_linear_network_is_linear_and_shares_sum_to_one():
    np.testing.assert_allclose(hermite_shares(mlp("linear"), degrees=3), [1, 0, 0], atol=1e-12)
    assert hermite_shares(mlp(), degrees=25).sum() == pytest.approx(1, abs=1e-3)


def test_the_gated_form_is_the_network():
    """D (s(Gx) * Ux) with s(z) = gelu(z) / z, computed here, is the network without biases."""
    network = mlp(bias=False)
    inputs = np.random.default_rng(0).standard_normal((50, WIDTH)).astype(np.float32)
    gate, _ = gated_form(network, inputs)
    ridge = torch.from_numpy(gate).double()
    s = torch.special.ndtr(ridge)
    up = network.weights["up"].double() @ torch.from_numpy(inputs).double().T
    output = (s * up).T @ network.weights["down"].double().T
    torch.testing.assert_close(output.float(), network(torch.from_numpy(inputs)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cosine", [0.0, 0.6, 1.0])
def test_the_dial_is_the_cosine(cosine):
    network = mlp()
    gate, up = gated_form(network, np.eye(WIDTH, dtype=np.float32), cosine=cosine, seed=3)  # inputs that show the rows
    cosines = (gate * up).sum(1) / np.linalg.norm(gate, axis=1) / np.linalg.norm(up, axis=1)
    np.testing.assert_allclose(cosines, cosine, atol=1e-5)
    again = gated_form(network, np.eye(WIDTH, dtype=np.float32), cosine=cosine, seed=3)[1]
    np.testing.assert_array_equal(up, again)


def test_without_the_gate_direction_nothing_is_along_it():
    rng = torch.Generator().manual_seed(0)
    gate, up, down = (torch.randn(shape, generator=rng) for shape in ((8, WIDTH), (8, WIDTH), (WIDTH, 8)))
    left = without_gate_direction(Student(gate, up, down, (Point(1, 0.1, 0.1),)))
    torch.testing.assert_close((left * gate).sum(1), torch.zeros(8), atol=1e-5, rtol=0)
    along = up - left
    assert torch.linalg.matrix_rank(torch.stack([along[0], gate[0]])) == 1


def test_stretched_inputs_and_their_hash():
    network = mlp()
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(0))
    wide = stretched(network, 3.0)
    torch.testing.assert_close(wide(x), network(3 * x))
    assert (wide.width, wide.mlp_width, wide.to("cpu").digest) == (WIDTH, UNITS, wide.digest)
    assert stretched(network, 1.0).digest == network.digest  # a student of the one is a student of the other
    assert len({network.digest, wide.digest, stretched(network, 2.0).digest}) == 3
    with pytest.raises(ParameterError, match="factor must be positive"):
        stretched(network, 0.0)


def test_random_ridges_have_the_shapes_and_nothing_else_of_a_network():
    network = mlp()
    drawn = random_ridges(network, seed=1)
    assert {role: tensor.shape for role, tensor in drawn.weights.items()} == {
        role: network.weights[role].shape for role in ("up", "down")
    }
    assert not torch.equal(drawn.weights["up"], random_ridges(network, seed=2).weights["up"])


def test_refusals():
    gated = mlp(gate=torch.randn(UNITS, WIDTH))
    for refused in (hermite_shares, lambda m: gated_form(m, np.eye(WIDTH, dtype=np.float32))):
        with pytest.raises(InputError, match="tiny has a gate"):
            refused(gated)
    with pytest.raises(ParameterError, match="cosine must be from 0 to 1"):
        gated_form(mlp(), np.eye(WIDTH, dtype=np.float32), cosine=1.1)
    with pytest.raises(ParameterError, match="degrees"):
        hermite_shares(mlp(), degrees=0)
