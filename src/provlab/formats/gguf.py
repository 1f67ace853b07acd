"""Weights in GGUF, the format of llama.cpp: one file with a description of the model and its tensors, mostly codes.

The package ``gguf`` reads the file, de-quantises its codes, and knows llama.cpp's name of each tensor. The converter
that makes such a file from a checkpoint of transformers also re-orders rows of queries and keys in Llamas, and adds 1
to norms of Gemmas and Nemotrons: both are undone here. The format is described in ggml's ``docs/gguf.md``.
"""

import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError
from provlab.reading.architectures import class_of, described, instances
from provlab.reading.files.container import Format, TensorInfo, damaged, parts_of
from provlab.reading.files.dtypes import values

if TYPE_CHECKING:
    import gguf

    from provlab.reading.files.source import Files

FORMAT = Format("provlab.formats.gguf.GgufFile", "*.gguf", ending=".gguf")
_LONGEST = 2**25  # bytes of a header: with the texts of the largest vocabularies some 2**23
_MOST = 2**20  # entries of an array in it
_PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_UNKNOWN_KIND = re.compile(r"(\d+)\)? is not a valid GGMLQuantizationType")  # in the package's words
# raised by the package, which takes most numbers of a file on trust, and here
_DAMAGE = (ValueError, KeyError, IndexError, TypeError, ArithmeticError, EOFError, OSError, struct.error)

