"""Checkpoints on the Hugging Face hub: one commit, only the files that are asked for, each verified.

What huggingface_hub leaves to its callers is done here: a name is resolved to a commit once and every file
belongs to that commit; SHA-256 and size are checked after the download; without a network the commit that
the cache remembers is used. Environment variables are read at call time, not at import.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np
from huggingface_hub import HfApi, hf_hub_download, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.files import atomic_file, cache_dir, write_json
from provlab.models import ranges
from provlab.models.local import remembered_sha256
from provlab.models.weights import side_files

_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DEFAULT_ENDPOINT = "https://huggingface.co"
_SMALL = 2**24  # bytes of a file that is fetched whole, and so verified, whatever is asked of it
_BUSY = (429, 500, 502, 503, 504)  # answers after which it is worth asking again
_WAITS = (1.0, 4.0)  # seconds before that, where the server names none
_LONGEST_WAIT = 60.0
# The format itself allows no longer header.
_MAX_HEADER = 100_000_000
_START = 100_000  # bytes in which most headers end

T = TypeVar("T")


@dataclass(frozen=True)
class _Listed:
    """What the hub says about a file: bytes, SHA-256 of a large one, git's SHA-1 of a small one."""

    size: int | None
    sha256: str | None
    git_sha1: str | None


class HubFiles:
    """The files of one commit of a hub repository. Make one with `HubFiles.resolve`."""

    def __init__(
        self, repo: str, revision: str, commit: str, listing: dict[str, _Listed] | None, unreachable: str = ""
    ) -> None:
        self.repo = repo
        self.commit: str | None = commit
        self.label = repo if revision == "main" else f"{repo}@{revision}"
        self._commit = commit
        self._unreachable = unreachable  # why the hub was not asked; it is not tried again for each file
        self._cache = _hub_cache()
        self._snapshot = _storage(self._cache, repo) / "snapshots" / commit
        self._listing = listing if listing is not None else self._cached_listing()
        self._verified: set[str] = set()
        self._lock = Lock()

    @classmethod
    def resolve(cls, source: str) -> "HubFiles":
        """Resolve ``org/name[@revision]`` to a commit, from the hub or, without a network, from the cache.

        Raises
        ------
        CheckpointError
            The id is malformed, the repository or revision is unknown, access is refused, or there is neither
            a network nor a copy in the cache.
        """
        repo, revision = _parse(source)
        try:
            info = _asked(
                lambda: HfApi(endpoint=_endpoint()).model_info(
                    repo, revision=revision, files_metadata=True, timeout=ranges.SECONDS
                ),
                source,
            )
        except _Unreachable as error:
            return cls._from_cache(source, repo, revision, error)
        if not info.sha or not _COMMIT.fullmatch(info.sha):
            raise CheckpointError(f"{source}: the hub at {_endpoint()} gave no commit; check HF_ENDPOINT")
        listing = {
            entry.rfilename: _Listed(
                entry.size, entry.lfs.sha256 if entry.lfs else None, None if entry.lfs else entry.blob_id
            )
            for entry in info.siblings or []
            if "/" not in entry.rfilename and "\\" not in entry.rfilename
        }
        _remember(repo, revision, info.sha, listing)
        return cls(repo, revision, info.sha, listing)

    @classmethod
    def _from_cache(cls, source: str, repo: str, revision: str, error: Exception) -> "HubFiles":
        storage = _storage(_hub_cache(), repo)
        commit = revision
        if not _COMMIT.fullmatch(revision):
            try:
                commit = (storage / "refs" / revision).read_text(encoding="utf-8").strip()
            except OSError:
                commit = ""
        if not _COMMIT.fullmatch(commit) or not (storage / "snapshots" / commit).is_dir():
            raise CheckpointError(
                f"{source} is no folder here, cannot be asked from the hub ({error}), and is not in the "
                f"cache {_hub_cache()}; connect, or give a local folder"
            ) from error
        return cls(repo, revision, commit, None, str(error))

    def _cached_listing(self) -> dict[str, _Listed]:
        """Return the listing kept from the last contact, else one of what the cache holds."""
        with suppress(OSError, ValueError, TypeError, AttributeError):
            kept = json.loads(_listing_path(self.repo, self._commit).read_text(encoding="utf-8"))
            return {name: _Listed(**entry) for name, entry in kept.items()}
        listing = {}
        for path in filter(Path.is_file, self._snapshot.iterdir()):
            blob = path.resolve().name  # the cache names a blob by its SHA-256 or git's SHA-1
            sha256 = blob if re.fullmatch(r"[0-9a-f]{64}", blob) else None
            sha1 = blob if _COMMIT.fullmatch(blob) else None
            listing[path.name] = _Listed(path.stat().st_size, sha256, sha1)
        return listing

    def names(self) -> frozenset[str]:
        """Names of the files at the top of the repository."""
        return frozenset(self._listing)

    def path(self, name: str) -> Path:
        """Path of a file in the cache, fetched first if need be, and verified.

        Raises
        ------
        CheckpointError
            It cannot be fetched, or what came is not what the hub lists.
        """
        with self._lock:
            path = self._snapshot / name
            fetched = not path.exists()
            if fetched:
                path = self._fetch(name)
            if name not in self._verified:
                self._verify(name, path, fetched)
                self._verified.add(name)
                shutil.rmtree(self._pieces(name), ignore_errors=True)
            return path

    def read(self, name: str, start: int, nbytes: int) -> NDArray[np.uint8]:
        """Some bytes of a file: of the whole file if it is here or small, else only these are fetched, and kept.

        Raises
        ------
        CheckpointError
            They cannot be fetched.
        """
        if self.in_part(name):
            with suppress(ranges.NoRanges):
                return self._piece(name, start, nbytes)
        return np.fromfile(self.path(name), np.uint8, nbytes, offset=start)

    def _piece(self, name: str, start: int, nbytes: int) -> NDArray[np.uint8]:
        url = hf_hub_url(self.repo, name, revision=self._commit, endpoint=_endpoint())
        try:
            return ranges.read(url, start, nbytes, kept=self._pieces(name), ask=self._ask)
        except _Unreachable as error:
            raise CheckpointError(
                f"{self.label}: {name} is not in the cache {self._cache} and cannot be fetched ({error}); connect"
            ) from error

    def _pieces(self, name: str) -> Path:
        return _kept(self.repo) / self._commit / name

    def _fetch(self, name: str) -> Path:
        try:
            path = self._ask(
                lambda: hf_hub_download(
                    self.repo,
                    name,
                    revision=self._commit,
                    cache_dir=self._cache,
                    endpoint=_endpoint(),
                    tqdm_class=ranges.Bar,
                )
            )
        except _Unreachable as error:
            raise CheckpointError(
                f"{self.label}: {name} is not in the cache {self._cache} and cannot be fetched ({error}); connect"
            ) from error
        return Path(path)

    def _ask(self, question: Callable[[], T]) -> T:
        if self._unreachable:
            raise _Unreachable(self._unreachable)
        return _asked(question, self.label)

    def _verify(self, name: str, path: Path, fetched: bool) -> None:
        """Compare with the listing; what was just fetched and is wrong is removed from the cache."""
        listed = self._listing.get(name, _Listed(None, None, None))
        size = path.stat().st_size
        wrong = ""
        if listed.size is not None and size != listed.size:
            wrong = f"{size} bytes instead of {listed.size}"
        elif listed.sha256 and remembered_sha256(path) != listed.sha256:
            wrong = "another SHA-256 than the hub lists"
        elif listed.git_sha1 and _git_sha1(path) != listed.git_sha1:
            wrong = "another checksum than the hub lists"
        if not wrong:
            return
        if fetched:
            path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise CheckpointError(f"{self.label}: {name} arrived damaged ({wrong}); try again")
        raise CheckpointError(f"{self.label}: {name} is damaged in the cache ({wrong}); delete {path.resolve()}")

    @contextmanager
    def with_header(self, name: str) -> Iterator[Path]:
        """Yield the path of a file whose header can be read: if it is not here, of a shell of full length.

        The shell is the header and a hole. The format's own parser then holds the header against the file's
        length, as it does for local files, and no weights need to be fetched.
        """
        size = self._listing[name].size
        header = None if size is None or self.here(name) else self._header(name, size)
        if header is None:
            yield self.path(name)
            return
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as shell:
            shell.write(header.tobytes())
            shell.truncate(size)
            shell.flush()
            yield Path(shell.name)

    def _header(self, name: str, size: int) -> NDArray[np.uint8] | None:
        """Read the header of a safetensors file of this size; None from a server that sends whole files only."""
        try:
            start = self._piece(name, 0, min(size, _START))
            length = 8 + int.from_bytes(start[:8].tobytes(), "little")
            if length > min(size, _MAX_HEADER + 8):
                raise CheckpointError(f"{self.label}: {name} has no safetensors header; do not trust it")
            return start[:length] if length <= len(start) else self._piece(name, 0, length)
        except ranges.NoRanges:
            return None

    def size(self, name: str) -> int:
        """Bytes of a file, without fetching it."""
        size = self._listing[name].size
        return self.path(name).stat().st_size if size is None else size

    def here(self, name: str) -> bool:
        """Whether a file is in the cache already."""
        return (self._snapshot / name).exists()

    def in_part(self, name: str) -> bool:
        """Whether only what is asked for is fetched: of a large file that is not here."""
        return not self.here(name) and (self._listing[name].size or 0) > _SMALL

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of a file: of a large one as the hub lists it, without fetching it."""
        return self._listing[name].sha256 or remembered_sha256(self.path(name))

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Fetch what loading needs (weights and small files, no code) and return the snapshot's folder."""
        for name in (
            *side_files(self),
            *(n for n in self.names() if n.endswith(".index.json")),
            *weight_files,
        ):
            self.path(name)
        return self._snapshot


