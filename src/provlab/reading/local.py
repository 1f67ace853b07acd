"""The files of a checkpoint in a local folder."""

__makes_no_numbers__ = True

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError
from provlab.files import cache_dir, digest, sha256_of_parts, write_json
from provlab.reading.counting import count_bytes
from provlab.reading.files.container import is_weights, parts_of, sets_of

_SHARD = re.compile(r"-\d{5}-of-\d{5}\.(safetensors|bin)$")
# Hashing smaller files is quicker than looking the hash up.
_BIG = 1 << 20
# A file written a moment ago may change again within one tick of its timestamp: not remembered yet.
_SETTLED_SECONDS = 2.0
_HEADER = 10**8  # bytes of a header of safetensors at most, by the format
_SMALL = 2**24  # bytes of a file that is hashed also where only some units are read


class Hashes(NamedTuple):
    """Hex SHA-256 of a file, and of the bytes of each tensor in it by name; None where it is no safetensors."""

    sha256: str
    tensors: dict[str, str] | None


def remembered_sha256(path: Path) -> str:
    """Hex SHA-256 of a file; that of a big file is remembered until the file changes."""
    path = path.resolve()
    if remembered := _remembered(path, path.stat()):
        return remembered.sha256
    return hashed(path).sha256


def hashed(path: Path) -> Hashes:
    """SHA-256 of a file and of its tensors, from one reading; those of a big file are remembered until it changes."""
    path = path.resolve()
    stat = path.stat()
    if (remembered := _remembered(path, stat)) and remembered.tensors is not None:
        return remembered
    count_bytes("hashed", stat.st_size)
    parts = _tensors(path)
    sha256, tensors = sha256_of_parts(path, parts or {})
    hashes = Hashes(sha256, None if parts is None else tensors)
    unchanged = _state(path, path.stat()) == _state(path, stat)
    if stat.st_size >= _BIG and unchanged and time.time() - stat.st_ctime > _SETTLED_SECONDS:
        with suppress(OSError):  # a cache that is full or cannot be written costs time, and nothing else
            write_json(_sidecar(path, stat), _state(path, stat) | hashes._asdict())
    return hashes


def _tensors(path: Path) -> dict[str, tuple[int, int]] | None:
    """Where the bytes of each tensor of a safetensors file begin and end in it; None for any other file."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header: Any = json.loads(stream.read(length)) if length <= min(_HEADER, path.stat().st_size) else []
        ends = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
        return {name: (8 + length + int(start), 8 + length + int(end)) for name, (start, end) in ends.items()}
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None


def _state(path: Path, stat: os.stat_result) -> dict[str, Any]:
    """What changes whenever a file does: archives and ``cp -p`` set its mtime, and nobody sets its ctime."""
    times = {"mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}
    return {"path": os.fspath(path), "inode": stat.st_ino, "size": stat.st_size, **times}


def _sidecar(path: Path, stat: os.stat_result) -> Path:
    return cache_dir() / "hashes" / f"{digest(_state(path, stat))}.json"


def _remembered(path: Path, stat: os.stat_result) -> Hashes | None:
    """Return the remembered hashes of a resolved path in this state, None if there are none."""
    if stat.st_size < _BIG:
        return None
    try:
        remembered = json.loads(_sidecar(path, stat).read_text(encoding="utf-8"))
        if all(remembered.get(k) == v for k, v in _state(path, stat).items()):
            return Hashes(str(remembered["sha256"]), remembered.get("tensors"))
    except (OSError, ValueError, AttributeError, KeyError):
        pass  # absent or damaged: computed again
    return None


def begins_as_gguf(path: Path) -> bool:
    """Whether a file is GGUF, by its name or by how it begins."""
    if path.name.lower().endswith(".gguf"):
        return path.is_file()
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except OSError:
        return False


def hub_cache() -> Path:
    """Return the folder in which huggingface_hub keeps what it fetched."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if path := os.environ.get(variable):
            return Path(os.path.expandvars(path)).expanduser().resolve()
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expandvars(home)).expanduser().resolve() / "hub"


def _is_blob(real: Path) -> bool:
    """Whether a file is one that the hub's client keeps for this user: folders of links to these are made by many."""
    repository = real.parent.parent
    return real.parent.name == "blobs" and repository.name.startswith("models--") and repository.parent == hub_cache()


