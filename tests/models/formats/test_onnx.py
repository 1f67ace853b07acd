"""Weights of ONNX graphs get their names back, and stand for models like any others."""

import json

import numpy as np
import onnx_files
import pytest
import tiny_models
import torch
from onnx_files import initialiser, node, save

from provlab.errors import CheckpointError
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint
from provlab.models.formats.onnx import OnnxFile
from provlab.models.local import LocalFiles

LAYER = "encoder.layer.0"
UP, DOWN = f"{LAYER}.intermediate.dense", f"{LAYER}.output.dense"
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def codes(*shape):
    return RNG.integers(-127, 128, shape).astype(np.int8)


def layer(folder):
    """Write a layer of which one matrix is float32 in a file beside the graph, and one int8 with a scale a column."""
    up, down, scale = normal(4, 8), codes(8, 4), RNG.random((1, 4)).astype(np.float32)
    (folder / "model.onnx.data").write_bytes(bytes(16) + up.tobytes())
    place = [("location", "model.onnx.data"), ("offset", 16), ("length", up.nbytes)]
    save(
        folder / "model.onnx",
        initialiser("inner.embeddings.word_embeddings.weight", np.ones((5, 4), np.float32)),
        initialiser("onnx::MatMul_1", up, outside=place),
        initialiser("val_2_q", down),
        initialiser("val_2_scale", scale),
        initialiser("shape", np.arange(3)),
        initialiser(f"inner.{UP}.bias", np.ones(8, np.float32)),
        initialiser(f"inner.{DOWN}.bias", np.ones(4, np.float32)),
        node("MatMul", ["x", "onnx::MatMul_1"], "y"),
        node("Add", [f"inner.{UP}.bias", "y"], "z"),
        node("Cast", ["val_2_q"], "val_2_f"),
        node("Mul", ["val_2_f", "val_2_scale"], "val_2"),
        node("MatMul", ["z", "val_2"], "v"),
        node("Add", ["v", f"inner.{DOWN}.bias"], "w"),
    )
    return {f"{UP}.weight": up.T, f"{DOWN}.weight": (down * scale).T}


def read(folder):
    found = OnnxFile(LocalFiles(folder), "model.onnx")
    return {name: found.read(name, None).view(info.dtype).reshape(info.shape) for name, info in found.header.items()}


def test_weights_get_their_names_back(tmp_path):
    expected = layer(tmp_path)
    found = OnnxFile(LocalFiles(tmp_path), "model.onnx")
    assert {f"{DOWN}.bias", "embeddings.word_embeddings.weight", *expected} <= set(found.header)
    assert found.beside == ("model.onnx.data",)
    for name, array in expected.items():
        np.testing.assert_array_equal(read(tmp_path)[name], array)
        np.testing.assert_array_equal(found.read(name, range(1, 3)).view(np.float32), array[1:3].ravel())


def quantised(layout):
    """Nodes that multiply by codes, and the weight that they mean, its rows being outputs."""
    (matrix, turned), scale, zero = (codes(8, 4), codes(4, 8)), RNG.random(4).astype(np.float32), codes(4)
    numbers = (matrix - zero.astype(np.float32)) * scale
    stored = [initialiser("s", scale, field=4), initialiser("z", zero, field=5)]
    stored += [initialiser(f"{DOWN}.bias", normal(4)), initialiser("embeddings.word_embeddings.weight", normal(5, 4))]
    add = node("Add", ["y", f"{DOWN}.bias"], "sum")
    dequantise = node("DequantizeLinear", ["q", "s", "z"], "f", axis=1)
    match layout:
        case "QDQ":
            return [*stored, initialiser("q", matrix), dequantise, node("MatMul", ["x", "f"], "y"), add], numbers.T
        case "QDQ, turned":
            others = [
                node("DequantizeLinear", ["q", "s", "z"], "f", axis=0),
                node("Transpose", ["f"], "t", perm=[1, 0]),
            ]
            weight = (turned - zero[:, None].astype(np.float32)) * scale[:, None]
            return [*stored, initialiser("q", turned), *others, node("MatMul", ["x", "t"], "y"), add], weight
        case "QGemm":
            weight = (turned - zero[:, None].astype(np.float32)) * scale[:, None]
            inputs = ["x", "xs", "xz", "q", "s", "z", f"{DOWN}.bias"]
            return [*stored, initialiser("q", turned), node("QGemm", inputs, "y", transB=1)], weight
        case "MatMulInteger":
            own = [initialiser("m_quantized", matrix), initialiser("m_scale", scale), initialiser("m_zero_point", zero)]
            product = node("MatMulInteger", ["x", "m_quantized", "xz", "m_zero_point"], "i")
            after = [node("Cast", ["i"], "c"), node("Mul", ["c", "any"], "y")]
            return [*stored, *own, product, *after, add], numbers.T
        case "one scale":
            own = [initialiser("w_q", matrix), initialiser("one", np.float32([0.5]))]
            made = [node("Cast", ["w_q"], "c"), node("Mul", ["c", "one"], "f"), node("MatMul", ["x", "f"], "y"), add]
            return [*stored, *own, *made], matrix.T * np.float32(0.5)


