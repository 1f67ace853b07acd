"""Pickled weights: read bit for bit as torch reads them, from any file that torch wrote; nothing in one is ever run."""

import argparse
import io
import os
import pickle
import random
import struct
import time
import tracemalloc
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from provlab.errors import CheckpointError
from provlab.models.checkpoint import Checkpoint
from provlab.models.formats import opcodes, pickled
from provlab.models.formats.opcodes import followed
from provlab.models.local import LocalFiles


class InPart(LocalFiles):
    """A folder that is read as a file on the hub is, of which only some bytes are fetched."""

    def in_part(self, name):
        return True


def tensors():
    torch.manual_seed(0)
    full = torch.randn(40, 30)
    return {
        "full": full,
        "transposed": full.T,
        "rows": full[3:9],
        "columns": full[:, 5:7],
        "shared": full,
        "parameter": nn.Parameter(torch.randn(5)),
        "half": torch.randn(6).half(),
        "bfloat16": torch.randn(7).bfloat16(),
        "integers": torch.arange(9),
        "one": torch.tensor(2.5),
        "none": torch.zeros(0, 3),
        "flags": torch.tensor([True, False]),
    }


def nested(table):
    """As fairseq and trainers write them: the weights under one key, objects of any class beside them."""
    args = argparse.Namespace(arch="roberta", path=Path("x"), lr=np.float64(0.1))
    optimiser = {"state": {0: {"exp_avg": torch.ones(3)}}, "best": np.float32(1)}
    return {"args": args, "epoch": 3, "model": OrderedDict(table), "last_optimizer_state": optimiser}


LAYOUTS = {
    "a table": lambda table: table,
    "ordered": OrderedDict,
    "a trainer's": nested,
    "twice within": lambda table: {"state_dict": {"module": table}, "hyper_parameters": argparse.Namespace()},
    "with numbers beside": lambda table: {**table, "step": 3, "note": "x", "extra": None},
    "of a module": lambda table: _state_dict(table),
}


def _state_dict(table):
    module = nn.Module()
    for name, value in table.items():
        module.register_buffer(f"{name}_", value)
    state = module.state_dict()
    for name in table:
        state[name] = state.pop(f"{name}_")
    return state


def write(folder, content, *, zipped=True, **settings):
    torch.save(content, folder / "w.bin", _use_new_zipfile_serialization=zipped, **settings)


def opened(folder, files=LocalFiles):
    return pickled.PickledFile(files(folder), "w.bin")


def array(file, name):
    info = file.header[name]
    if not info.nbytes:
        return torch.empty(info.shape, dtype=getattr(torch, info.dtype))
    return torch.from_numpy(file.read(name, None).copy()).view(getattr(torch, info.dtype)).reshape(info.shape)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_as_torch_reads_them(tmp_path, layout, zipped):
    write(tmp_path, LAYOUTS[layout](tensors()), zipped=zipped)
    for files in (LocalFiles, InPart):
        file = opened(tmp_path, files)
        assert file.header.keys() == tensors().keys()
        for name, tensor in tensors().items():
            assert torch.equal(array(file, name), tensor), name
            if tensor.ndim == 2 and len(tensor):
                part = np.frombuffer(file.read(name, range(1, 4)), np.float32).reshape(3, -1)
                assert np.array_equal(part, tensor[1:4]), name


def test_float8_has_a_storage_without_a_dtype(tmp_path):
    value = torch.arange(5).to(torch.float8_e4m3fn)
    write(tmp_path, {"x": value})
    assert torch.equal(array(opened(tmp_path), "x").float(), value.float())


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_protocol(tmp_path, protocol):
    write(tmp_path, nested(tensors()), pickle_protocol=protocol)
    assert opened(tmp_path).header.keys() == tensors().keys()


