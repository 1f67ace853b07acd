"""The weights of a checkpoint: the files that hold them, and each tensor by its name, read on demand.

Bytes are read, and numpy makes float32 of them, whatever the file's dtype: statistics on weights need no torch. A
container (`provlab.models.formats.container`) reads one file; `provlab.models.formats.codes` puts weights together that
are stored as codes and scales, and callers see no difference.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, InvalidWeightsError
from provlab.models.counting import count_bytes
from provlab.models.formats.container import FORMATS, Container, TensorInfo, format_of, parts_of
from provlab.models.formats.dtypes import itemsize, values

if TYPE_CHECKING:
    import torch

    from provlab.models.formats.source import Files

CONFIG = "config.json"
#: prefixes that data parallelism, compilation, adapters and sharding put before names
WRAPPERS = ("module.", "_orig_mod.", "base_model.model.", "_fsdp_wrapped_module.")
#: names of the tensors without which codes mean nothing
SCALES = re.compile(r"[._](scales?|SCB|absmax|weight_scale|weight_scale_inv|scale_weight)$")
_AT_ONCE = 2**22  # bytes of a tensor that are searched for NaN and Inf at a time
#: how the names of files begin from which transformers makes a tokenizer
_OF_TOKENIZERS = (
    "tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "spiece", "sentencepiece", "spm", "bpe",
    "source.spm", "target.spm", "target_vocab", "tekken", "tiktoken", "qwen.tiktoken", "dict.txt", "emoji.json",
    "entity_vocab", "byte_maps", "normalizer", "prophetnet.tokenizer", "word_",
)  # fmt: skip
_TEXTS = (".json", ".txt", ".model", ".jinja", ".codes", ".spm", ".tiktoken", ".tokenizer")  # how they end


def wrapper(names: Sequence[str]) -> str:
    """Return the prefix that training wrappers put before the name of every tensor, such as ``module.``, or ``""``."""
    prefix = ""
    while more := next((w for w in WRAPPERS if names and all(name.startswith(prefix + w) for name in names)), ""):
        prefix += more
    return prefix


def read_json(files: "Files", name: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    CheckpointError
        The file is no JSON, or holds something other than an object.
    """
    try:
        content = json.loads(files.path(name).read_text(encoding="utf-8-sig"))  # some editors begin with a mark
    except OSError as error:
        raise CheckpointError(f"{files.label}: {name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        from provlab.models import diagnose

        why = diagnose.content(files.path(name)) or "copy it again"
        raise CheckpointError(f"{files.label}: {name} is no valid JSON; {why}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{files.label}: {name} must hold a JSON object; copy it again")
    return content


def side_files(files: "Files") -> list[str]:
    """Names of the small files beside the weights that transformers reads: config, tokenizer, generation settings."""
    others = {CONFIG, "generation_config.json", "chat_template.jinja", "chat_template.json"} & files.names()
    return sorted({*others, *tokenizer_files(files)})


def tokenizer_files(files: "Files") -> list[str]:
    """Names of the small files that a tokenizer is made from."""
    return sorted(name for name in files.names() if name.startswith(_OF_TOKENIZERS) and name.endswith(_TEXTS))


class WeightFiles:
    """All tensors of a checkpoint, by the names that transformers gives them.

    Parameters
    ----------
    config
        Content of ``config.json``; None where there is none, and the weights must hold one themselves.

    Attributes
    ----------
    files
        Names of the weight files, sorted.
    index
        Names of the tables of shards: one, or none.
    format
        Format of the files.
    config
        As given, or as the weights hold it.
    """

    def __init__(self, source: "Files", config: dict[str, Any] | None, *, allow_pickle: bool = False) -> None:
        self._source = source
        self._lock = Lock()
        self._opened: dict[str, Container] = {}
        names = source.names()
        kind = format_of(names)
        if not kind:
            missing = "weights (model.safetensors, or shards with their index)"
            raise _unreadable(source, CONFIG if config is None else missing)
        self.format = kind
        alone = kind.alone(names)
        if kind.pickled and not allow_pickle:
            raise CheckpointError(
                f"{source.label} has weights only as pickle ({kind.single}); convert them to safetensors, or "
                "pass --allow-pickle (allow_pickle=True) if you trust the source"
            )
        if len(alone) > 1:
            raise _unreadable(source, alone[1])
        # transformers, too, prefers the single file where both exist
        self._map: dict[str, str] | None = None if alone else _weight_map(source, kind.table)
        self.index = () if self._map is None else (kind.table,)
        self.files = tuple(parts_of(alone[0], names) if self._map is None else sorted({*self._map.values()}))
        for name in self.files:
            if name not in names:
                raise CheckpointError(f"{source.label}: {kind.table} needs {name}, which is missing; copy it again")
        if config is None and (config := self._container(self.files[0]).config) is None:
            raise _unreadable(source, CONFIG)
        self.config = config

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return tuple(sorted(self._map if self._map is not None else self.header(self.files[0])))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, as they are read."""
        return sum(self.info(name).nbytes for name in self.tensor_names)

    @property
    def plain(self) -> bool:
        """Whether transformers reads the files as they are read here: safetensors without codes."""
        return self.format == FORMATS[0]

    @property
    def stored(self) -> list[str]:
        """The kinds of codes as which weights are stored, sorted; empty where all are stored as they are."""
        return sorted({info.stored for container in self._opened.values() for info in container.header.values()} - {""})

    def header(self, file: str) -> Mapping[str, TensorInfo]:
        """Shapes and dtypes of the tensors in one file, compared with the index.

        Raises
        ------
        CheckpointError
            The file is truncated or corrupt, or it and the index disagree about its tensors.
        """
        return self._container(file).header

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
        return values(content, info.dtype).astype(np.float32, copy=False).reshape(info.shape)

    def tensor(self, name: str) -> "torch.Tensor":
        """One tensor for torch, in the file's dtype; the same otherwise."""
        import torch

        content, info = self._read(name)
        if not len(content):
            return torch.empty(info.shape, dtype=getattr(torch, info.dtype))
        return torch.from_numpy(content).view(getattr(torch, info.dtype)).reshape(info.shape)

    def _read(self, name: str, rows: range | None = None) -> tuple[NDArray[np.uint8], TensorInfo]:
        """Read the bytes of one tensor, or of some rows of it, checked to be finite."""
        content, info = self._content(name, rows), self.info(name)
        if rows is not None:
            info = info._replace(shape=(len(rows), *info.shape[1:]))
        count_bytes("tensors", info.nbytes)
        _check_finite(self._source.label, name, content, info.dtype)
        return content, info

    def _content(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Read the bytes of one tensor, or of some rows of it."""
        return self._container(self.file_of(name)).read(name, rows)

    def _container(self, file: str) -> Container:
        """Open a file, and compare its tensors with the index."""
        with self._lock:
            file = self.files[0] if self._map is None else file  # of a file that was split, the first knows all parts
            if file not in self._opened:
                container = self.format.opened(self._source, file)
                label, header = f"{self._source.label}: {file}", container.header
                if not header:
                    raise CheckpointError(f"{label} holds no tensor")
                if self._map is not None:
                    promised = {tensor for tensor, shard in self._map.items() if shard == file}
                    for tensors, fault in (
                        (promised - set(header), "lacks {}, which the index places"),
                        (set(header) - promised, "holds {}, which the index does not place"),
                    ):
                        if tensors:
                            raise CheckpointError(f"{label} {fault.format(min(tensors))} there; copy both again")
                self._opened[file] = container
            return self._opened[file]


def _weight_map(source: "Files", index: str) -> dict[str, str]:
    """Read the table tensor -> shard; raise CheckpointError if it is none, or points outside the folder."""
    table = read_json(source, index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{source.label}: {index} has no weight_map; copy it again")
    for tensor, shard in table.items():
        if not isinstance(shard, str) or not shard:
            raise CheckpointError(f"{source.label}: {index} gives no file name for {tensor}; copy it again")
        if shard != PurePosixPath(shard).name or "\\" in shard or shard == "..":
            raise CheckpointError(
                f"{source.label}: {index} points outside the folder, to {shard!r}; do not trust this checkpoint"
            )
    return table


def _unreadable(source: "Files", missing: str) -> CheckpointError:
    from provlab.models import diagnose  # only for a folder that is no checkpoint

    return CheckpointError(diagnose.unreadable(source, missing))


def _check_finite(label: str, name: str, content: NDArray[np.uint8], dtype: str) -> None:
    """Raise InvalidWeightsError if a tensor's bytes hold NaN or Inf."""
    if "float" not in dtype:
        return
    n_nan = n_inf = 0
    for start in range(0, len(content), _AT_ONCE):
        some = values(content[start : start + _AT_ONCE], dtype)
        if not np.isfinite(some).all():
            n_nan, n_inf = n_nan + int(np.isnan(some).sum()), n_inf + int(np.isinf(some).sum())
    if n_nan or n_inf:
        n = len(content) // itemsize(dtype)
        raise InvalidWeightsError(f"{label}: {name} holds {n_nan} NaN and {n_inf} Inf among {n} values; copy it again")
