"""Synthetic checkpoints: of the promised shapes, the promised dependence, whole or not at all."""

import json
import shutil
from collections import namedtuple

import numpy as np
import pytest
import synthetic
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from synthetic import kept, noisy_copy, pruned_copy, synthesise

from provlab.errors import InputError
from provlab.planning.shapes import shape
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint

UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic") / "parent"
    synthesise(shape("tiny"), folder, seed=1)
    return Checkpoint.open(folder)


def cosines(a, b):
    return torch.nn.functional.cosine_similarity(a.float(), b.float())


def test_transformers_loads_it(parent):
    """No weight is missing or of another shape, or `load_model` would refuse."""
    model = parent.load_model()
    assert model.config.num_hidden_layers == 4
    assert all(parent.dtype(name) == "bfloat16" for name in parent.tensor_names)


def test_the_file_is_what_safetensors_would_write(parent, tmp_path):
    """The reference is the format's own writer, compared with ours by the format's own reader."""
    save_file({name: parent.tensor(name) for name in parent.tensor_names}, tmp_path / "theirs.safetensors")
    ours = parent.folder() / "model-00001-of-00001.safetensors"
    with safe_open(ours, "pt") as mine, safe_open(tmp_path / "theirs.safetensors", "pt") as other:
        assert sorted(mine.keys()) == sorted(other.keys())
        assert all(torch.equal(mine.get_tensor(name), other.get_tensor(name)) for name in mine.keys())  # noqa: SIM118
    assert ours.stat().st_size == pytest.approx((tmp_path / "theirs.safetensors").stat().st_size, abs=4096)


def test_a_seed_and_a_name_decide_a_tensor(parent, tmp_path):
    """Two blocks of a model are the first two of the whole, and another seed shares nothing."""
    synthesise(shape("tiny", 2), tmp_path / "two", seed=1)
    synthesise(shape("tiny", 2), tmp_path / "other", seed=2)
    two, other = Checkpoint.open(tmp_path / "two"), Checkpoint.open(tmp_path / "other")
    assert two.config["num_hidden_layers"] == 2
    assert torch.equal(two.tensor(UP), parent.tensor(UP))
    assert float(cosines(other.tensor(UP), parent.tensor(UP)).abs().max()) < 0.6  # 5 / sqrt(64)
    assert not torch.equal(parent.tensor(UP), parent.tensor(UP.replace("up", "gate")))