def test_in_part_no_header_of_a_tensor_is_asked_for(tmp_path):
    """Each would be a request to the hub: its place follows from how torch lays tensors out."""
    write(tmp_path, {f"x{i}": torch.randn(40, 2**i) for i in range(12)})
    asked = []

    class Counted(InPart):
        def read(self, name, start, nbytes):
            asked.append(nbytes)
            return super().read(name, start, nbytes)

    file = opened(tmp_path, Counted)
    assert len(asked) == 3  # two letters, the beginning, the end
    asked.clear()
    file.read("x3", None)
    assert asked == [40 * 8 * 4]


def test_an_archive_that_was_packed_anew_is_read_by_its_headers(tmp_path):
    write(tmp_path, tensors())
    with zipfile.ZipFile(tmp_path / "w.bin") as old:
        content = {name: old.read(name) for name in old.namelist()}
    (tmp_path / "w.bin").unlink()
    with zipfile.ZipFile(tmp_path / "w.bin", "w") as new:
        for name, part in content.items():
            new.writestr(name, part)
    for files in (LocalFiles, InPart):
        assert torch.equal(array(opened(tmp_path, files), "rows"), tensors()["rows"])
    with zipfile.ZipFile(tmp_path / "w.bin", "w", zipfile.ZIP_DEFLATED) as new:
        for name, part in content.items():
            new.writestr(name, part)
    with pytest.raises(CheckpointError, match="are compressed; save it anew"):
        opened(tmp_path)


def test_a_pickled_module_is_told_to_be_saved_as_its_state(tmp_path):
    write(tmp_path, nn.Linear(2, 3))
    with pytest.raises(CheckpointError, match=r"more than weights .torch.nn.modules.linear.Linear"):
        opened(tmp_path)
    torch.jit.script(nn.Linear(2, 3)).save(tmp_path / "w.bin")
    with pytest.raises(CheckpointError, match="TorchScript"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([torch.ones(2)], "no table of tensors by name"),
        ({"a": 1}, "no table of tensors by name"),
        ({"a": torch.ones(2), "b": argparse.Namespace()}, r"more than weights .b is argparse.Namespace"),
        ({"a": torch.ones(2).to_sparse()}, r"more than weights .a is torch._utils._rebuild_sparse_tensor"),
        ({"a": torch.ones(2).expand(4000, 2)}, "larger than what is stored"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "ComplexFloat"),
    ],
)
def test_what_holds_no_weights_is_refused(tmp_path, content, said):
    write(tmp_path, content)
    with pytest.raises(CheckpointError, match=said):
        opened(tmp_path)


# ---- nothing is run --------------------------------------------------------------------------------------------------


class Asks:
    """An object whose pickle asks for something to be called, or imported, when it is read."""

    def __init__(self, *reduced):
        self._reduced = reduced

    def __reduce__(self):
        return self._reduced


def _touch(path):
    return f"touch {path}"


def canaries(path):
    """Every way in which a pickle can have code run; each would leave a file."""
    code = f"open({str(path)!r}, 'w').close()"
    yield Asks(os.system, (_touch(path),))
    yield Asks(eval, (code,))
    yield Asks(exec, (code,))
    yield Asks(getattr, (Asks(__import__, ("os",)), "system"))
    yield Asks(dict, (), {"x": Asks(exec, (code,))})
    yield Asks(list, (), None, iter([Asks(exec, (code,))]))
    yield Asks(OrderedDict, (), None, None, iter([("x", Asks(exec, (code,)))]))
    yield Asks(torch._utils._rebuild_tensor_v2, (Asks(exec, (code,)), 0, (1,), (1,), False, OrderedDict()))
    yield Asks(torch._utils._rebuild_parameter, (Asks(exec, (code,)), False, OrderedDict()))