class _Unreachable(Exception):
    """No answer from the hub; the text says why."""


def _asked(question: Callable[[], T], source: str) -> T:
    """Ask the hub, and put its refusals into one line each."""
    if _offline():
        raise _Unreachable("HF_HUB_OFFLINE is set")
    try:
        return _patiently(question)
    except GatedRepoError as error:
        raise CheckpointError(
            f"{source} is gated: accept its licence on {_endpoint()} and set HF_TOKEN to your token"
        ) from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{source} is neither a folder here nor a model on {_endpoint()}; if it is private, set HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise CheckpointError(f"{source}: the repository has no such revision; leave @... out for main") from error
    except RemoteEntryNotFoundError as error:
        raise CheckpointError(f"{source}: a file of this commit has vanished from the hub; try again") from error
    except OfflineModeIsEnabled as error:
        raise _Unreachable("HF_HUB_OFFLINE is set") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise CheckpointError(
                f"{source}: the hub refuses access ({status}); accept the licence and set HF_TOKEN"
            ) from error
        wait = error.response.headers.get("Retry-After")
        asks = f" and asks to wait {wait} s" if wait else ""
        raise _Unreachable(f"it answers {status}{asks}") from error
    except LocalEntryNotFoundError as error:
        raise _Unreachable(f"no connection to {_endpoint()}") from error
    except CheckpointError:
        raise
    except Exception as error:
        # The client's network errors have no common base that it exports, only the module they come from.
        if type(error).__module__.startswith(("httpx", "httpcore")) or isinstance(error, OSError):
            raise _Unreachable(f"no connection to {_endpoint()}: {one_line(error)}") from error
        raise