#: architecture in the file -> ``model_type`` of transformers; Mistral's models are llama here, and Mixtral with experts
_ALIKE = "llama qwen2 qwen3 gemma gemma2 olmo2 phi3 granite smollm3 starcoder2 nemotron olmoe exaone4 glm4"
_TYPES = {kind: kind for kind in _ALIKE.split()} | {"command-r": "cohere"}
_TYPES |= {"gemma3": "gemma3_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}
_MUST = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
_MAY = {
    "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
#: architectures whose converter re-orders rows; projections of which it does -> the key of how many heads they have
_REORDERED = ("llama", "granite", "smollm3")
_HEADS = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
#: architectures of which some models have blocks whose attention reaches less far, and some none
_SLIDING = ("olmo2", "exaone4")
#: divisors of the frequencies of rotary positions, which are no weight -> of which texts, by their length
_ROTATIONS = {"rope_freqs.weight": "", "rope_factors_short.weight": "short", "rope_factors_long.weight": "long"}
#: what chooses experts, which the table of architectures mostly leaves out
_ROUTERS = ("mlp.gate.weight", "mlp.shared_expert_gate.weight")


class _Unread(ValueError):
    """What a whole file says that is not read: the sentence goes on with ``which is not read from GGUF``."""


class _Place(NamedTuple):
    """Where a tensor stands, and how the conversion is undone.

    Attributes
    ----------
    file
        That has it: one of several where a file was split.
    start, nbytes
        Its bytes in the file.
    kind
        The name of its type.
    heads
        Their number, if rows are re-ordered within each; else 0.
    added
        To each of its numbers.
    """

    file: str
    start: int
    nbytes: int
    kind: str
    heads: int = 0
    added: int = 0


class GgufFile:
    """One file and the others that it was split into, see `provlab.reading.files.container.Container`."""

    def __init__(self, source: "Files", file: str) -> None:
        """Read the header, and compare the places of all tensors with the file's length."""
        self._source, self._label = source, f"{source.label}: {file}"
        try:
            self._read_header(parts_of(file, source.names()))
        except ImportError as error:
            raise CheckpointError(f"{self._label} is read by the package gguf; pip install 'provlab[gguf]'") from error
        except _Unread as error:
            raise CheckpointError(
                f"{self._label} {error}, which is not read from GGUF; give the checkpoint that it was made from"
            ) from error
        except _DAMAGE as error:
            if kind := _UNKNOWN_KIND.search(str(error)):
                raise CheckpointError(
                    f"{self._label} stores weights in a type ({kind[1]}) that the package gguf does not know; "
                    "pip install -U gguf, or give the checkpoint that it was made from"
                ) from error
            raise damaged(source, file, error) from error

    def _read_header(self, files: list[str]) -> None:
        with self._source.path(files[0]).open("rb") as stream:
            if stream.read(8).startswith(b"GGUF\0\0"):  # the version, which is small
                raise CheckpointError(f"{self._label} is big-endian GGUF, which is not read; convert the model again")
        readers = {file: _opened(self._source.path(file)) for file in files}
        reader = readers[files[0]]
        kind = _value(reader, "general.architecture")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise CheckpointError(
                f"{self._label} holds a model of the architecture {kind!r}, which is not read from GGUF (read are "
                f"{', '.join(_TYPES)}); give the checkpoint that it was made from"
            )
        if (count := _number(reader, "split.count", int) or 1) != len(files):
            raise CheckpointError(f"{self._label} is one of {count} parts, and {len(files)} of them are here; copy all")
        tensors = {tensor.name: (file, tensor) for file, part in readers.items() for tensor in part.tensors}
        self.config = _config(reader, kind, {name: _shape(tensor) for name, (_, tensor) in tensors.items()})
        divisors = {which: tensors.pop(name)[1].data for name, which in _ROTATIONS.items() if name in tensors}
        if divisors:
            self.config["rope_scaling"] = _rotations(self.config, divisors)
        names = _names(kind, self.config)
        self.header: dict[str, TensorInfo] = {}
        self._places: dict[str, _Place] = {}
        end = dict.fromkeys(files, 0)
        for file, tensor in sorted(tensors.values(), key=lambda entry: entry[1].data_offset):
            if tensor.data_offset < end[file]:
                raise ValueError(f"{tensor.name[:80]} stands where another tensor does")
            end[file] = tensor.data_offset + tensor.n_bytes
            shape, ours = _shape(tensor), names.get(tensor.name, [tensor.name])
            if len(ours) > 1 and shape[0] != len(ours):
                raise ValueError(f"{tensor.name[:80]} is of {shape[0]} experts, not {len(ours)}")
            for n, name in enumerate(ours):  # one, or the experts
                size = tensor.n_bytes // len(ours)
                place = _Place(file, tensor.data_offset + n * size, size, tensor.tensor_type.name)
                self._add(name, kind, shape[len(ours) > 1 :], place)

    def _add(self, name: str, kind: str, shape: tuple[int, ...], place: _Place) -> None:
        """Enter a tensor by its name in transformers."""
        coded = place.kind
        info = TensorInfo(shape, _PLAIN.get(coded, "float32"), stored="" if coded in _PLAIN else coded)
        projection = name.split(".")[-2:][0]
        if kind in _REORDERED and projection in _HEADS:
            place = place._replace(heads=self.config[_HEADS[projection]])
            if info.shape[0] % (2 * place.heads):
                raise ValueError(f"{name[:80]} has {info.shape[0]} rows for {place.heads} heads")
        if kind.startswith(("gemma", "nemotron")) and name.endswith("norm.weight"):
            info, place = info._replace(dtype="float32"), place._replace(added=1)
        self.header[name], self._places[name] = info, place

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it, in the dtype of its header; codes are de-quantised."""
        info, place = self.header[name], self._places[name]
        lines = info.shape[0] if len(info.shape) > 1 else 1  # a vector is one line, as blocks run along it
        alone = rows is not None and lines > 1 and not place.heads  # no other rows are read
        first, last = (rows.start, rows.stop) if rows is not None and alone else (0, lines)
        if first == last:
            return np.empty(0, np.uint8)
        width = place.nbytes // lines
        try:
            content = self._source.read(place.file, place.start + first * width, (last - first) * width)
        except OSError as error:
            raise damaged(self._source, place.file, error) from error
        if content.nbytes < (last - first) * width:  # cut off since its header was read
            raise damaged(self._source, place.file, EOFError(f"{name} is not all there"))
        numbers = self._numbers(content.reshape(last - first, -1), place)
        numbers = numbers.reshape(last - first if lines > 1 else info.shape[0], -1)
        if place.heads:  # (heads, n, halves, columns) -> (heads, halves, n, columns): the halves were interleaved
            pairs = numbers.reshape(place.heads, -1, 2, numbers.shape[1])
            numbers = pairs.swapaxes(1, 2).reshape(numbers.shape)
        if rows is not None and not alone:
            numbers = numbers[rows.start : rows.stop]
        return np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)

    def _numbers(self, content: NDArray[np.uint8], place: _Place) -> NDArray[Any]:
        """Make numbers of lines of bytes: in the header's dtype, or unsigned of its size if nothing is undone."""
        if place.kind in _PLAIN and not place.added:
            return content.view(np.uint32 if place.kind == "F32" else np.uint16)
        if place.kind in _PLAIN:
            numbers = values(content.reshape(-1), _PLAIN[place.kind]).astype(np.float32)
        else:
            numbers = self._dequantised(content, place.kind)
        return numbers - np.float32(place.added)

    def _dequantised(self, content: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
        import gguf

        try:
            with np.errstate(all="ignore"):  # NaN and Inf are reported by the caller
                return np.asarray(gguf.dequantize(content, gguf.GGMLQuantizationType[kind]), np.float32)
        except (NotImplementedError, KeyError) as error:
            raise CheckpointError(
                f"{self._label} stores weights as {kind}, which the package gguf cannot read; "
                "give the checkpoint that it was made from"
            ) from error


def _opened(path: Path) -> "gguf.GGUFReader":
    """Open a file by the package, which reads no further than the file is long, and no endless header or array."""
    import gguf

    class Reader(gguf.GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> NDArray[Any]:
            end = int(offset) + int(count) * np.dtype(dtype).itemsize
            if end > len(self.data):
                raise EOFError(f"it ends {end - len(self.data)} bytes too early")
            if not hasattr(self, "data_offset") and end > _LONGEST:
                raise ValueError("its header is longer than any that stands before weights")
            return super()._get(offset, dtype, count, override_order)

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != gguf.GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            kind, n = self._get(orig_offs, np.uint32)[0], int(self._get(orig_offs + 4, np.uint64)[0])
            if n > _MOST:
                raise ValueError(f"it promises an array of {n} entries")
            end = orig_offs + 12
            if kind == gguf.GGUFValueType.STRING:  # tokens are skipped: the package takes half a minute for them
                for _ in range(n):
                    end += 8 + struct.unpack_from("<Q", self.data, end)[0]  # type: ignore[arg-type]
                return end - orig_offs, [], [], []
            numbers = self._get(end, self.gguf_scalar_to_np[gguf.GGUFValueType(kind)], n)
            return 12 + numbers.nbytes, [numbers], [0], [gguf.GGUFValueType.ARRAY, gguf.GGUFValueType(kind)]

    with np.errstate(over="raise"):  # places of tensors that are so large that they begin again at 0
        return Reader(path)


def _shape(tensor: "gguf.ReaderTensor") -> tuple[int, ...]:
    """Shape of a tensor; the file gives the last axis first."""
    return tuple(tensor.shape.tolist()[::-1])


def _names(kind: str, config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the name in transformers of each tensor, by llama.cpp's name; of the experts in a tensor, their names."""
    import gguf

    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    n_blocks, n_experts = config["num_hidden_layers"], config.get("num_experts", 0)
    architecture, theirs = described(config["architectures"][0]), gguf.get_tensor_name_map(arch, n_blocks)
    names: dict[str, list[str]] = {}
    for part, _, number, expert in instances(architecture, {"blocks": n_blocks, "experts": n_experts}):
        name = ("" if part.outside else architecture.prefix) + part.called(number, expert)
        of_all = re.sub(r"\.experts\.\d+\.", ".experts.", name)
        if usual := theirs.get_name(of_all, try_suffixes=(".weight", ".bias")):
            names.setdefault(usual, []).append(name)
    for name in (f"model.layers.{n}.{router}" for n in range(n_blocks if n_experts else 0) for router in _ROUTERS):
        names.setdefault(str(theirs.get_name(name, try_suffixes=(".weight",))), [name])
    return names


# The description of the model ----------------------------------------------------------------------------------------


def _value(reader: "gguf.GGUFReader", key: str) -> Any:
    field = reader.get_field(key)
    return field.contents() if field else None


def _number(reader: "gguf.GGUFReader", key: str, *kinds: type) -> Any:
    """Return a number that the file gives; None if it does not. One for each block must be the same for all."""
    value = _value(reader, key)
    if isinstance(value, list) and value:
        if any(entry != value[0] for entry in value):
            raise _Unread(f"has blocks that differ in {key}")
        value = value[0]
    if value is not None and (type(value) not in (kinds or (int, float)) or not 0 <= value < math.inf):
        raise ValueError(f"it gives no number for {key}")
    return value


def _config(reader: "gguf.GGUFReader", kind: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Write ``config.json`` from the file's description; transformers' defaults fill the rest."""
    experts = _number(reader, f"{kind}.expert_count", int)
    model_type = "mixtral" if kind == "llama" and experts else _TYPES[kind]
    if kind == "olmo2" and _number(reader, "olmo2.attention.sliding_window"):
        model_type = "olmo3"  # the same weights
    config: dict[str, Any] = {"architectures": [class_of(model_type)], "model_type": model_type, "pad_token_id": None}
    if experts:  # of which llama.cpp itself divides what Qwen 3's routers give by its sum
        config |= {"num_experts": experts, "num_local_experts": experts, "norm_topk_prob": kind == "qwen3moe"}
    for key, name in (_MUST | _MAY).items():
        value = _number(reader, f"{kind}.{key}", *[int] * (key in _MUST))
        if key in _MUST and not value:
            raise ValueError(f"it gives no {kind}.{key}")
        if value is not None:
            config[name] = value
    if epsilon := _number(reader, f"{kind}.attention.layer_norm_epsilon"):
        config |= dict.fromkeys(("layer_norm_eps", "norm_epsilon", "norm_eps"), epsilon)
    if scale := _number(reader, f"{kind}.logit_scale"):  # by which Granite divides, and Cohere multiplies
        config |= {"logits_scaling": scale, "logit_scale": scale}
    if drafts := _number(reader, f"{kind}.nextn_predict_layers", int):
        raise _Unread(f"counts {drafts} draft blocks among its own")
    if _value(reader, f"{kind}.rope.dimension_sections"):
        raise _Unread("turns its queries by the places of pictures")
    if config["num_hidden_layers"] > len(shapes):
        raise ValueError("it promises more blocks than it has tensors")
    if experts and shapes.get("blk.0.ffn_up_exps.weight", (0,))[0] != experts:
        raise ValueError(f"it has not the {experts} experts that it promises")
    if len(vocabulary := shapes.get("token_embd.weight", ())) != 2:
        raise ValueError("it has no token_embd.weight")
    heads = config["num_attention_heads"]
    config["num_key_value_heads"] = _number(reader, f"{kind}.attention.head_count_kv", int) or heads
    config["vocab_size"] = vocabulary[0]
    config["tie_word_embeddings"] = "output.weight" not in shapes
    head = _number(reader, f"{kind}.attention.key_length", int) or shapes.get("blk.0.attn_q.weight", (0,))[0] // heads
    if kind not in ("olmo2", "granite") and head:
        config["head_dim"] = head
    if part := _number(reader, f"{kind}.rope.dimension_count", int):
        config["partial_rotary_factor"] = part / (head or config["hidden_size"] // heads)
    config["attention_bias"] = config["use_bias"] = "blk.0.attn_q.bias" in shapes
    config["mlp_bias"] = "blk.0.ffn_up.bias" in shapes
    if kind in ("gemma2", "gemma3"):  # the largest of each divide by their width for a head; the file does not say
        largest = (kind, config["num_hidden_layers"]) in (("gemma2", 46), ("gemma3", 62))
        config["query_pre_attn_scalar"] = config["hidden_size"] // heads if largest else head
    scaling, factor = _value(reader, f"{kind}.rope.scaling.type"), _number(reader, f"{kind}.rope.scaling.factor")
    length = _number(reader, f"{kind}.rope.scaling.original_context_length")
    if factor and scaling in ("linear", "yarn"):
        config["rope_scaling"] = {"rope_type": scaling, "factor": float(factor)}
        if scaling == "yarn" and length:
            config["rope_scaling"]["original_max_position_embeddings"] = length
    if kind in _SLIDING:
        config["sliding_window"] = config.get("sliding_window") or None
        which = _value(reader, f"{kind}.attention.sliding_window_pattern")
        slides = which if isinstance(which, list) else [False] * config["num_hidden_layers"]
        if isinstance(which, list) or not config["sliding_window"]:
            config["layer_types"] = [f"{'sliding' if some else 'full'}_attention" for some in slides]
    if kind == "phi3":
        config["original_max_position_embeddings"] = length or config.get("max_position_embeddings")
    return config


def _rotations(config: dict[str, Any], divisors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Divide the frequencies of rotary positions as the file does (Llama 3.1, Phi-3), in the words of transformers."""
    pairs = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]) // 2
    for numbers in divisors.values():
        if numbers.shape != (pairs,) or numbers.dtype != np.float32:
            raise ValueError(f"its rotary positions have not {pairs} frequencies to divide")
        if not ((numbers > 0) & (numbers < np.inf)).all():
            raise ValueError("it divides frequencies by numbers that are not above 0")
    length = config.get("max_position_embeddings", 1)
    scaling: dict[str, Any] = {"rope_type": "longrope"}
    if "" in divisors:
        divisors = dict.fromkeys(("short", "long"), divisors[""])
        scaling |= {"factor": 1.0, "attention_factor": 1.0, "original_max_position_embeddings": length}
    else:
        scaling["original_max_position_embeddings"] = config.get("original_max_position_embeddings", length)
    return scaling | {f"{which}_factor": numbers.tolist() for which, numbers in divisors.items()}