@pytest.mark.parametrize("layout", ["QDQ", "QDQ, turned", "QGemm", "MatMulInteger", "one scale"])
def test_codes_become_the_weights_that_they_stand_for(layout, tmp_path):
    content, expected = quantised(layout)
    save(tmp_path / "model.onnx", *content)
    found = OnnxFile(LocalFiles(tmp_path), "model.onnx")
    assert found.header[f"{DOWN}.weight"].stored == "int8"
    np.testing.assert_array_equal(read(tmp_path)[f"{DOWN}.weight"], expected)


def test_a_folder_with_a_graph_is_a_model(tmp_path):
    expected = onnx_files.tiny(tmp_path)
    opened = Checkpoint.open(tmp_path)
    assert opened.stored == ["uint8"]
    for name, array in expected.items():
        np.testing.assert_array_equal(opened.array(name), array)
    assert anatomy.of(opened).read(opened, "up", 0).shape == (tiny_models.MLP_WIDTH, tiny_models.WIDTH)
    model = tiny_models.build("llama")
    model.load_state_dict({name: torch.tensor(array) for name, array in expected.items()})
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(opened.load_model()(tokens).logits, model.eval()(tokens).logits)


def test_the_digest_is_over_the_files_beside_a_graph_too(tmp_path):
    layer(tmp_path)
    told = {"architectures": ["BertModel"], "model_type": "bert"}
    (tmp_path / "config.json").write_text(json.dumps(told))
    opened = Checkpoint.open(tmp_path)
    assert set(opened.files()) == {"config.json", "model.onnx", "model.onnx.data"}
    before = opened.digest
    data = tmp_path / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-1] + b"\x07")
    assert Checkpoint.open(tmp_path).digest != before


def test_one_of_several_graphs_goes_by_its_path(tmp_path, llama):
    onnx_files.tiny(tmp_path)
    graph = tmp_path / "model.onnx"
    (tmp_path / "model_quantized.onnx").write_bytes(graph.read_bytes())
    with pytest.raises(CheckpointError, match=r"several models, model.onnx and model_q.*; give the path of one"):
        Checkpoint.open(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((llama / "model.safetensors").read_bytes())
    assert set(Checkpoint.open(graph).files()) == {"config.json", "model.onnx"}
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has model.onnx, but no config.json beside it"):
        Checkpoint.open(graph)


DAMAGE = {
    "empty": lambda path, data: path.write_bytes(b""),
    "cut off": lambda path, data: path.write_bytes(path.read_bytes()[:200]),
    "no graph": lambda path, data: path.write_bytes(b"\xff" * 40),
    "data cut off": lambda path, data: data.write_bytes(bytes(40)),
    "no data": lambda path, data: data.unlink(),
}


@pytest.mark.parametrize("label", DAMAGE)
def test_a_damaged_graph_is_named(tmp_path, label):
    layer(tmp_path)
    DAMAGE[label](tmp_path / "model.onnx", tmp_path / "model.onnx.data")
    with pytest.raises(CheckpointError, match=r"model.onnx is truncated or corrupt"):
        OnnxFile(LocalFiles(tmp_path), "model.onnx")


def test_a_file_cut_off_after_it_was_opened_is_named(tmp_path):
    layer(tmp_path)
    found = OnnxFile(LocalFiles(tmp_path), "model.onnx")
    (tmp_path / "model.onnx.data").write_bytes(bytes(40))
    with pytest.raises(CheckpointError, match=r"model.onnx is truncated or corrupt"):
        found.read(f"{UP}.weight", None)


def test_codes_that_mean_nothing_are_refused(tmp_path):
    product = [initialiser("q", codes(8, 4)), node("MatMulInteger", ["x", "q"], "y"), node("Add", ["y", "b.bias"], "z")]
    save(tmp_path / "model.onnx", *product, initialiser("b.bias", normal(4)))
    with pytest.raises(CheckpointError, match=r"b.weight is stored as codes, and which scale is theirs is not known"):
        OnnxFile(LocalFiles(tmp_path), "model.onnx")
    save(tmp_path / "model.onnx", initialiser("b.bias", normal(4)), node("MatMulNBits", ["x", "q", "s"], "y"))
    with pytest.raises(CheckpointError, match=r"codes of 4 bits in blocks .MatMulNBits.*; give the checkpoint"):
        OnnxFile(LocalFiles(tmp_path), "model.onnx")
