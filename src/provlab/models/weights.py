"""Tensors read one at a time from safetensors (or, if allowed, pickled) weight files.

What is read is bytes, and numpy makes float32 of them, whatever the file's dtype: statistics on weights need no torch.
numpy knows neither bfloat16, which is the upper half of a float32, nor the float8 types. torch is imported for who asks
for torch tensors, and for pickles, which only torch reads.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from provlab.errors import CheckpointError, InvalidWeightsError, one_line
from provlab.models.counting import count_bytes

if TYPE_CHECKING:
    import torch

CONFIG = "config.json"
_SAFETENSORS, _SAFETENSORS_INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLE, _PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"

# the format's name of a dtype -> torch's, which is numpy's too where numpy has it
_FORMAT = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "U32": "uint32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
#: what data parallelism, compilation, adapters and sharding put before names
WRAPPERS = ("module.", "_orig_mod.", "base_model.model.", "_fsdp_wrapped_module.")
DTYPES = tuple(_FORMAT.values())
_AT_ONCE = 2**22  # bytes of a tensor that are looked through for NaN and Inf at a time


def itemsize(dtype: str) -> int:
    """Bytes of one number of a dtype by torch's name: 2 for ``bfloat16``."""
    bits = re.search(r"[0-9]+", dtype)
    return int(bits[0]) // 8 if bits else 1  # bool


class TensorInfo(NamedTuple):
    """Shape and dtype (by torch's name) of a tensor, as the file's header gives them, and where its bytes begin."""

    shape: tuple[int, ...]
    dtype: str
    start: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * itemsize(self.dtype)

    def some(self, rows: range) -> "TensorInfo":
        """Return the same of some of its rows, which lie together in the file."""
        before = self._replace(shape=(rows.start, *self.shape[1:])).nbytes
        return self._replace(shape=(len(rows), *self.shape[1:]), start=self.start + before)