def _patiently(question: Callable[[], T]) -> T:
    """Ask again while the hub is busy: after as long as it says, if that is bearable."""
    for wait in _WAITS:
        try:
            return question()
        except HfHubHTTPError as error:
            named = error.response.headers.get("Retry-After", "")
            seconds = float(named) if named.isdigit() else wait
            if error.response.status_code not in _BUSY or seconds > _LONGEST_WAIT:
                raise
            time.sleep(seconds)
    return question()


def _parse(source: str) -> tuple[str, str]:
    match = _ID.fullmatch(source)
    if match:
        with suppress(HFValidationError):
            validate_repo_id(match["repo"])
            revision = match["revision"] or "main"
            if ".." not in revision and not revision.startswith("/"):
                return match["repo"], revision
    raise CheckpointError(
        f"{source!r} is no folder here and no hub id; a hub id is org/name[@revision], a folder ./name"
    )


def _git_sha1(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _remember(repo: str, revision: str, commit: str, listing: dict[str, _Listed]) -> None:
    """Keep what an offline run needs: which commit the revision is, as the cache does, and its listing."""
    with suppress(OSError):  # a cache that others own may be read-only
        if not _COMMIT.fullmatch(revision):
            with atomic_file(_storage(_hub_cache(), repo) / "refs" / revision) as temporary:
                temporary.write_text(commit, encoding="utf-8")
        write_json(_listing_path(repo, commit), {name: vars(entry) for name, entry in listing.items()})


def _listing_path(repo: str, commit: str) -> Path:
    return _kept(repo) / f"{commit}.json"


def _kept(repo: str) -> Path:
    """Folder of what is known of a repository, and of pieces of its files."""
    return cache_dir() / "hub" / repo.replace("/", "--")


def _storage(cache: Path, repo: str) -> Path:
    """Folder of a repository in the cache, in huggingface_hub's layout."""
    return cache / f"models--{repo.replace('/', '--')}"


def _hub_cache() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if named := os.environ.get(variable):
            return Path(os.path.expandvars(named)).expanduser().resolve()
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expandvars(home)).expanduser().resolve() / "hub"


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")


def _offline() -> bool:
    return any(
        os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}
        for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )
