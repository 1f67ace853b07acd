"""The control: networks of one shape from draws of their own are not rejected, and a child among them is."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from provlab.errors import CheckpointError
from provlab.inference import pvalues
from provlab_study.public_cases import layout, one_seed


def written(folder, seed, parent=None, without=""):
    """A file with the names and, but for the width, the shapes of IgFold's; norms near 1, as training leaves them."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for block in range(4):
        inside = f"main_block.layers.{block}.0.layers.0"
        shapes = {f"{inside}.0.0.fn.to_q": (256, 8), f"{inside}.0.0.fn.to_kv": (512, 8)}
        shapes |= {f"{inside}.0.0.fn.to_out": (8, 256), f"{inside}.1.0.fn.0": (256, 8)}
        for name, shape in shapes.items():
            tensors[f"{name}.weight"] = rng.standard_normal(shape).astype(np.float32)
            tensors[f"{name}.bias"] = rng.uniform(-0.3, 0.3, shape[0]).astype(np.float32)
        tensors[f"{inside}.0.0.norm.weight"] = (1 + 0.1 * rng.standard_normal(8)).astype(np.float32)
    if parent is not None:
        tensors = {name: parent[name] + 0.1 * value for name, value in tensors.items()}
    folder.mkdir()
    save_file({name: value for name, value in tensors.items() if name != without}, folder / "model.safetensors")
    return tensors


def test_keys_and_values_are_told_apart(tmp_path):
    tensors = written(tmp_path / "a", 0)
    network = layout.read_igfold(tmp_path / "a")
    both = tensors["main_block.layers.2.0.layers.0.0.0.fn.to_kv.weight"]
    np.testing.assert_array_equal(network.attention["key"][2], both[:256])
    np.testing.assert_array_equal(network.attention["value"][2], both[256:])
    np.testing.assert_array_equal(network.up[3], tensors["main_block.layers.3.0.layers.0.1.0.fn.0.weight"])
    assert {block: bias.shape for block, bias in network.key_biases.items()} == dict.fromkeys(range(4), (256,))
    assert len(network.norms) == 4


def test_draws_of_their_own_are_not_rejected_and_a_child_is(tmp_path):
    parent = written(tmp_path / "1", 1)
    written(tmp_path / "2", 2)
    written(tmp_path / "3", 3)
    written(tmp_path / "child", 4, parent)
    networks = {name: layout.read_igfold(tmp_path / name) for name in ("1", "2", "3", "child")}
    pairs = one_seed.pairs(networks)
    holm = dict(zip([(pair.a, pair.b) for pair in pairs], pvalues.holm([pair.phi_u for pair in pairs]), strict=True))
    assert [names for names, log10_p in holm.items() if log10_p <= -2] == [("1", "child")]
    assert all(pair.units == 1024 for pair in pairs)


def test_norms_of_unrelated_networks_lie_near_one_direction(tmp_path):
    written(tmp_path / "1", 1)
    written(tmp_path / "2", 2)
    figures = one_seed.figures_of(*(layout.read_igfold(tmp_path / name) for name in "12"))
    assert figures["cosine of norm weights"] > 0.97
    assert -1 <= figures["spread of attention"] <= 1


def test_a_file_of_another_model_is_named(tmp_path):
    written(tmp_path / "other", 0, without="main_block.layers.1.0.layers.0.1.0.fn.0.weight")
    with pytest.raises(CheckpointError, match="other holds none of IgFold"):
        layout.read_igfold(tmp_path / "other")
