"""Pickled weights: read as torch wrote them from any of its layouts; nothing in a file is ever run.

Files spoilt at random, in both layouts, are in `test_fuzz`.
"""

import argparse
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from provlab.errors import CheckpointError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.files.pickled import PickledFile
from provlab.reading.local import LocalFiles


def tensors():
    torch.manual_seed(0)
    full = torch.randn(40, 30)
    return {
        "full": full,
        "transposed": full.T,
        "columns": full[:, 5:7],
        "shared": full,
        "parameter": nn.Parameter(torch.randn(5)),
        "bfloat16": torch.randn(7).bfloat16(),
        "integers": torch.arange(9),
        "scalar": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "flags": torch.tensor([True, False]),
    }


LAYOUTS = {
    "a table": lambda table: table,
    "ordered": OrderedDict,
    "fairseq's": lambda table: {"args": argparse.Namespace(arch="roberta"), "epoch": 3, "model": OrderedDict(table)},
    "nested twice": lambda table: {"state_dict": {"module": table}, "optimizer": {"state": {0: torch.ones(3)}}},
    "with other values": lambda table: {**table, "step": 3, "note": "x", "extra": None},
}


def write(folder, content, *, zipped=True):
    torch.save(content, folder / "w.bin", _use_new_zipfile_serialization=zipped)


def opened(folder):
    return PickledFile(LocalFiles(folder), "w.bin")


def array(file, name, rows=None):
    info = file.header[name]
    shape = info.shape if rows is None else (len(rows), *info.shape[1:])
    if not info.nbytes:
        return torch.empty(shape, dtype=getattr(torch, info.dtype))
    return torch.from_numpy(file.read(name, rows)).view(getattr(torch, info.dtype)).reshape(shape)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_as_torch_wrote_them(tmp_path, layout, zipped):
    write(tmp_path, LAYOUTS[layout](tensors()), zipped=zipped)
    file = opened(tmp_path)
    assert file.header.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert torch.equal(array(file, name).double(), tensor.double()), name
        if tensor.ndim == 2 and len(tensor):
            assert torch.equal(array(file, name, range(1, 4)), tensor[1:4]), name
    file.read("full", None)[:] = 0  # the file stays as it is
    assert torch.equal(array(file, "full"), tensors()["full"])


def repacked(path, compression):
    with zipfile.ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", compression) as new:
        for name, part in content.items():
            new.writestr(name, part)


def test_an_archive_packed_by_another_tool(tmp_path):
    """torch.load would map compressed bytes and take them for numbers."""
    write(tmp_path, tensors())
    repacked(tmp_path / "w.bin", zipfile.ZIP_STORED)
    assert torch.equal(array(opened(tmp_path), "columns"), tensors()["columns"])
    repacked(tmp_path / "w.bin", zipfile.ZIP_DEFLATED)
    garbage = torch.load(tmp_path / "w.bin", mmap=True, weights_only=True)["full"]
    assert not torch.equal(garbage, tensors()["full"])
    with pytest.raises(CheckpointError, match="its tensors are compressed"):
        opened(tmp_path)