RAW = {
    "a call": b"cbuiltins\nexec\n(V{code}\ntR.",
    "an instance": b"(V{code}\nibuiltins\nexec\n.",
    "an object": b"(cbuiltins\nexec\nV{code}\no.",
    "a name from the stack": b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93(V{code}\ntR.",
    "a new object": b"\x80\x02cbuiltins\nexec\n(V{code}\nt\x81.",
    "a state": b"\x80\x02ccollections\nOrderedDict\n)Rcbuiltins\nexec\n(V{code}\ntRb.",
    "a key": b"\x80\x02}cbuiltins\nexec\n(V{code}\ntRK\x01s.",
    "an id": b"cbuiltins\nexec\n(V{code}\ntRQ.",
    "an extension": b"\x80\x02\x82\x01(V{code}\ntR.",
}


def _as_files(folder, content):
    """Put a pickle where torch's readers would look for one, in both layouts."""
    (folder / "w.bin").write_bytes(content)
    yield
    head = b"".join(pickle.dumps(part, 2) for part in (pickled._MAGIC, 1001, {"little_endian": True}))
    (folder / "w.bin").write_bytes(head + content + pickle.dumps([], 2))
    yield
    with zipfile.ZipFile(folder / "w.bin", "w") as archive:
        archive.writestr("a/data.pkl", content)
    yield


def test_no_code_is_run(tmp_path):
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w').close()"
    harmful = [raw.replace(b"{code}", code.encode()) for raw in RAW.values()]
    for asked in canaries(canary):
        for around in (asked, {"x": asked}, {"model": {"w": torch.ones(1).numpy(), "x": asked}, "args": asked}):
            harmful += [pickle.dumps(around, protocol) for protocol in (0, 2, 5)]
    n = 0
    for content in harmful:
        for _ in _as_files(tmp_path, content):
            with pytest.raises(CheckpointError) as refusal:
                opened(tmp_path)
            assert len(str(refusal.value)) < 400 + len(str(tmp_path))
            assert "\n" not in str(refusal.value)
            n += 1
    assert n > 200
    assert not canary.exists()


@pytest.mark.parametrize("asked", ["a call", "an instance", "a name from the stack", "a key"])
def test_the_canary_would_sing(tmp_path, asked):
    """Python's own reader runs what the test above plants."""
    canary = tmp_path / "canary"
    pickle.loads(RAW[asked].replace(b"{code}", f"open({str(canary)!r}, 'w').close()".encode()))
    assert canary.exists()


def _pairs(depth):
    """A tuple of twice the same tuple, and so on: its hash, text or comparison would take 2^depth steps."""
    return b"\x80\x02)" + b"2\x86" * depth


GREEDY = {
    "a place far out in the memo": b"\x80\x02]r\xff\xff\xff\x7f.",
    "a text of many bytes": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x.",
    "bytes of many bytes": b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"x.",
    "a long number": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"1.",
    "a number of many digits": b"L" + b"9" * 100_000 + b"L\n.",
    "a frame": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
    "deep tuples": b"\x80\x02)" + b"\x85" * 10_000 + b".",
    "deep lists": b"\x80\x02]" + b"\x85]\x85" * 3_000 + b".",
    "deep calls": b"\x80\x02}" + b")\x85R" * 10_000 + b".",
    "a tuple of twice itself as a key": b"}" + _pairs(2000)[2:] + b"K\x01s.",
    "a tuple of twice itself as a name": b"\x80\x04" + _pairs(2000)[2:] + b"2\x93.",
    "a tuple of twice itself, called": _pairs(2000) + b"2R.",
    "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
    "a table within itself": b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s.",
    "marks alone": b"(" * 20_000 + b".",
    "no end": b"\x80\x02" + b"N0" * 20_000,
}


@pytest.mark.parametrize("name", GREEDY)
def test_a_greedy_pickle_takes_no_memory_and_no_time(tmp_path, name):
    for _ in _as_files(tmp_path, GREEDY[name]):
        tracemalloc.start()
        begun = time.monotonic()
        with pytest.raises(CheckpointError):
            opened(tmp_path)
        assert time.monotonic() - begun < 5  # while it is traced
        assert tracemalloc.get_traced_memory()[1] < 2**26
        tracemalloc.stop()


def test_a_pickle_of_too_many_words_is_put_down(monkeypatch):
    monkeypatch.setattr(opcodes, "_MOST", 1000)
    with pytest.raises(ValueError, match="longer than any"):
        followed(io.BytesIO(b"N0" * 1000 + b"N."))


def test_a_small_archive_of_a_long_pickle_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(2**26 + 1))
    with pytest.raises(CheckpointError, match="longer than any that holds weights"):
        opened(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_mutated_files(tmp_path, zipped):
    """Whatever byte is changed, the file is read or refused in one line of our own."""
    write(tmp_path, nested(tensors()), zipped=zipped)
    good = (tmp_path / "w.bin").read_bytes()
    draw = random.Random(0)
    refusals = []
    for _ in range(250):
        bad = bytearray(good)
        for _ in range(draw.choice([1, 1, 2, 8])):
            # mostly where the pickle or the directory is
            at = draw.choice([draw.randrange(len(bad)), draw.randrange(2000), -draw.randrange(1, 2000)])
            bad[at] = draw.choice([0, 1, 255, bad[at] ^ 1 << draw.randrange(8), draw.randrange(256)])
        if draw.random() < 0.1:
            del bad[draw.randrange(len(bad)) :]
        (tmp_path / "w.bin").write_bytes(bad)
        try:
            file = opened(tmp_path, draw.choice([LocalFiles, InPart]))
            for name in file.header:
                file.read(name, None)
        except CheckpointError as error:
            refusals.append(str(error))
    assert 50 < len(refusals) < 250
    assert not any("\n" in said or len(said) > 500 + len(str(tmp_path)) for said in refusals)


def test_a_tensor_beyond_its_file_is_refused(tmp_path):
    """The shape that a pickle gives is held against what is stored."""
    write(tmp_path, {"x": torch.zeros(3, 7)}, zipped=False)
    whole = (tmp_path / "w.bin").read_bytes()
    for bad in (whole.replace(b"K\x03K\x07\x86", b"K\x04K\x07\x86"), whole[:-1]):
        assert bad != whole
        (tmp_path / "w.bin").write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"larger than what is stored|1 bytes are missing"):
            opened(tmp_path)