class LocalFiles:
    """The files of one folder, or a GGUF file alone; none may lie outside the folder.

    Attributes
    ----------
    chosen
        The one of its files with weights that was named; empty where the folder was.
    partly
        Some units alone are read: a large file whose hash is not remembered is known by its place and state.
    """

    commit: str | None = None
    partly = False

    def __init__(self, folder: Path) -> None:
        try:
            if not folder.exists():
                raise CheckpointError(f"{folder} does not exist; give a checkpoint folder that does")
            self.chosen = folder.name if folder.is_file() else ""
            gguf = bool(self.chosen) and begins_as_gguf(folder)
            if self.chosen and _SHARD.search(self.chosen):
                raise CheckpointError(f"{folder} is one of several parts; give its folder, {folder.parent}")
            if not folder.is_dir() and not gguf and not is_weights(self.chosen):
                raise CheckpointError(f"{folder} is a file; give the folder that holds config.json and weights")
            place = folder.parent if self.chosen else folder
            entries = [entry for entry in place.iterdir() if not entry.is_dir()]
        except OSError as error:
            raise CheckpointError(f"{str(folder)[:200]} cannot be read: {error.strerror}") from error
        names = [entry.name for entry in entries]
        self._names = frozenset(parts_of(folder.name, names) if gguf else names)
        self.root = place.resolve()
        self.label = str(self.root / self.chosen)
        if not self.chosen and not sets_of(self._names):  # an archive names files by their hashes
            unknown = sorted(str(entry) for entry in entries if begins_as_gguf(entry))
            if len(unknown) > 1:
                raise CheckpointError(
                    f"{place} holds several models; give the path of one: {unknown[0]} or {unknown[1]}"
                )
            self.chosen = Path(unknown[0]).name if unknown else ""
        # In a snapshot of the hub's cache every file is a link into the blobs of the same repository.
        self._allowed = [self.root]
        self.name = folder.stem if gguf else f"{self.root.name}/{self.chosen}" if folder.is_file() else self.root.name
        repository = self.root.parent.parent
        if self.root.parent.name == "snapshots" and repository.name.startswith("models--"):
            self._allowed.append(repository / "blobs")
            self.name = self.name if self.chosen else repository.name.rpartition("--")[2]

    def names(self) -> frozenset[str]:
        """Names of the files in the folder."""
        return self._names

    def path(self, name: str) -> Path:
        """Path of a file.

        Raises
        ------
        CheckpointError
            The file is missing, or a link that leads outside the folder.
        """
        path = self.root / name
        real = Path(os.path.realpath(path))  # `resolve` raises where links lead in a circle
        if not any(real.is_relative_to(allowed) for allowed in self._allowed) and not _is_blob(real):
            raise CheckpointError(f"{path} leads outside the folder, to {real}; copy the file into the folder")
        if not real.is_file():
            why = "is no regular file" if real.exists() else "is missing"
            why = "is a link that leads to no file" if path.is_symlink() and not real.exists() else why
            raise CheckpointError(f"{path} {why}; copy the file into the folder")
        return path

    def read(self, name: str, start: int, nbytes: int) -> NDArray[np.uint8]:
        """Some bytes of a file: fewer if it ends before."""
        return np.fromfile(self.path(name), np.uint8, nbytes, offset=start)

    @contextmanager
    def with_header(self, name: str) -> Iterator[Path]:
        """Yield the path of a safetensors file whose header can be read."""
        yield self.path(name)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self.path(name).stat().st_size

    def here(self, name: str) -> bool:
        """Whether a file is on this machine already: always."""
        return True

    def in_part(self, name: str) -> bool:
        """Whether only pieces of a file are read that is not hashed."""
        return self.partly and self.size(name) > _SMALL and not self._remembers(name)

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of a file; of its place and state where it is read in part."""
        path = self.path(name).resolve()
        return digest(_state(path, path.stat())) if self.in_part(name) else remembered_sha256(path)

    def tensor_hashes(self, name: str) -> dict[str, str] | None:
        """Hex SHA-256 of the bytes of each tensor in a file; None where it is no safetensors, or read in part."""
        return None if self.in_part(name) else hashed(self.path(name)).tensors

    def hash_known(self, name: str) -> bool:
        """Whether `sha256` reads no file: its hash is remembered, or not needed."""
        return self.in_part(name) or self._remembers(name)

    def _remembers(self, name: str) -> bool:
        path = self.path(name).resolve()
        return _remembered(path, path.stat()) is not None

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Return the folder, which has everything already."""
        return self.root
