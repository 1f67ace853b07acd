"""Tensors read one at a time from safetensors (or, if allowed, pickled) weight files."""

import json
import math
import pickle
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open

from provlab.errors import CheckpointError, InvalidWeightsError
from provlab.models.counting import count_bytes

CONFIG = "config.json"
_SAFETENSORS, _SAFETENSORS_INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLE, _PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class TensorInfo(NamedTuple):
    """Shape and dtype of a tensor, as the file's header gives them."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Files(Protocol):
    """Where a checkpoint's files come from: a local folder or the hub."""

    label: str
    commit: str | None

    def names(self) -> frozenset[str]:
        """Names of all files."""

    def path(self, name: str) -> Path:
        """Path of a file here, fetched first if need be."""

    def with_header(self, name: str) -> AbstractContextManager[Path]:
        """Yield the path of a safetensors file whose header, at least, is here."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def here(self, name: str) -> bool:
        """Whether a file is on this machine already."""

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of a file."""

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Folder with all files that loading the model needs, these weight files among them."""


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
        raise CheckpointError(f"{files.label}: {name} is no valid JSON; copy it again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{files.label}: {name} must hold a JSON object; copy it again")
    return content


def side_files(files: Files) -> list[str]:
    """Names of the small files beside the weights: config, tokenizer, generation settings."""
    kept = (".json", ".txt", ".model", ".jinja")
    return sorted(name for name in files.names() if name.endswith(kept) and not name.endswith(".index.json"))


class WeightFiles:
    """All tensors of a checkpoint.

    Attributes
    ----------
    files
        Names of the weight files, sorted.
    pickled
        They are pickles instead of safetensors.
    """

    def __init__(self, source: Files, *, allow_pickle: bool = False) -> None:
        self._source = source
        self._lock = Lock()
        self._headers: dict[str, dict[str, TensorInfo]] = {}
        self._pickles: dict[str, dict[str, torch.Tensor]] = {}
        names = source.names()
        single, index = _SAFETENSORS, _SAFETENSORS_INDEX
        self.pickled = not {single, index} & names
        if self.pickled:
            single, index = _PICKLE, _PICKLE_INDEX
            if not {single, index} & names:
                raise CheckpointError(_no_weights(source))
            if not allow_pickle:
                raise CheckpointError(
                    f"{source.label} has weights only as pickle ({_PICKLE}); convert them to safetensors, or "
                    "pass --allow-pickle (allow_pickle=True) if you trust the source"
                )
        # transformers, too, prefers the single file where both exist
        self._map: dict[str, str] | None = None if single in names else self._read_index(index)
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
        infos = [info for file in self.files for info in self.header(file).values()]
        return sum(math.prod(info.shape) * info.dtype.itemsize for info in infos)

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

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor in the file's dtype, checked to be finite.

        Raises
        ------
        InvalidWeightsError
            It holds NaN or Inf.
        """
        file = self.file_of(name)
        if self.pickled:
            self.header(file)
            tensor = self._pickles[file][name]
        else:
            # first the whole file, then its header: what comes from the hub is verified before it is read
            path = self._source.path(file)
            self.header(file)
            try:
                with safe_open(path, framework="pt") as stream:
                    tensor = stream.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise CheckpointError(self._damaged(file, error)) from error
        count_bytes("tensors", tensor.nbytes)
        _check_finite(self._source.label, name, tensor)
        return tensor

    def _safetensors_header(self, file: str) -> dict[str, TensorInfo]:
        """Read a header with the format's own parser, which checks offsets against the file's length."""
        header = {}
        try:
            with self._source.with_header(file) as path, safe_open(path, framework="pt") as stream:
                for name in stream.keys():  # noqa: SIM118 - not a mapping
                    view = stream.get_slice(name)
                    dtype = _DTYPES.get(view.get_dtype())
                    if dtype is None:
                        raise CheckpointError(
                            f"{self._source.label}: {name} has the unsupported dtype {view.get_dtype()}"
                        )
                    header[name] = TensorInfo(tuple(view.get_shape()), dtype)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(self._damaged(file, error)) from error
        return header

    def _pickle_header(self, file: str) -> dict[str, TensorInfo]:
        """Unpickle tensors and nothing else, mapped instead of read where the format allows it."""
        path = self._source.path(file)
        label = self._source.label
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what cannot be read is refused below
                try:
                    content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
                except RuntimeError:  # the old format without a zip archive cannot be mapped
                    content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{label}: {file} holds more than weights and is not loaded; convert it to safetensors"
            ) from error
        except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
            raise CheckpointError(self._damaged(file, error)) from error
        if not isinstance(content, dict) or not all(
            isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in content.items()
        ):
            raise CheckpointError(f"{label}: {file} is no table of tensors by name")
        self._pickles[file] = content
        return {name: TensorInfo(tuple(value.shape), value.dtype) for name, value in content.items()}

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
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"{self._source.label}: {file} is truncated or corrupt ({reason[:120]}); copy it again"


def _no_weights(source: Files) -> str:
    """Say what was looked for, and what a likely cause is."""
    if shards := sorted(name for name in source.names() if name.endswith(".safetensors")):
        return f"{source.label} has {shards[0]} but no {_SAFETENSORS_INDEX}; copy the index too"
    return f"{source.label} has no weights ({_SAFETENSORS}, or shards with their index); copy them there"


def _check_finite(label: str, name: str, tensor: torch.Tensor) -> None:
    if not tensor.is_floating_point():
        return
    values = tensor.float() if tensor.dtype.itemsize == 1 else tensor
    if bool(torch.isfinite(values).all()):
        return
    n_nan, n_inf = int(torch.isnan(values).sum()), int(torch.isinf(values).sum())
    raise InvalidWeightsError(
        f"{label}: {name} holds {n_nan} NaN and {n_inf} Inf among {tensor.numel()} values; copy it again"
    )