def test_a_pickle_is_followed_to_its_end_and_no_further():
    stream = io.BytesIO(pickle.dumps({"a": [1, (2.5, "x", b"y", None, True)]}) + pickle.dumps(7))
    assert followed(stream).content == {"a": [1, (2.5, "x", b"y", None, True)]}
    assert followed(stream).content == 7


# ---- as a checkpoint -------------------------------------------------------------------------------------------------


def _as(folder, name, layout=lambda table: table, **settings):
    """Put the weights of a checkpoint into a pickle of another name and layout."""
    torch.save(layout(load_file(folder / "model.safetensors")), folder / name, **settings)
    whole = Checkpoint.open(folder)
    expected = {name: whole.tensor(name) for name in whole.tensor_names}
    (folder / "model.safetensors").unlink()
    return expected


@pytest.mark.parametrize("name", ["checkpoint_best.pt", "weights.bin", "last.ckpt"])
def test_the_one_pickle_of_a_folder_is_its_model(llama, name):
    """Whatever its name and its layout; and what is run has the weights that are read."""
    expected = _as(llama, name, nested, _use_new_zipfile_serialization=False)
    for other in ("training_args.bin", "optimizer.pt", "scheduler.pt"):
        (llama / other).write_bytes(b"of a trainer")
    checkpoint = Checkpoint.open(llama, allow_pickle=True)
    assert checkpoint.files().keys() == {"config.json", name}
    assert all(torch.equal(checkpoint.tensor(one), tensor) for one, tensor in expected.items())
    state = checkpoint.load_model().state_dict()
    assert all(torch.equal(state[one], tensor) for one, tensor in expected.items())
    with pytest.raises(CheckpointError, match=rf"only as pickle .{name}"):
        Checkpoint.open(llama)
    (llama / "other.pt").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"has .* and .*; give a folder with one model"):
        Checkpoint.open(llama, allow_pickle=True)
    (llama / "other.pt").unlink()
    (llama / "config.json").unlink()
    with pytest.raises(CheckpointError, match=rf"has {name}, but no config.json beside it.*; put the model's there"):
        Checkpoint.open(llama, allow_pickle=True)