def test_drawn_in_slabs_or_at_once_it_is_the_same(parent, tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_SLAB", 1024)
    noisy_copy(parent, tmp_path / "in_slabs", noise=0.0, seed=3)
    assert torch.equal(Checkpoint.open(tmp_path / "in_slabs").tensor(UP), parent.tensor(UP))


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_a_noisy_copy_has_the_cosine_it_should(parent, tmp_path, noise):
    """The cosine of x and x + noise * z is 1 / sqrt(1 + noise^2) in the mean, from the law of large numbers."""
    noisy_copy(parent, tmp_path / "copy", noise=noise, seed=3, blocks=2)
    copy = Checkpoint.open(tmp_path / "copy")
    assert copy.config["num_hidden_layers"] == 2
    similarity = cosines(copy.tensor(UP), parent.tensor(UP))
    assert float(similarity.mean()) == pytest.approx((1 + noise**2) ** -0.5, abs=0.03)


def test_a_pruned_copy_holds_what_it_kept(parent, tmp_path):
    """Every tensor of the copy is found in the parent at the blocks, units, heads and coordinates kept."""
    config = shape("tiny-pruned")
    pruned_copy(parent, config, tmp_path / "pruned", seed=3)
    child = Checkpoint.open(tmp_path / "pruned")
    keep = kept(parent.config, config, seed=3)
    assert keep.blocks != (0, 1, 2)  # or a block taken for another would not show
    child.load_model()
    whole, small = anatomy.of(parent), anatomy.of(child)
    for part in small.parts:
        (segment,) = part.segments
        mine = small.read(child, segment.role, part.block)
        theirs = whole.read(parent, segment.role, None if part.block is None else keep.blocks[part.block])
        left = keep.axes if part.block is None else keep.axes | {"mlp": keep.units[part.block]}
        index = [left.get(axis, np.arange(n)) for axis, n in zip(segment.axes, theirs.shape, strict=True)]
        np.testing.assert_array_equal(mine, theirs[np.ix_(*index)], err_msg=part.name)
    assert json.loads((tmp_path / "pruned" / "synthetic.json").read_text())["kept_blocks"] == list(keep.blocks)


def test_query_heads_stay_with_their_key_head():
    """Llama-3.1-8B has four query heads to a key head and Llama-3.2-3B three, of eight groups in both."""
    keep = kept(shape("llama-3.1-8b"), shape("llama-3.2-3b"), seed=0)
    query, key = (keep.axes[name].reshape(-1, 128)[:, 0] // 128 for name in ("query", "key"))
    assert key.tolist() == list(range(8))
    assert (query // 4).tolist() == np.repeat(key, 3).tolist()
    assert len(keep.blocks) == 28
    assert all(len(np.unique(units)) == 8192 for units in keep.units)


@pytest.mark.parametrize(
    ("parent_shape", "child", "message"),
    [
        ("tiny-pruned", shape("tiny"), "no larger than its parent"),
        ("tiny", shape("tiny") | {"vocab_size": 100}, "'vocab'"),
        ("tiny", shape("tiny") | {"head_dim": 8}, "'head'"),
        ("tiny", shape("tiny") | {"num_key_value_heads": 1}, "4 query heads to a key head"),
    ],
)
def test_what_cannot_be_pruned_is_refused(parent_shape, child, message):
    with pytest.raises(InputError, match=message):
        kept(shape(parent_shape), child, seed=0)


def test_shards_are_found_again(parent, tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_SHARD", 100_000)
    synthesise(shape("tiny"), tmp_path / "sharded", seed=1)
    sharded = Checkpoint.open(tmp_path / "sharded")
    assert len(sharded.files()) > 4
    assert torch.equal(sharded.tensor(UP), parent.tensor(UP))


def test_a_full_disk_is_seen_before_anything_is_written(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 10**9))
    with pytest.raises(InputError, match=r"needs 13\.5 GB, and .* has 1\.0 GB free"):
        synthesise(shape("llama-2-7b"), tmp_path / "big")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="exists already"):
        synthesise(shape("tiny"), tmp_path / "mine")


def test_what_breaks_off_leaves_nothing(parent, tmp_path, monkeypatch):
    def breaks(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(synthetic, "_with_noise", breaks)
    with pytest.raises(KeyboardInterrupt):
        noisy_copy(parent, tmp_path / "copy", noise=1.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("noise", [-1.0, float("nan"), float("inf")])
def test_noise_is_a_number(parent, tmp_path, noise):
    with pytest.raises(InputError, match="noise must be"):
        noisy_copy(parent, tmp_path / "copy", noise=noise)


def test_copies_are_written_by_command(capsys, tmp_path):
    synthetic.main(["tiny", str(tmp_path / "a"), "--seed", "1"])
    assert capsys.readouterr().out == f"{tmp_path / 'a'}: 39 tensors, 0.00 GB\n"
    synthetic.main(["tiny", str(tmp_path / "b"), "--copy-of", str(tmp_path / "a"), "--blocks", "2"])
    synthetic.main(["tiny-pruned", str(tmp_path / "c"), "--pruned-from", str(tmp_path / "a")])
    for arguments, message in (
        (["tiny", "new", "--noise", "1"], "--noise is that of a copy"),
        (["tiny", "new", "--copy-of", str(tmp_path / "c")], "--copy-of keeps the shape"),
    ):
        with pytest.raises(InputError, match=message):
            synthetic.main(arguments)
