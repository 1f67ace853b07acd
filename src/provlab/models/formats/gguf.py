"""Weights in GGUF, the format of llama.cpp: one file with what it says of the model, and its tensors, mostly as codes.

The header is read here, and no further than the file is long; codes become floats by the package ``gguf``. Whoever
makes such a file from a checkpoint of transformers renames its tensors, re-orders rows of queries and keys in Llamas,
and adds 1 to norms of Gemmas: all this is undone. The format is described in ggml's ``docs/gguf.md``.
"""

import math
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.models.formats.container import TensorInfo, damaged
from provlab.models.formats.dtypes import values

if TYPE_CHECKING:
    from provlab.models.formats.source import Files

_LONGEST = 2**25  # bytes of a header: with the texts of the largest vocabularies some 2**23
_MOST = 2**16  # keys, and tensors
_PIECE = 2**16  # bytes of it that are read at first
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_LARGEST = 2**48  # numbers of a tensor

_PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
#: a tensor's type, by the number that the file gives it -> its name, numbers in a block, bytes of a block
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip

#: architecture in the file -> class of transformers, and its ``model_type``; Mistral's models are llama here
_CLASSES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "gemma": ("GemmaForCausalLM", "gemma"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "olmo2": ("Olmo2ForCausalLM", "olmo2"),
}
_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MUST = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
_MAY = {
    "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
#: what is re-ordered in Llamas, and the key of how many heads it has
_HEADS = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
_ROTATIONS = "rope_freqs.weight"  # what the frequencies of rotary positions are divided by: no weight


class _Place(NamedTuple):
    """Where a tensor stands, and what undoes the conversion.

    Attributes
    ----------
    start, nbytes
        Its bytes in the file.
    kind
        The name of its type.
    heads
        Of the rows that are re-ordered; 0 where they are not.
    added
        To each of its numbers.
    """

    start: int
    nbytes: int
    kind: str
    heads: int = 0
    added: int = 0


class GgufFile:
    """One file, see `provlab.models.formats.container.Container`."""

    def __init__(self, source: "Files", file: str) -> None:
        """Read the header, and hold the places of all tensors against the file's length."""
        self._source, self._file, self._label = source, file, f"{source.label}: {file}"
        try:
            told, tensors = self._parsed(_Bytes(source, file))
            kind = told.get("general.architecture")
            if not isinstance(kind, str) or kind not in _CLASSES:
                raise CheckpointError(
                    f"{self._label} holds a model of the architecture {kind!r}, which is not read from GGUF (read are "
                    f"{', '.join(_CLASSES)}); give the checkpoint that it was made from"
                )
            told = {key.removeprefix(f"{kind}."): value for key, value in told.items()}
            parts = {"expert_count": "is a mixture of experts", "split.count": "is one of several parts"}
            for key, what in parts.items():
                if (_number(told, key) or 0) > 1:
                    raise CheckpointError(
                        f"{self._label} {what}, which is not read from GGUF; give the checkpoint that it was made from"
                    )
            self.config: dict[str, Any] = _config(told, kind, {name: info.shape for name, (info, _) in tensors.items()})
            if _ROTATIONS in tensors:
                self.config["rope_scaling"] = self._rotations(*tensors.pop(_ROTATIONS))
            self.header, self._places = _renamed(tensors, kind, self.config)
        except (ValueError, EOFError, OSError) as error:
            raise damaged(source, file, error) from error

    def _parsed(self, header: "_Bytes") -> tuple[dict[str, Any], dict[str, tuple[TensorInfo, _Place]]]:
        """Read what the file says of the model, and its tensors by its own names."""
        if header.take(4) != b"GGUF":
            raise ValueError("it does not begin as GGUF does")
        version = header.number("I")
        if version not in (2, 3):
            why = "big-endian" if version in (2 << 24, 3 << 24) else f"of version {version}"
            raise CheckpointError(f"{self._label} is GGUF {why}, read are versions 2 and 3; convert the model anew")
        n_tensors, n_told = header.some("Q", least=24), header.some("Q", least=13)
        if max(n_tensors, n_told) > _MOST:
            raise ValueError(f"it promises {n_tensors} tensors and {n_told} keys")
        told: dict[str, Any] = {}
        for _ in range(n_told):
            key = header.text()
            told[key] = header.value(header.number("I"))
        infos = [self._tensor(header) for _ in range(n_tensors)]
        aligned = told.get("general.alignment", 32)
        if type(aligned) is not int or not 1 <= aligned <= 2**16:
            raise ValueError(f"tensors aligned to {one_line(aligned)[:40]}")
        begin = -(-header.at // aligned) * aligned
        tensors: dict[str, tuple[TensorInfo, _Place]] = {}
        end = begin
        for name, info, place in sorted(infos, key=lambda one: one[2].start):
            start = begin + place.start
            if name in tensors or start < end:
                raise ValueError(f"{name[:80]} stands where another tensor does")
            end = start + place.nbytes
            if end > header.size:
                raise EOFError(f"{name[:80]} ends {end - header.size} bytes behind the file")
            tensors[name] = info, place._replace(start=start)
        return told, tensors

    def _tensor(self, header: "_Bytes") -> tuple[str, TensorInfo, _Place]:
        """Read name, shape, type and place of one tensor; the file gives the last axis first."""
        name, n_axes = header.text(), header.number("I")
        if not 1 <= n_axes <= 4:
            raise ValueError(f"{name[:80]} has {n_axes} axes")
        shape = tuple(header.number("Q") for _ in range(n_axes))[::-1]
        number, start = header.number("I"), header.number("Q")
        if number not in _TYPES:
            raise CheckpointError(
                f"{self._label}: {name[:80]} is of GGUF's type {number}, which is not read; "
                "give the checkpoint that it was made from"
            )
        kind, block, nbytes = _TYPES[number]
        if not 0 < math.prod(shape) < _LARGEST or shape[-1] % block:
            raise ValueError(f"{name[:80]} has the shape {shape} as {kind}")
        stored = "" if kind in _PLAIN else kind
        info = TensorInfo(shape, _PLAIN.get(kind, "float32"), stored=stored)
        return name, info, _Place(start, math.prod(shape) // block * nbytes, kind)

    def _rotations(self, info: TensorInfo, place: _Place) -> dict[str, Any]:
        """Divide the frequencies of rotary positions as the file does (Llama 3.1), in the words of transformers."""
        told = self.config
        pairs = told.get("head_dim", told["hidden_size"] // told["num_attention_heads"]) // 2
        if info != TensorInfo((pairs,), "float32"):
            raise ValueError(f"{_ROTATIONS} does not divide {pairs} frequencies")
        factors = self._source.read(self._file, place.start, place.nbytes).view(np.float32)
        if not ((factors > 0) & (factors < np.inf)).all():
            raise ValueError(f"{_ROTATIONS} divides by what is no number above 0")
        both = dict.fromkeys(("short_factor", "long_factor"), factors.tolist())
        length = {"original_max_position_embeddings": told.get("max_position_embeddings", 1)}
        return {"rope_type": "longrope", "factor": 1.0, "attention_factor": 1.0} | both | length

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it: rows of codes are read alone, and de-quantised."""
        info, place = self.header[name], self._places[name]
        order = np.arange(info.shape[0])
        if place.heads:  # the two halves of a head were interleaved
            order = order.reshape(place.heads, -1, 2).swapaxes(1, 2).reshape(-1)
        order = order[rows.start : rows.stop] if rows is not None else order
        if not len(order):
            return np.empty(0, np.uint8)
        lines = info.shape[0] if len(info.shape) > 1 else 1  # a vector is read whole, as blocks run along it
        first, last = (int(order.min()), int(order.max()) + 1) if lines > 1 else (0, 1)
        width = place.nbytes // lines
        try:
            content = self._source.read(self._file, place.start + first * width, (last - first) * width)
        except OSError as error:
            raise damaged(self._source, self._file, error) from error
        if content.nbytes < (last - first) * width:  # cut off since its header was read
            raise damaged(self._source, self._file, EOFError(f"{name} is not all there"))
        numbers = self._numbers(content.reshape(last - first, -1), info, place)
        if lines > 1:
            numbers = numbers[order - first]
        elif len(info.shape) == 1:
            numbers = numbers.reshape(info.shape[0], -1)[order]
        return np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)

    def _numbers(self, content: NDArray[np.uint8], info: TensorInfo, place: _Place) -> NDArray[Any]:
        """Make numbers of rows as they are stored: in the header's dtype, or unsigned of its size if it is plain."""
        if place.kind in _PLAIN and not place.added:
            return content.view(f"u{info.nbytes // math.prod(info.shape)}")
        if place.kind in _PLAIN:
            numbers = values(content.reshape(-1), _PLAIN[place.kind]).reshape(len(content), -1).astype(np.float32)
        else:
            numbers = self._dequantised(content, place.kind)
        return numbers - np.float32(place.added) if place.added else numbers

    def _dequantised(self, content: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
        try:
            import gguf
        except ImportError as error:
            raise CheckpointError(
                f"{self._label} stores weights as {kind}, which the package gguf reads; pip install 'provlab[gguf]'"
            ) from error
        try:
            with np.errstate(all="ignore"):  # of NaN and Inf whoever asked will hear
                return np.asarray(gguf.dequantize(content, gguf.GGMLQuantizationType[kind]), np.float32)
        except (NotImplementedError, KeyError) as error:
            raise CheckpointError(
                f"{self._label} stores weights as {kind}, which the package gguf cannot read; "
                "give the checkpoint that it was made from"
            ) from error


class _Bytes:
    """The bytes of a header one after the other, read as they are needed."""

    def __init__(self, source: "Files", file: str) -> None:
        self.at, self.size = 0, source.size(file)
        self._source, self._file, self._known = source, file, bytearray()

    def take(self, n: int) -> bytes:
        """Return the next bytes."""
        begin = self.at
        self._go(n)
        return bytes(self._known[begin : self.at])

    def _go(self, n: int) -> None:
        """Go so many bytes further, and have them read."""
        end = self.at + n
        if end > self.size:
            raise EOFError("its header is not all there")
        if end > _LONGEST:
            raise ValueError("its header is longer than any that stands before weights")
        while end > (known := len(self._known)):
            self._known += self._source.read(self._file, known, min(max(_PIECE, known), self.size - known)).tobytes()
            if len(self._known) == known:
                raise EOFError("its header is not all there")
        self.at = end

    def number(self, code: str) -> Any:
        """Return a number, its type by the code of `struct`."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def some(self, code: str, least: int) -> int:
        """Return how many things follow, of so many bytes at least."""
        n: int = self.number(code)
        if n * least > min(self.size, _LONGEST) - self.at:
            raise ValueError(f"it promises {n} things, and has no place for them")
        return n

    def text(self) -> str:
        """Return a text, behind its length."""
        return self.take(self.some("Q", least=1)).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Return what stands beside a key: a number, a text, an array of numbers; None for one of texts."""
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            of = self.number("I")
            if of == _TEXT:
                length = struct.Struct("<Q").unpack_from
                for _ in range(self.some("Q", least=8)):
                    self._go(8)
                    self._go(*length(self._known, self.at - 8))
                return None
            code = self._code(of)
            n = self.some("Q", least=struct.calcsize(f"<{code}"))
            return np.frombuffer(self.take(n * struct.calcsize(f"<{code}")), f"<{code}")
        return self.number(self._code(kind))

    @staticmethod
    def _code(kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"it holds values of the unknown type {kind}")
        return _SCALARS[kind]


def _number(told: dict[str, Any], key: str, *kinds: type) -> Any:
    """Return a number that the file gives; None if it does not. One for each block must be the same for all."""
    value = told.get(key)
    if isinstance(value, np.ndarray) and len(value):
        if (value != value[0]).any():
            raise ValueError(f"blocks differ in {key}")
        value = value[0].item()
    if value is not None and (type(value) not in (kinds or (int, float)) or not 0 <= value < math.inf):
        raise ValueError(f"it gives no number for {key}")
    return value


def _config(told: dict[str, Any], kind: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Write ``config.json`` for a model from what its file says; transformers' defaults stand for what it does not."""
    class_name, model_type = _CLASSES[kind]
    config: dict[str, Any] = {"architectures": [class_name], "model_type": model_type}
    for key, name in (_MUST | _MAY).items():
        value = _number(told, key, *[int] * (key in _MUST))
        if key in _MUST and not value:
            raise ValueError(f"it gives no {kind}.{key}")
        if value is not None:
            config[name] = value
    if len(vocabulary := shapes.get("token_embd.weight", ())) != 2:
        raise ValueError("it has no token_embd.weight")
    heads = config["num_attention_heads"]
    config["num_key_value_heads"] = _number(told, "attention.head_count_kv", int) or heads
    config["vocab_size"] = vocabulary[0]
    config["tie_word_embeddings"] = "output.weight" not in shapes
    head = _number(told, "attention.key_length", int) or shapes.get("blk.0.attn_q.weight", (0,))[0] // heads
    if kind != "olmo2" and head:
        config["head_dim"] = head
    config["attention_bias"] = "blk.0.attn_q.bias" in shapes
    config["mlp_bias"] = "blk.0.ffn_up.bias" in shapes
    if kind in ("gemma2", "gemma3"):  # the largest of each divide by their width for a head; the file does not say
        largest = (kind, config["num_hidden_layers"]) in (("gemma2", 46), ("gemma3", 62))
        config["query_pre_attn_scalar"] = config["hidden_size"] // heads if largest else head
    scaling, factor = told.get("rope.scaling.type"), _number(told, "rope.scaling.factor")
    if factor and isinstance(scaling, str) and scaling in ("linear", "yarn"):
        config["rope_scaling"] = {"rope_type": scaling, "factor": float(factor)}
        if scaling == "yarn" and (length := _number(told, "rope.scaling.original_context_length")):
            config["rope_scaling"]["original_max_position_embeddings"] = length
    return config


def _renamed(
    tensors: dict[str, tuple[TensorInfo, _Place]], kind: str, config: dict[str, Any]
) -> tuple[dict[str, TensorInfo], dict[str, _Place]]:
    """Give tensors the names of transformers, and say what is to be undone."""
    header, places = {}, {}
    names = {old: _name(old, kind) for old in tensors}
    if twice := [name for name, n in Counter(names.values()).items() if n > 1]:
        raise ValueError(f"it has {twice[0][:80]} twice")
    for old, (info, place) in tensors.items():
        name = names[old]
        for part, key in _HEADS.items():
            if kind == "llama" and f".{part}." in name:
                place = place._replace(heads=config[key])
                if info.shape[0] % (2 * place.heads):
                    raise ValueError(f"{old[:80]} has {info.shape[0]} rows for {place.heads} heads")
        if kind.startswith("gemma") and name.endswith("norm.weight"):
            info, place = info._replace(dtype="float32"), place._replace(added=1)
        header[name], places[name] = info, place
    return header, places


def _name(old: str, kind: str) -> str:
    """Return a tensor's name in transformers, or the old one if it has none there: ``blk.0.ffn_up.weight``."""
    module, _, ending = old.rpartition(".")
    if module in _OUTSIDE:
        return f"{_OUTSIDE[module]}.{ending}"
    block, _, part = module.removeprefix("blk.").partition(".")
    if part == "ffn_norm":
        before = "pre_feedforward" if kind in ("gemma2", "gemma3") else "post_attention"
        return f"model.layers.{block}.{before}_layernorm.{ending}"
    return f"model.layers.{block}.{_IN_BLOCK[part]}.{ending}" if part in _IN_BLOCK else old
