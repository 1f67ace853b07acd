"""Weights of ONNX graphs get their names back."""

import numpy as np
import pytest

from provlab.errors import CheckpointError
from provlab.models.formats.onnx import OnnxFile
from provlab.models.local import LocalFiles

LAYER = "encoder.layer.0"


def proto(*fields):
    """Write a protobuf message by hand: (number, int or bytes)."""

    def varint(value):
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    written = b""
    for number, value in fields:
        written += varint(number << 3 | (0 if isinstance(value, int) else 2))
        written += varint(value) if isinstance(value, int) else varint(len(value)) + value
    return written


def initialiser(name, array, kind, *, outside=()):
    sizes = [(1, size) for size in array.shape]
    entries = [(13, proto((1, key.encode()), (2, value.encode()))) for key, value in outside]
    content = [*entries, (14, 1)] if outside else [(9, array.tobytes())]
    return 5, proto(*sizes, (2, kind), (8, name.encode()), *content)


def node(operation, inputs, output):
    return 1, proto(*[(1, name.encode()) for name in inputs], (2, output.encode()), (4, operation.encode()))


def write(folder):
    """Write a layer of which one matrix is float32 in a file beside the graph, and one int8 with a scale a column."""
    rng = np.random.default_rng(0)
    up, down = rng.normal(size=(4, 8)).astype(np.float32), rng.integers(-127, 128, (8, 4)).astype(np.int8)
    scale = rng.random((1, 4)).astype(np.float32)
    (folder / "model.onnx.data").write_bytes(bytes(16) + up.tobytes())
    place = [("location", "model.onnx.data"), ("offset", "16"), ("length", str(up.nbytes))]
    graph = proto(
        initialiser("inner.embeddings.word_embeddings.weight", np.ones((5, 4), np.float32), 1),
        initialiser("onnx::MatMul_1", up, 1, outside=place),
        initialiser("val_2_q", down, 3),
        initialiser("val_2_scale", scale, 1),
        initialiser("shape", np.arange(3), 7),
        initialiser(f"inner.{LAYER}.intermediate.dense.bias", np.ones(8, np.float32), 1),
        initialiser(f"inner.{LAYER}.output.dense.bias", np.ones(4, np.float32), 1),
        node("MatMul", ["x", "onnx::MatMul_1"], "y"),
        node("Add", [f"inner.{LAYER}.intermediate.dense.bias", "y"], "z"),
        node("Cast", ["val_2_q"], "val_2_f"),
        node("Mul", ["val_2_f", "val_2_scale"], "val_2"),
        node("MatMul", ["z", "val_2"], "v"),
        node("Add", ["v", f"inner.{LAYER}.output.dense.bias"], "w"),
    )
    (folder / "model.onnx").write_bytes(proto((1, 8), (7, graph)))
    return {f"{LAYER}.intermediate.dense.weight": up.T, f"{LAYER}.output.dense.weight": (down * scale).T}


def test_weights_get_their_names_back(tmp_path):
    expected = write(tmp_path)
    found = OnnxFile(LocalFiles(tmp_path), "model.onnx")
    assert {f"{LAYER}.output.dense.bias", "embeddings.word_embeddings.weight", *expected} <= set(found.header)
    for name, array in expected.items():
        assert found.header[name].shape == array.shape
        np.testing.assert_array_equal(found.read(name, None).view(np.float32).reshape(array.shape), array)
        np.testing.assert_array_equal(found.read(name, range(1, 3)).view(np.float32), array[1:3].ravel())


@pytest.mark.parametrize("label", ["empty", "cut off", "no graph", "data cut off", "no data"])
def test_a_damaged_graph_is_named(tmp_path, label):
    write(tmp_path)
    path, data = tmp_path / "model.onnx", tmp_path / "model.onnx.data"
    spoil = {
        "empty": lambda: path.write_bytes(b""),
        "cut off": lambda: path.write_bytes(path.read_bytes()[:200]),
        "no graph": lambda: path.write_bytes(b"\xff" * 40),
        "data cut off": lambda: data.write_bytes(bytes(40)),
        "no data": data.unlink,
    }
    spoil[label]()
    with pytest.raises(CheckpointError, match=r"model.onnx is truncated or corrupt"):
        OnnxFile(LocalFiles(tmp_path), "model.onnx")
