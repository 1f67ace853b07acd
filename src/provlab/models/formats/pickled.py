"""Weights that torch pickled, as zip archives or in its older format: tensors are found in them, and nothing is run.

A pickle is followed without doing what it says (`opcodes`), so that no class in it is imported and no function called;
of what it asks for, tensors alone are understood. Each is read in place, without the others, as from safetensors.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.models.formats.container import TensorInfo, damaged
from provlab.models.formats.dtypes import DTYPES, itemsize
from provlab.models.formats.opcodes import Call, Name, Reference, Said, followed
from provlab.models.formats.source import Files

_REBUILT = {f"torch._utils._rebuild_tensor{version}" for version in ("", "_v2", "_v3")}
_PARAMETERS = {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}
_SUBCLASSED = "torch._tensor._rebuild_from_type_v2"
_STORAGES = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
_UNTYPED = {"torch.UntypedStorage", "torch.storage.UntypedStorage"}
#: under which of its keys a training checkpoint has the weights: fairseq, Lightning, DeepSpeed and others
_INNER = ("model", "state_dict", "model_state_dict", "module")
_ZIP, _PICKLE = b"PK", b"\x80"  # how a file of either layout begins
_MAGIC = 0x1950A86A20F9469CFC6C
_LONGEST = 2**26  # bytes of a pickle without its tensors
_LARGEST = 2**48  # of any size or place in a file
_ENDS = 2**16  # bytes of an archive's beginning and end, in which its pickle and its directory mostly are
_STARTS = (2**18, 2**22, _LONGEST)  # bytes of an older file in which its pickles may end
_ALIGNED = 64  # torch lets every tensor of an archive begin at a multiple of this
# what zipfile, zlib and we ourselves say of a damaged file
_DAMAGE = (
    *(ValueError, IndexError, KeyError, TypeError, OSError, EOFError, NotImplementedError, RuntimeError),
    *(OverflowError, MemoryError, zipfile.BadZipFile, zlib.error),
)

Read = Callable[[int, int], bytes]


class _Unread(Exception):
    """What a whole file holds that is not read; the text says what, and the way out."""


class _Storage(NamedTuple):
    """Some bytes of the file that tensors lie in."""

    start: int
    nbytes: int


class _Place(NamedTuple):
    """A tensor in its storage: where it begins in the file, and the steps of its axes, in numbers."""

    start: int
    strides: tuple[int, ...]


class PickledFile:
    """One file, see `provlab.models.formats.container.Container`."""

    config, beside = None, ()

    def __init__(self, source: Files, file: str) -> None:
        """Find the tensors, without reading them."""
        self._source, self._file = source, file
        self.header: dict[str, TensorInfo] = {}
        self._places: dict[str, _Place] = {}
        label = f"{source.label}: {file}"
        begins = b""
        try:
            size = source.size(file)

            def read(start: int, nbytes: int) -> bytes:
                content = source.read(file, start, min(nbytes, size - start))
                return content.tobytes()

            begins = read(0, 2)
            said, storages = _archive(source, file, read, size) if begins == _ZIP else _old(read, size, label)
            for name, call in _table(said.content, label).items():
                self.header[name], self._places[name] = _tensor(name, call, storages)
        except _Unread as error:
            raise CheckpointError(f"{label} is not read: {error}") from error
        except _DAMAGE as error:
            if begins != _ZIP and begins[:1] != _PICKLE:  # something else altogether
                raise damaged(source, file, error) from error
            raise CheckpointError(f"{label} is truncated or corrupt ({one_line(error)}); copy it again") from error

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it."""
        info, (start, strides) = self.header[name], self._places[name]
        size, shape = itemsize(info.dtype), info.shape
        if rows is not None:
            shape, start = (len(rows), *shape[1:]), start + rows.start * strides[0] * size
        reach = _reach(shape, strides) * size
        try:
            content = self._source.read(self._file, start, reach)
        except OSError as error:
            raise damaged(self._source, self._file, error) from error
        if content.nbytes < reach:  # cut off since its header was read
            raise damaged(self._source, self._file, EOFError(f"{name} is not all there"))
        if reach == math.prod(shape) * size and _is_plain(shape, strides):
            return content
        steps = [step * size for step in strides]
        laid = np.lib.stride_tricks.as_strided(content.view(f"V{size}"), shape, steps)
        return np.ascontiguousarray(laid).reshape(-1).view(np.uint8)


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many numbers lie between the first of a tensor and its last, with both."""
    return sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1 if math.prod(shape) else 0


def _is_plain(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a tensor's numbers lie one behind the other."""
    expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return all(n <= 1 or step == plain for n, step, plain in zip(shape, strides, expected, strict=True))


