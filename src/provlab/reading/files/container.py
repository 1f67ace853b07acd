"""A file of weights in any format: the tensors in it, and the bytes of each.

A further format is a module with one class, a `Container`, and a `Format`, which an entry point ``provlab.containers``
names (`provlab.plugins`).
"""

import math
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from provlab import plugins
from provlab.errors import CheckpointError, one_line
from provlab.reading import diagnose
from provlab.reading.files.dtypes import itemsize
from provlab.reading.files.pickle_names import PICKLES, pickles

if TYPE_CHECKING:
    from provlab.reading.files.source import Files


class TensorInfo(NamedTuple):
    """Shape and dtype (by torch's name) of a tensor as it is read, as the file's header gives them.

    `start` is where its bytes begin in the file, if they stand there as they are read; `stored` names the codes that it
    is made from, such as ``Q4_K``, and is empty where there are none.
    """

    shape: tuple[int, ...]
    dtype: str
    start: int = 0
    stored: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor as it is read."""
        return math.prod(self.shape) * itemsize(self.dtype)

    def some(self, rows: range) -> "TensorInfo":
        """Return the same of some of its rows, which lie together in the file."""
        before = self._replace(shape=(rows.start, *self.shape[1:])).nbytes
        return self._replace(shape=(len(rows), *self.shape[1:]), start=self.start + before)


class Container(Protocol):
    """One file of weights whose header has been read and checked; made from the place of the file, and its name.

    Attributes
    ----------
    header
        Every tensor by the name that transformers gives it.
    config
        The model's config, by the keys of ``config.json``, if the file holds one; None otherwise.
    """

    header: Mapping[str, TensorInfo]
    config: dict[str, Any] | None

    def __init__(self, source: "Files", file: str) -> None:
        """Read the header; raise CheckpointError, as by `damaged`, for a file that has none."""

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it alone, in the dtype of its header."""


class Format(NamedTuple):
    """A kind of file.

    Attributes
    ----------
    reader
        Module and class of its `Container`.
    single
        Pattern of the name, if one file holds all weights.
    table
        Name of the table of shards; empty where there is none.
    pickled
        It must be trusted, as it can hold code, and is fetched whole.
    ending
        The ending that all files of this kind have, with its dot; empty where `single` and `table` name them all.
    """

    reader: str
    single: str
    table: str = ""
    pickled: bool = False
    ending: str = ""

    def opened(self, source: "Files", file: str) -> Container:
        """Open one file."""
        module, _, reader = self.reader.rpartition(".")
        container: Container = getattr(import_module(module), reader)(source, file)
        return container

    def alone(self, names: Iterable[str]) -> list[str]:
        """Those among the files that can hold all weights of a checkpoint, or are the first part of such, sorted."""
        return sorted(name for name in names if fnmatchcase(_lower(name), self.single) and not _LATER_PART.search(name))


_TABLE = re.compile(r"\.(safetensors|bin)\.index(\.\w+)?\.json$")


def _lower(name: str) -> str:
    """Return a name with the ending of GGUF as it is usually written: some write it in capitals."""
    return name[:-5] + ".gguf" if name.lower().endswith(".gguf") else name


_PART = re.compile(r"-\d{5}(-of-\d{5}\.gguf)$")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


def parts_of(file: str, names: Iterable[str]) -> list[str]:
    """Return a file and, of a GGUF file that was split, the other parts among the files, sorted."""
    return sorted(name for name in names if _PART.sub(r"\1", name) == _PART.sub(r"\1", file))


_SAFETENSORS, _PICKLED = "provlab.reading.files.safetensors", "provlab.reading.files.pickled"
#: what the core reads, in the order in which it is looked for; `formats` has all
FORMATS = (
    Format(f"{_SAFETENSORS}.SafetensorsFile", "model.safetensors", "model.safetensors.index.json"),
    # as transformers saves it under variant="fp16"
    Format(f"{_SAFETENSORS}.SafetensorsFile", "model.fp16.safetensors", "model.safetensors.index.fp16.json"),
    Format(f"{_PICKLED}.PickledFile", "pytorch_model.bin", "pytorch_model.bin.index.json", pickled=True),
)


def endings() -> dict[str, str]:
    """The ending of files -> name of the entry point whose format they have; its module is not loaded for that."""
    return {f".{name}": name for name in sorted(plugins.named(plugins.CONTAINERS))}


@cache
def _format_of(name: str) -> Format | None:
    try:
        format_: Format = plugins.named(plugins.CONTAINERS)[name].load()
    except ImportError:  # what is not there reads nothing
        return None
    return format_


def formats(names: Iterable[str]) -> tuple[Format, ...]:
    """`FORMATS`, and after them those of entry points that files with these names may have."""
    files = [name.lower() for name in names]
    further = [name for ending, name in endings().items() if any(file.endswith(ending) for file in files)]
    return (*FORMATS, *(kind for kind in map(_format_of, further) if kind))


class WeightSet(NamedTuple):
    """All weights of one model: their format, and the file that holds them, or the table of their shards."""

    format: Format
    file: str


def sets_of(names: frozenset[str], chosen: str = "") -> list[WeightSet]:
    """Return every set of weights among these files, the one that is read first; the `chosen` file's alone if given.

    transformers, too, prefers the single file to the table of shards.
    """
    if chosen:
        return [_named(chosen)]
    sets = [
        WeightSet(kind, file) for kind in formats(names) for file in (*kind.alone(names), *{kind.table} & names) if file
    ]
    files = pickles(names)
    if not sets and len(files) == 1:
        return [_named(files[0])]
    return sets


def is_weights(name: str) -> bool:
    """Whether a file, by its name, holds weights or is the table of their shards."""
    return name.lower().endswith((*PICKLES, ".safetensors", *endings())) or _TABLE.search(name) is not None


def _named(file: str) -> WeightSet:
    """Return the set of weights that a file holds, or is the table of, under whatever name."""
    known = next((kind for kind in formats([file]) if file in (kind.single, kind.table)), None)
    if known:
        return WeightSet(known, file)
    if _TABLE.search(file):
        return WeightSet(FORMATS[2 if ".bin." in file else 0]._replace(single="", table=file), file)
    if file.endswith(".safetensors"):
        return WeightSet(FORMATS[0]._replace(single=file, table=""), file)
    if file.endswith(PICKLES):
        return WeightSet(FORMATS[2]._replace(single=file, table=""), file)
    further = [kind for kind in formats(endings()) if kind.ending]  # of a file that is named by its hash, any
    named = [kind for kind in further if file.lower().endswith(kind.ending)] or further
    if not named:
        raise CheckpointError(f"{file} is of a kind that nothing reads which is installed; install provlab again")
    return WeightSet(named[0], file)


def damaged(source: "Files", file: str, error: Exception) -> CheckpointError:
    """Return the error for a file that does not hold what its name promises."""
    label = f"{source.label}: {file}"
    # the parsers of some formats say of a closed file that it does not exist
    if not source.in_part(file) and (path := source.path(file)).exists() and not os.access(path, os.R_OK):
        return CheckpointError(f"this user may not open {path}; change its permissions, or name another")
    if not source.in_part(file) and (content := diagnose.content(source.path(file))):
        return CheckpointError(f"{label} holds no weights; {content}")
    return CheckpointError(f"{label} is truncated or corrupt ({one_line(error)}); copy it again")
