"""Files written whole or not at all, and where provlab keeps what it makes."""

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provlab.errors import CheckpointError, ProvlabError, one_line

_CHUNK = 2**20  # bytes of a file that are read at a time


def cache_dir() -> Path:
    """Folder for what can be made again: ``$PROVLAB_CACHE``, else ``~/.cache/provlab``.

    Raises
    ------
    ProvlabError
        If this user has no home.
    """
    try:
        if named := os.environ.get("PROVLAB_CACHE"):
            return Path(named).expanduser()
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(base).expanduser() / "provlab"
    except RuntimeError:
        raise ProvlabError(
            "this user has no home folder (HOME is not set); name a folder for what provlab keeps by PROVLAB_CACHE"
        ) from None


def closed_above(path: Path) -> Path | None:
    """Folder that keeps this user from writing at a path: the nearest one that there is, None where it is open."""
    above = Path(os.path.abspath(path.expanduser()))
    while not os.path.lexists(above) and above != above.parent:
        above = above.parent
    if above.is_file():
        above = above.parent
    return None if os.access(above, os.W_OK | os.X_OK) else above


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an error of the system name `path`, which was asked for, and not a temporary one beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes its place, on error it vanishes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _named(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; on success it becomes `path`, replacing what was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _named(path):
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON (NaN and Inf refused), whole or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_parts(path: Path, parts: Mapping[str, tuple[int, int]]) -> tuple[str, dict[str, str]]:
    """Hex SHA-256 of a file's bytes, and of parts of it by name, ``(start, end)`` in bytes, in one reading.

    Parts may not overlap.
    """
    whole, hashes = hashlib.sha256(), {name: hashlib.sha256() for name in parts}
    ahead = sorted(((start, end, name) for name, (start, end) in parts.items() if end > start), reverse=True)
    buffer, at = memoryview(bytearray(_CHUNK)), 0
    with path.open("rb", buffering=0) as stream:
        while n := stream.readinto(buffer):
            whole.update(buffer[:n])
            while ahead and ahead[-1][0] < at + n:
                start, end, name = ahead[-1]
                hashes[name].update(buffer[max(start - at, 0) : min(end - at, n)])
                if end > at + n:
                    break
                ahead.pop()
            at += n
    return whole.hexdigest(), {name: each.hexdigest() for name, each in hashes.items()}


def digest(content: Any) -> str:
    """Hex SHA-256 of a JSON-able value, independent of the order of keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def reading(path: Path, error_of_format: type[Exception] = OSError) -> Iterator[None]:
    """Turn what goes wrong while a kept file is read into one line that names it and the way out.

    Parameters
    ----------
    path
        The file.
    error_of_format
        An error that the reader of its format raises, in addition to Python's and numpy's own.

    Raises
    ------
    CheckpointError
        The file is damaged.
    """
    try:
        yield
    except ProvlabError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, error_of_format) as error:
        reason = one_line(error)
        raise CheckpointError(f"kept file {path} is damaged ({reason}); delete that file and run again") from error