def _table(content: Any, label: str) -> dict[str, Call]:
    """Return the tensors by name, from as far within as training checkpoints have them."""
    for _ in range(len(_INNER) + 1):
        table = _as_dict(content)
        if table is None:
            break
        found = {name: call for name, value in table.items() if (call := _rebuilding(value))}
        if found or not (inner := [table[key] for key in _INNER if _as_dict(table.get(key)) is not None]):
            # a number or a text beside the tensors is no weight
            for name in table.keys() - found:
                if isinstance(table[name], Call | Name):
                    raise _more(label, table[name], f"{name} is ")
            if not all(name.isprintable() for name in found):
                raise ValueError("the name of a tensor cannot be printed")
            if found:
                return found
            break
        content = inner[0]
    if isinstance(content, Call | Name):
        raise _more(label, content)
    raise CheckpointError(f"{label} is no table of tensors by name; save the model's state_dict() alone")


def _more(label: str, value: Any, name: str = "") -> CheckpointError:
    while isinstance(value, Call):
        value = value.of
    what = f"{name[:100]}{value.dotted[:100] if isinstance(value, Name) else 'code'}"
    return CheckpointError(
        f"{label} holds more than weights ({one_line(what)}) and is not loaded; convert it to safetensors"
    )


def _as_dict(value: Any) -> dict[str, Any] | None:
    """Return a dict as it is, and an ordered one that was made from pairs; None for anything else."""
    if isinstance(value, Call) and value.of in (Name("collections.OrderedDict"), Name("builtins.dict")):
        pairs = value.given[0] if isinstance(value.given, tuple) and value.given else []
        two = [pair for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]
        return {key: item for key, item in two if isinstance(key, str)}
    return value if isinstance(value, dict) else None


def _rebuilding(value: Any) -> Call | None:
    """Return the call that makes a tensor, out of those that make a parameter or a subclass of it; or None."""
    for _ in range(4):
        if not isinstance(value, Call) or not isinstance(value.of, Name) or not isinstance(value.given, tuple):
            return None
        if value.of.dotted in _REBUILT:
            return value
        if value.of.dotted in _PARAMETERS:
            value = value.given[0]
        elif value.of.dotted == _SUBCLASSED:
            value = Call(value.given[0], value.given[2])
    return None


def _tensor(name: str, call: Call, storages: Mapping[str, _Storage]) -> tuple[TensorInfo, _Place]:
    """Read what a call would make: a shape, laid over the numbers of a storage."""
    storage, offset, shape, strides = call.given[:4]
    key, dtype, _, begin = _stored(storage)
    if dtype is None:
        named = call.given[6] if len(call.given) > 6 else None
        dtype = named.dotted.removeprefix("torch.") if isinstance(named, Name) else ""
    if dtype not in DTYPES:
        raise _Unread(f"{one_line(name)[:100]} has the unsupported dtype {dtype[:40]}")
    sizes = (offset, *shape, *strides)
    if len(shape) != len(strides) or len(shape) > 32 or not all(_is_size(n) for n in sizes):
        raise ValueError(f"{one_line(name)[:100]} has no shape")
    size = itemsize(dtype)
    n = math.prod(shape)
    there = storages[key].nbytes // size - begin
    if offset + _reach(shape, strides) > there or n > there:  # what is repeated in memory could be of any size
        raise ValueError(f"{one_line(name)[:100]} is larger than what is stored of it")
    info = TensorInfo(tuple(shape), dtype, storages[key].start + (begin + offset) * size)
    return info, _Place(info.start, tuple(strides))


def _stored(reference: Any) -> tuple[str, str | None, int, int]:
    """Key, dtype, length and offset, in numbers, of the storage that a tensor refers to; one without dtype is bytes."""
    if not isinstance(reference, Reference) or not isinstance(reference.to, tuple) or len(reference.to) < 5:
        raise ValueError("a tensor is stored nowhere")
    what, kind, key, _, length, *view = reference.to
    offset = view[0][1] if view and view[0] is not None else 0
    if what != "storage" or not isinstance(kind, Name) or not isinstance(key, str):
        raise ValueError("a tensor is stored nowhere")
    if not _is_size(length) or not _is_size(offset):
        raise ValueError("a tensor is stored nowhere")
    if kind.dotted in _UNTYPED:
        return key, None, length, offset
    kind_of = kind.dotted.rpartition(".")[2].removesuffix("Storage")
    return key, _STORAGES.get(kind_of, kind_of), length, offset


def _is_size(n: Any) -> bool:
    return type(n) is int and 0 <= n < _LARGEST


