"""ONNX graphs written by hand, field by field, as exporters and quantisers write them; nothing here runs one."""

import json

import numpy as np
import tiny_models


def proto(*fields):
    """Write a protobuf message: (number, int or bytes)."""

    def varint(value):
        value %= 1 << 64
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    written = b""
    for number, value in fields:
        written += varint(number << 3 | (0 if isinstance(value, int) else 2))
        written += varint(value) if isinstance(value, int) else varint(len(value)) + value
    return written


KINDS = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7, "float16": 10}


def initialiser(name, array, *, outside=(), field=9):
    """Write a tensor: its bytes (field 9), its floats (4) or its integers (5), or where they are in another file."""
    sizes = [(1, size) for size in array.shape]
    if outside:
        content = [*[(13, proto((1, key.encode()), (2, str(value).encode()))) for key, value in outside], (14, 1)]
    elif field == 5:  # one behind the other, each as long as it needs to be
        content = [(5, b"".join(proto((0, int(number)))[1:] for number in array.ravel()))]
    else:
        content = [(field, array.tobytes())]
    return 5, proto(*sizes, (2, KINDS[str(array.dtype)]), (8, name.encode()), *content)


def node(kind, inputs, output, *, name="", **attributes):
    """Write an operation; attributes are an integer, or a list of them."""
    told = [
        (
            5,
            proto(
                (1, key.encode()),
                *[(8 if isinstance(value, list) else 3, one) for one in np.atleast_1d(value).tolist()],
            ),
        )
        for key, value in attributes.items()
    ]
    inputs = [(1, one.encode()) for one in inputs]
    return 1, proto(*inputs, (2, output.encode()), (3, name.encode()), (4, kind.encode()), *told)


def save(path, *content):
    """Write a file of such initialisers and nodes."""
    path.write_bytes(proto((1, 8), (7, proto(*content))))


def of_codes(matrix):
    """Quantise a matrix to uint8, one scale for all: codes, scale, zero."""
    scale = np.float32((matrix.max() - matrix.min()) / 255)
    zero = np.uint8(np.round(-matrix.min() / scale))
    codes = np.clip(np.round(matrix / scale) + zero, 0, 255).astype(np.uint8)
    return codes, np.array(scale), np.array(zero)


def export(model, folder):
    """Export a tiny Llama: its projections by the paths of nodes, down-projections and words as onnxruntime has them.

    Returns
    -------
    dict
        The weights that are to be read, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    (folder / "config.json").write_text(json.dumps(told))
    content, expected = [], {}
    for name, tensor in model.state_dict().items():
        matrix = expected[name] = tensor.numpy()
        module = name.removesuffix(".weight")
        if matrix.ndim == 1:
            content.append(initialiser(name, matrix, field=4))
        elif module.endswith(("embed_tokens", "down_proj")):
            product = module.endswith("down_proj")
            codes, scale, zero = of_codes(matrix.T if product else matrix)
            within = f"onnx::MatMul_{len(content)}" if product else name
            expected[name] = (codes.astype(np.float32) - zero) * scale
            content += [
                initialiser(f"{within}_quantized", codes),
                initialiser(f"{within}_scale", scale, field=4),
                initialiser(f"{within}_zero_point", zero, field=5),
            ]
            if product:
                expected[name] = expected[name].T
                path = "/" + module.replace(".", "/").replace("layers/", "layers.") + "/MatMul_quant"
                inputs = [f"x{len(content)}", f"{within}_quantized", "z", f"{within}_zero_point"]
                content.append(node("MatMulInteger", inputs, f"y{len(content)}", name=path))
        else:
            content.append(initialiser(f"onnx::MatMul_{len(content)}", np.ascontiguousarray(matrix.T)))
            path = "/" + module.replace(".", "/").replace("layers/", "layers.") + "/MatMul"
            content.append(node("MatMul", ["x", f"onnx::MatMul_{len(content) - 1}"], f"y{len(content)}", name=path))
    save(folder / "model.onnx", *content)
    return expected


def tiny(folder):
    """Export the tiny Llama of the tests."""
    return export(tiny_models.build("llama"), folder)