class Files(Protocol):
    """Where a checkpoint's files come from: a local folder or the hub."""

    label: str
    commit: str | None

    def names(self) -> frozenset[str]:
        """Names of all files."""

    def path(self, name: str) -> Path:
        """Path of a file here, fetched first if need be."""

    def read(self, name: str, start: int, nbytes: int) -> NDArray[np.uint8]:
        """Some bytes of a file, fetched first if need be: fewer if it ends before."""

    def with_header(self, name: str) -> AbstractContextManager[Path]:
        """Yield the path of a safetensors file whose header, at least, is here."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def here(self, name: str) -> bool:
        """Whether a file is on this machine already."""

    def in_part(self, name: str) -> bool:
        """Whether `read` takes no more of a file than it is asked for, which cannot be verified."""

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of a file."""

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Folder with all files that loading the model needs, these weight files among them."""


def wrapper(names: Sequence[str]) -> str:
    """Return what training wrappers put before the name of every tensor, such as ``module.``; mostly nothing."""
    found = ""
    while begun := next((w for w in WRAPPERS if names and all(name.startswith(found + w) for name in names)), ""):
        found += begun
    return found


def read_json(files: Files, name: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    CheckpointError
        The file is no JSON, or holds something else than an object.
    """
    try:
        content = json.loads(files.path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{files.label}: {name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        from provlab.models import diagnose  # of what is no checkpoint; here and below, only then

        why = diagnose.content(files.path(name)) or "copy it again"
        raise CheckpointError(f"{files.label}: {name} is no valid JSON; {why}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{files.label}: {name} must hold a JSON object; copy it again")
    return content


#: how the files begin from which transformers makes a tokenizer
_OF_TOKENIZERS = ("tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "spiece", "sentencepiece")


def side_files(files: Files) -> list[str]:
    """Names of the small files beside the weights: config, tokenizer, generation settings."""
    kept = (".json", ".txt", ".model", ".jinja")
    return sorted(name for name in files.names() if name.endswith(kept) and not name.endswith(".index.json"))


def tokenizer_files(files: Files) -> list[str]:
    """Names of those among them that a tokenizer is made from."""
    return [name for name in side_files(files) if name.startswith(_OF_TOKENIZERS)]


class WeightFiles:
    """All tensors of a checkpoint.

    Attributes
    ----------
    files
        Names of the weight files, sorted.
    index
        Names of the tables of shards: one, or none.
    pickled
        They are pickles instead of safetensors.
    """

    def __init__(self, source: Files, *, allow_pickle: bool = False) -> None:
        self._source = source
        self._lock = Lock()
        self._headers: dict[str, dict[str, TensorInfo]] = {}
        self._pickles: dict[str, dict[str, tuple[NDArray[np.uint8], str, tuple[int, ...]]]] = {}
        names = source.names()
        single, index = _SAFETENSORS, _SAFETENSORS_INDEX
        self.pickled = not {single, index} & names
        if self.pickled:
            single, index = _PICKLE, _PICKLE_INDEX
            if not {single, index} & names:
                from provlab.models import diagnose

                missing = f"weights ({_SAFETENSORS}, or shards with their index)"
                raise CheckpointError(diagnose.unreadable(source, missing))
            if not allow_pickle:
                raise CheckpointError(
                    f"{source.label} has weights only as pickle ({_PICKLE}); convert them to safetensors, or "
                    "pass --allow-pickle (allow_pickle=True) if you trust the source"
                )
        # transformers, too, prefers the single file where both exist
        self._map: dict[str, str] | None = None if single in names else self._read_index(index)
        self.index = () if self._map is None else (index,)
        self.files = tuple(sorted({single} if self._map is None else set(self._map.values())))
        for name in self.files:
            if name not in names:
                raise CheckpointError(f"{source.label}: {index} needs {name}, which is missing; copy it again")

    def _read_index(self, index: str) -> dict[str, str]:
        """Read and check the table tensor -> shard."""
        weight_map = read_json(self._source, index).get("weight_map")
        label = self._source.label
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{label}: {index} has no weight_map; copy it again")
        for tensor, shard in weight_map.items():
            if not isinstance(shard, str) or not shard:
                raise CheckpointError(f"{label}: {index} gives no file name for {tensor}; copy it again")
            if shard != PurePosixPath(shard).name or "\\" in shard or shard == "..":
                raise CheckpointError(
                    f"{label}: {index} points outside the folder, to {shard!r}; do not trust this checkpoint"
                )
        return weight_map

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return tuple(sorted(self._map if self._map is not None else self.header(self.files[0])))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(info.nbytes for file in self.files for info in self.header(file).values())

    def header(self, file: str) -> dict[str, TensorInfo]:
        """Shapes and dtypes of the tensors in one file, held against the index.

        Raises
        ------
        CheckpointError
            The file is truncated or corrupt, or it and the index disagree about its tensors.
        """
        with self._lock:
            if file not in self._headers:
                read = self._pickle_header if self.pickled else self._safetensors_header
                header = read(file)
                self._check_covered(file, header)
                self._headers[file] = header
            return self._headers[file]

    def info(self, name: str) -> TensorInfo:
        """Shape and dtype of one tensor."""
        return self.header(self.file_of(name))[name]

    def file_of(self, name: str) -> str:
        """Return the file that holds a tensor."""
        if self._map is None:
            if name in self.header(self.files[0]):
                return self.files[0]
        elif name in self._map:
            return self._map[name]
        raise CheckpointError(f"{self._source.label} has no tensor {name!r}")

    def array(self, name: str, rows: range | None = None) -> NDArray[np.float32]:
        """One tensor, or some rows of it, as float32, checked to be finite; nothing else of it is read.

        Raises
        ------
        InvalidWeightsError
            It holds NaN or Inf.
        """
        content, info = self._read(name, rows)
        return _values(content, info.dtype).astype(np.float32, copy=False).reshape(info.shape)

    def tensor(self, name: str) -> "torch.Tensor":
        """One tensor for torch, in the file's dtype; the same otherwise."""
        import torch

        content, info = self._read(name)
        if not len(content):
            return torch.empty(info.shape, dtype=getattr(torch, info.dtype))
        return torch.from_numpy(content).view(getattr(torch, info.dtype)).reshape(info.shape)

    def _read(self, name: str, rows: range | None = None) -> tuple[NDArray[np.uint8], TensorInfo]:
        """Read the bytes of one tensor, or of some rows of it, checked to be finite."""
        file = self.file_of(name)
        info = self.header(file)[name]
        if rows is not None:
            info = info.some(rows)
        if self.pickled:
            content = self._pickles[file][name][0][info.start : info.start + info.nbytes]
        else:
            try:
                content = self._source.read(file, info.start, info.nbytes)
            except OSError as error:
                raise CheckpointError(self._damaged(file, error)) from error
            if content.nbytes < info.nbytes:  # cut off since its header was read
                raise CheckpointError(self._damaged(file, EOFError(f"{name} is not all there")))
        count_bytes("tensors", info.nbytes)
        _check_finite(self._source.label, name, content, info.dtype)
        return content, info

    def _safetensors_header(self, file: str) -> dict[str, TensorInfo]:
        """Read a header with the format's own parser, which checks offsets against the file's length.

        It also refuses files with holes: tensors stand one behind the other, from the header to the end of the file.
        """
        header = {}
        try:
            with self._source.with_header(file) as path, safe_open(path, framework="numpy") as stream:
                with path.open("rb") as content:
                    start = 8 + int.from_bytes(content.read(8), "little")
                for name in stream.offset_keys():
                    view = stream.get_slice(name)
                    dtype = _FORMAT.get(view.get_dtype())
                    if dtype is None:
                        raise CheckpointError(
                            f"{self._source.label}: {name} has the unsupported dtype {view.get_dtype()}"
                        )
                    header[name] = TensorInfo(tuple(view.get_shape()), dtype, start)
                    start += header[name].nbytes
        except (SafetensorError, OSError) as error:
            raise CheckpointError(self._damaged(file, error)) from error
        return header

    def _pickle_header(self, file: str) -> dict[str, TensorInfo]:
        from provlab.models import pickled  # imports torch

        try:
            self._pickles[file] = pickled.load(self._source.path(file), f"{self._source.label}: {file}")
        except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
            raise CheckpointError(self._damaged(file, error)) from error
        header = {}
        for name, (_, dtype, shape) in self._pickles[file].items():
            if dtype not in DTYPES:
                raise CheckpointError(f"{self._source.label}: {name} has the unsupported dtype {dtype}")
            header[name] = TensorInfo(shape, dtype)
        return header

    def _check_covered(self, file: str, header: dict[str, TensorInfo]) -> None:
        """Hold a file's tensors against the index."""
        if self._map is None:
            if not header:
                raise CheckpointError(f"{self._source.label}: {file} holds no tensor")
            return
        promised = {tensor for tensor, shard in self._map.items() if shard == file}
        if absent := promised - set(header):
            raise CheckpointError(
                f"{self._source.label}: {file} lacks {min(absent)}, which the index places there; copy both again"
            )
        if extra := set(header) - promised:
            raise CheckpointError(
                f"{self._source.label}: {file} holds {min(extra)}, which the index does not place there; "
                "copy both again"
            )

    def _damaged(self, file: str, error: Exception) -> str:
        label = f"{self._source.label}: {file}"
        from provlab.models import diagnose

        if told := diagnose.content(self._source.path(file)):
            return f"{label} holds no weights; {told}"
        return f"{label} is truncated or corrupt ({one_line(error)}); copy it again"


def _values(content: NDArray[np.uint8], dtype: str) -> NDArray[Any]:
    """Numbers of a dtype from their bytes, exact: in that dtype where numpy has it, in float32 where it has not."""
    if dtype == "bfloat16":  # the upper half of a float32
        wide = content.view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    if dtype == "float8_e5m2":  # the upper half of a float16
        return (content.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    if dtype == "float8_e4m3fn":
        return _E4M3[content]
    return content.view(dtype)


def _all_e4m3() -> NDArray[np.float32]:
    """What the 256 bytes of float8_e4m3fn stand for: a sign, four bits of exponent, three of fraction; no Inf."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    size = np.ldexp(np.where(exponent > 0, 8 + fraction, fraction), np.maximum(exponent, 1) - 10)
    size[code & 127 == 127] = np.nan
    return np.where(code < 128, size, -size).astype(np.float32)


_E4M3 = _all_e4m3()


def _check_finite(label: str, name: str, content: NDArray[np.uint8], dtype: str) -> None:
    if "float" not in dtype:
        return
    n_nan = n_inf = 0
    for start in range(0, len(content), _AT_ONCE):
        values = _values(content[start : start + _AT_ONCE], dtype)
        if not np.isfinite(values).all():
            n_nan, n_inf = n_nan + int(np.isnan(values).sum()), n_inf + int(np.isinf(values).sum())
    if n_nan or n_inf:
        n = len(content) // itemsize(dtype)
        raise InvalidWeightsError(f"{label}: {name} holds {n_nan} NaN and {n_inf} Inf among {n} values; copy it again")