def _archive(source: Files, file: str, read: Read, size: int) -> tuple[Said, dict[str, _Storage]]:
    """Follow the pickle of a zip archive, and find the storages that lie beside it.

    A tensor stands behind a header of its own, of a length that the archive's directory does not know. It is read from
    a file that is here; of one that is not, it follows from how torch lays tensors out, and no request is spent on it.
    """
    window = _Window(read, size)
    with zipfile.ZipFile(window) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        by_name = {entry.filename: entry for entry in entries}
        pickles = [name for name in by_name if name.rpartition("/")[2] == "data.pkl" and name.count("/") <= 1]
        if len(by_name) < len(entries) or len(pickles) != 1:
            raise ValueError("it is no archive of torch's")
        (name,) = pickles
        within = name.removesuffix("data.pkl")
        if f"{within}constants.pkl" in by_name:
            raise _Unread("it is TorchScript, a program; save the model's state_dict() instead")
        if by_name[name].file_size > _LONGEST:
            raise ValueError("its pickle is longer than any that holds weights")
        said = followed(io.BytesIO(archive.read(name)))
        order = by_name.get(f"{within}byteorder")
        if order and order.file_size < 10 and archive.read(order) != b"little":
            raise _Unread("its numbers are big-endian; save it anew on a machine of today")
        ends = [entry.header_offset for entry in entries[1:]] + [archive.start_dir]
        storages = {}
        for entry, end in zip(entries, ends, strict=True):
            if entry.filename.startswith(f"{within}data/"):
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise _Unread("its tensors are compressed; save it anew with torch.save")
                start = _aligned(entry, end) if source.in_part(file) else None
                start = start or _behind_header(entry, window)
                if start + entry.file_size > end:
                    raise ValueError(f"{one_line(entry.filename)} is not all there")
                storages[entry.filename.removeprefix(f"{within}data/")] = _Storage(start, entry.file_size)
    return said, storages


def _behind_header(entry: zipfile.ZipInfo, window: "_Window") -> int:
    """Where an entry's content begins, by its own header."""
    window.seek(entry.header_offset)
    header = window.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise ValueError(f"{one_line(entry.filename)} has no header")
    return entry.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")


def _aligned(entry: zipfile.ZipInfo, end: int) -> int | None:
    """Where an entry's content begins that ends before `end`, if torch wrote it; None if that is in doubt."""
    first = entry.header_offset + 30 + len(entry.filename.encode())
    for behind in (16, 24):  # a checksum and two lengths, which are longer in large files
        start = end - behind - entry.file_size
        if start % _ALIGNED == 0 and first <= start < first + 2 * _ALIGNED:
            return start
    return None


class _Window(io.RawIOBase):
    """A file as `zipfile` reads one, whose beginning and end are read at once."""

    def __init__(self, read: Read, size: int) -> None:
        super().__init__()
        self._read, self._size, self._at = read, size, 0
        starts = dict.fromkeys((0, max(0, size - _ENDS)))
        self._known = {start: read(start, _ENDS) for start in starts}

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        if self._at < 0:
            raise ValueError("it points before its beginning")
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, n: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        n = left if n is None or n < 0 else min(n, left)
        if n > _LONGEST:
            raise ValueError("its directory is longer than any that holds weights")
        for start, content in self._known.items():
            if start <= self._at and self._at + n <= start + len(content):
                found = content[self._at - start : self._at - start + n]
                break
        else:
            found = self._read(self._at, n)
        self._at += len(found)
        return found


def _old(read: Read, size: int, label: str) -> tuple[Said, dict[str, _Storage]]:
    """Follow the pickles of a file from before the zip archives, and find the storages behind them.

    It is a magic number, a protocol, properties of the machine, the table, and the order of the storages, all pickled;
    then for each storage how many numbers it has, in 8 bytes, and the numbers.
    """
    for length in _STARTS:
        stream = io.BytesIO(read(0, length))
        try:
            said = _pickles(stream, label)
            break
        except (ValueError, IndexError, KeyError, TypeError):
            if length >= min(size, _LONGEST):
                raise
    *_, system, content, keys = said
    if isinstance(system.content, dict) and system.content.get("little_endian") is False:
        raise _Unread("its numbers are big-endian; save it anew on a machine of today")
    lengths: dict[str, int] = {}
    of_tensors = (one for one in content.references if isinstance(one.to, tuple) and one.to[:1] == ("storage",))
    for key, dtype, n, _ in map(_stored, of_tensors):
        if dtype is not None and dtype not in DTYPES:
            raise _Unread(f"it holds numbers of the unsupported dtype {dtype[:40]}")
        lengths.setdefault(key, n * itemsize(dtype or "uint8"))
    storages, at = {}, stream.tell()
    if not isinstance(keys.content, list) or not all(isinstance(key, str) for key in keys.content):
        raise ValueError("it does not say in which order its numbers stand")
    for key in keys.content:
        storages[key] = _Storage(at + 8, lengths[key])
        at += 8 + lengths[key]
    if at > size:
        raise EOFError(f"{at - size} bytes are missing")
    return content, storages


def _pickles(stream: io.BytesIO, label: str) -> list[Said]:
    first = followed(stream)
    if first.content != _MAGIC:
        if isinstance(first.content, Call | Name):
            raise _more(label, first.content)
        raise CheckpointError(f"{label} is a pickle, but none of torch's; convert it to safetensors")
    return [first, *(followed(stream) for _ in range(4))]
