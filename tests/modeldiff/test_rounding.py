"""What rounding makes of a model's own law: against a copy that is rounded in fact, and nothing is left behind."""

import numpy as np
import pytest
import torch

from provlab.modeldiff import rounding
from provlab.modeldiff.nll import sequence_nll
from provlab.modeldiff.reading import measure

TOKENS = np.array([[1, 2, 3, 0], [3, 3, 1, 2], [0, 1, 0, 1]])


@pytest.fixture
def reader(gpt2):
    return sequence_nll(gpt2(0), start=[1])


@pytest.mark.parametrize("way", rounding.WAYS)
def test_a_model_that_is_rounded_as_it_runs_is_one_whose_weights_are(reader, gpt2, way):
    copy = gpt2(0)
    with torch.no_grad():
        for weight in copy.parameters():
            weight.copy_(rounding._ROUNDED[way](weight))
    before = {name: weight.clone() for name, weight in reader.network.named_parameters()}
    running = rounding.rounded(reader, way)
    np.testing.assert_allclose(running(TOKENS), sequence_nll(copy, start=[1])(TOKENS), atol=1e-6)
    assert all(torch.equal(weight, before[name]) for name, weight in reader.network.named_parameters())
    assert not any(module._forward_pre_hooks for module in reader.network.modules())
    assert abs(running(TOKENS) - reader(TOKENS)).max() > 0


def test_eight_bits_are_127_steps_of_the_largest_number_of_a_row():
    weight = torch.tensor([[127.0, 1.4, -0.6], [0.0, 0.0, 0.0]])
    assert rounding._to_8_bits(weight).tolist() == [[127.0, 1.0, -1.0], [0.0, 0.0, 0.0]]
    assert torch.equal(rounding._to_8_bits(weight[0]), weight[0])  # no matrix


def test_a_copy_is_explained_and_a_change_at_one_sequence_is_not(reader, gpt2):
    copy = rounding.rounded(sequence_nll(gpt2(0), start=[1]), "8 bits")
    tokens = np.random.default_rng(0).integers(0, 4, (60, 4))
    divergence = measure([reader, copy], tokens)["divergence"]
    distances = (divergence[0, 1] + divergence[1, 0]).mean(axis=1) / 2
    at = np.zeros(60, dtype=np.int64)

    def explained(distances):
        found = rounding.measured("text", [(reader, reader)], tokens, at, distances)
        return {one.way: one.explains for one in found}, {one.way: one.share for one in found}

    explains, share = explained(distances)
    assert explains == {"bfloat16": False, "8 bits": True}
    assert share["8 bits"] == pytest.approx(1.0, rel=1e-3)
    distances[37] = 1000 * distances.max()
    assert not any(explained(distances)[0].values())