def test_a_file_cut_off_after_it_was_opened(tmp_path):
    """The numbers are mapped: reading beyond the end of the file would end the process."""
    write(tmp_path, {"x": torch.zeros(100_000)})
    file = opened(tmp_path)
    os.truncate(tmp_path / "w.bin", 1000)
    with pytest.raises(CheckpointError, match=r"w.bin was changed since it was opened; open it again"):
        file.read("x", None)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_is_refused(tmp_path):
    torch.jit.script(nn.Linear(2, 3)).save(tmp_path / "w.bin")
    with pytest.raises(CheckpointError, match="TorchScript"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (nn.Linear(2, 3), r"more than weights \(torch.nn.modules.linear.Linear\)"),
        ({"a": torch.ones(2), "b": Path("x")}, r"more than weights \(pathlib.PosixPath\)"),
        ([torch.ones(2)], "no table of tensors by name"),
        ({"a": 1}, "no table of tensors by name"),
        ({1: torch.ones(2)}, "1 is no name of a tensor"),
        ({"a\n": torch.ones(2)}, "a is no name of a tensor"),
        ({"a": torch.ones(2).to_sparse()}, "a is a tensor of the unsupported kind torch.sparse_coo"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "unsupported kind complex64"),
        ({"a": torch.empty(2, device="meta")}, "unsupported kind meta"),
        ({"a": torch.ones(2).expand(4000, 2)}, "a is larger than its storage"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_refused(tmp_path, content, message, zipped):
    write(tmp_path, content, zipped=zipped)
    with pytest.raises(CheckpointError, match=message) as refusal:
        opened(tmp_path)
    assert "\n" not in str(refusal.value)


# ---- nothing is run --------------------------------------------------------------------------------------------------


#: ways in which a pickle can run code, one an opcode; each would leave a file
RAW = {
    "a call": b"cbuiltins\nexec\n(V{code}\ntR.",
    "an instance": b"(V{code}\nibuiltins\nexec\n.",
    "an object": b"(cbuiltins\nexec\nV{code}\no.",
    "a name from the stack": b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93(V{code}\ntR.",
    "a new object": b"\x80\x02cbuiltins\nexec\n(V{code}\nt\x81.",
    "a state": b"\x80\x02ccollections\nOrderedDict\n)Rcbuiltins\nexec\n(V{code}\ntRb.",
    "a key": b"\x80\x02}cbuiltins\nexec\n(V{code}\ntRK\x01s.",
    "an extension": b"\x80\x02\x82\x01(V{code}\ntR.",
}


def _as_files(folder, content):
    """Put a pickle where torch's readers would look for one, in both layouts."""
    (folder / "w.bin").write_bytes(content)
    yield
    head = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    (folder / "w.bin").write_bytes(head + content + pickle.dumps([], 2))
    yield
    with zipfile.ZipFile(folder / "w.bin", "w") as archive:
        archive.writestr("a/data.pkl", content)
        archive.writestr("a/version", "3\n")
    yield


def test_no_code_is_run(tmp_path):
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w').close()"
    harmful = [raw.replace(b"{code}", code.encode()) for raw in RAW.values()]
    n = 0
    for content in harmful:
        for _ in _as_files(tmp_path, content):
            with pytest.raises(CheckpointError) as refusal:
                opened(tmp_path)
            assert len(str(refusal.value)) < 400 + len(str(tmp_path))
            assert "\n" not in str(refusal.value)
            n += 1
    assert n == 3 * len(RAW)
    assert not canary.exists()


@pytest.mark.parametrize("name", ["a call", "an instance", "a name from the stack", "a key"])
def test_the_canary_would_sing(tmp_path, name):
    """Python's own reader runs the code that the test above plants."""
    canary = tmp_path / "canary"
    pickle.loads(RAW[name].replace(b"{code}", f"open({str(canary)!r}, 'w').close()".encode()))
    assert canary.exists()


# ---- as a checkpoint -------------------------------------------------------------------------------------------------


def _saved_as(folder, name, layout=lambda table: table):
    """Put the weights of a checkpoint into a pickle."""
    expected = load_file(folder / "model.safetensors")
    torch.save(layout(expected), folder / name)
    (folder / "model.safetensors").unlink()
    return expected


@pytest.mark.parametrize("name", ["pytorch_model.bin", "checkpoint_best.pt", "last.ckpt"])
def test_the_one_pickle_of_a_folder_is_its_model(llama, name):
    """Under any name and in any layout; and the model that is run has the weights that are read."""
    expected = _saved_as(llama, name, LAYOUTS["fairseq's"])
    for other in ("training_args.bin", "optimizer.pt", "scheduler.pt"):
        (llama / other).write_bytes(b"of a trainer")
    checkpoint = Checkpoint.open(llama, allow_pickle=True)
    assert checkpoint.files().keys() == {"config.json", name}
    state = checkpoint.load_model().state_dict()
    for tensor_name, tensor in expected.items():
        assert torch.equal(checkpoint.tensor(tensor_name), tensor)
        assert np.array_equal(checkpoint.array(tensor_name), tensor)
        assert torch.equal(state[tensor_name], tensor)
    with pytest.raises(CheckpointError, match=rf"only as pickle .{name}"):
        Checkpoint.open(llama)


def test_a_folder_with_two_pickles_or_without_a_config(llama):
    _saved_as(llama, "weights.bin")
    (llama / "other.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"has .* and .*; give a folder with one model"):
        Checkpoint.open(llama, allow_pickle=True)
    (llama / "other.pt").unlink()
    (llama / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has weights.bin, but no config.json beside it.*; put the model's"):
        Checkpoint.open(llama, allow_pickle=True)


def test_pickled_shards(llama):
    expected = load_file(llama / "model.safetensors")
    (llama / "model.safetensors").unlink()
    names = sorted(expected)
    weight_map = {}
    for shard, part in (("a.bin", names[:5]), ("b.bin", names[5:])):
        torch.save({name: expected[name] for name in part}, llama / shard)
        weight_map.update(dict.fromkeys(part, shard))
    (llama / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = Checkpoint.open(llama, allow_pickle=True)
    assert all(torch.equal(checkpoint.tensor(name), tensor) for name, tensor in expected.items())
