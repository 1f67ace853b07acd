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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import numpy as np
from filelock import FileLock
from huggingface_hub import hf_hub_url
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.files import atomic_file, cache_dir, write_json
from provlab.models import ranges
from provlab.models.asking import Unreachable, asked, endpoint
from provlab.models.formats.container import PICKLES
from provlab.models.local import remembered_sha256
from provlab.models.weights import side_files

_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHARD = re.compile(r"(.*-)\d{5}(-of-\d{5}\.safetensors)")
_SMALL = 2**24  # bytes of a file that is fetched whole, and so verified, whatever is asked of it
# The format itself allows no longer header.
_MAX_HEADER = 100_000_000
_START = 40_000  # bytes in which most headers end; of a small file no more than a two-thousandth is asked for first


@dataclass(frozen=True)
class _Listed:
    """What the hub says about a file: bytes, SHA-256 of a large one, git's SHA-1 of a small one."""

    size: int | None
    sha256: str | None
    git_sha1: str | None


class HubFiles:
    """The files of one commit of a hub repository. Make one with `HubFiles.resolve`."""

    def __init__(
        self,
        repo: str,
        revision: str,
        commit: str,
        listing: dict[str, _Listed] | None,
        unreachable: Unreachable | None = None,
    ) -> None:
        self.repo = repo
        self.commit: str | None = commit
        self.label = repo if revision == "main" else f"{repo}@{revision}"
        self._commit = commit
        self._unreachable = unreachable  # why the hub was not asked; it is not tried again for each file
        self._cache = _hub_cache()
        self._snapshot = _storage(self._cache, repo) / "snapshots" / commit
        self.partial = ""  # why files may be missing that the repository has
        self._listing = listing if listing is not None else self._cached_listing()
        self._verified: set[str] = set()
        self._headers: dict[str, NDArray[np.uint8] | None] = {}
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
        url = f"{endpoint()}/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"
        try:
            told = asked(lambda: ranges.answered(url), source)
        except Unreachable as error:
            return cls._from_cache(source, repo, revision, error)
        commit, listing = _listing(told)
        if not commit:
            raise CheckpointError(f"{source}: {endpoint()} answers, but not as a hub does; check HF_ENDPOINT")
        _remember(repo, revision, commit, listing)
        return cls(repo, revision, commit, listing)

    @classmethod
    def _from_cache(cls, source: str, repo: str, revision: str, error: Unreachable) -> "HubFiles":
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
                f"cache {_hub_cache()}; {error.remedy}, or give a local folder"
            ) from error
        return cls(repo, revision, commit, None, error)

    def _cached_listing(self) -> dict[str, _Listed]:
        """Return the listing kept from the last contact, else one of what the cache holds."""
        with suppress(OSError, ValueError, TypeError, AttributeError):
            kept = json.loads(_listing_path(self.repo, self._commit).read_text(encoding="utf-8"))
            return {name: _Listed(**entry) for name, entry in kept.items()}
        listing = {}
        for path in sorted(self._snapshot.iterdir()):
            blob = path.resolve().name  # the cache names a blob by its SHA-256 or git's SHA-1
            sha256 = blob if re.fullmatch(r"[0-9a-f]{64}", blob) else None
            sha1 = blob if _COMMIT.fullmatch(blob) else None
            if path.is_file() or path.is_symlink():  # a link to a blob that is gone is a file all the same
                listing[path.name] = _Listed(path.stat().st_size if path.is_file() else None, sha256, sha1)
        if self._unreachable:
            names = one_line(", ".join(name for name in listing if listing[name].size is not None) or "an empty folder")
            self.partial = (
                f"of {self.label} the cache {self._cache} holds only {names}, and the hub cannot be asked "
                f"({self._unreachable}); {self._unreachable.remedy}"
            )
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
        with self._words(name):
            size = self._listing[name].size or 0
            return ranges.read(self._url(name), start, nbytes, size=size, kept=self._pieces(name), ask=self._ask(name))

    def _url(self, name: str) -> str:
        return hf_hub_url(self.repo, name, revision=self._commit, endpoint=endpoint())

    def _pieces(self, name: str) -> Path:
        return _kept(self.repo) / self._commit / name

    def _fetch(self, name: str) -> Path:
        """Fetch a whole file into the cache, in huggingface_hub's layout."""
        listed, kept, path = self._listing[name], self._pieces(name), self._snapshot / name
        with self._words(name):
            kept.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(kept.with_name(f"{name}.lock")):
                if path.exists():  # another process was quicker
                    return path
                fetched = ranges.whole(self._url(name), listed.size or 0, kept=kept, ask=self._ask(name))
                self._snapshot.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)  # a link to a blob that is gone
                blob = listed.sha256 or listed.git_sha1
                if not blob:
                    shutil.move(fetched, path)
                    return path
                blobs = _storage(self._cache, self.repo) / "blobs"
                blobs.mkdir(exist_ok=True)
                shutil.move(fetched, blobs / blob)
                path.symlink_to(Path(os.path.relpath(blobs, self._snapshot)) / blob)
        return path

    def _ask(self, name: str) -> ranges.Ask:
        """Return what asks the hub for a file, unless it could not be reached before."""

        def ask(question: Callable[[], None]) -> None:
            if self._unreachable:
                raise self._unreachable
            asked(question, f"{self.label}: {name}", commit=self._commit)

        return ask

    @contextmanager
    def _words(self, name: str) -> Iterator[None]:
        """Put into words why a file, or a part of it, did not come."""
        try:
            yield
        except Unreachable as error:
            raise CheckpointError(
                f"{self.label}: {name} is not in the cache {self._cache} and cannot be fetched ({error}); "
                f"{error.remedy}"
            ) from error
        except ranges.OtherLength as error:
            raise CheckpointError(f"{self.label}: {name} arrived damaged ({error}); try again") from error
        except OSError as error:
            place, why = error.filename or self._cache, error.strerror or one_line(error)
            raise CheckpointError(
                f"{self.label}: {name} cannot be kept in {place} ({why}); "
                "make room, or set HF_HOME and PROVLAB_CACHE to other folders"
            ) from error

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
        length, as it does for local files, and no weights need to be fetched. Shapes are asked of all shards: who asks
        for the header of one waits once, for those of all.
        """
        if name not in self._headers:
            shards = [other for other in self._listing if _SHARD.sub(r"\1\2", other) == _SHARD.sub(r"\1\2", name)]
            with ThreadPoolExecutor(ranges.AT_ONCE) as pool:
                self._headers |= zip(shards, pool.map(self._header, shards), strict=True)
        header = self._headers[name]
        if header is None:
            yield self.path(name)
            return
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as shell:
            shell.write(header.tobytes())
            shell.truncate(self._listing[name].size)
            shell.flush()
            yield Path(shell.name)

    def _header(self, name: str) -> NDArray[np.uint8] | None:
        """Read the header of a safetensors file; None if the file is here, or the server sends whole files only."""
        size = self._listing[name].size
        if size is None or self.here(name):
            return None
        try:
            start = self._piece(name, 0, min(size, _START, max(8, size >> 11)))
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
        """Whether only some bytes are fetched of a large file that is not here; pickles are always fetched whole."""
        return not self.here(name) and (self._listing[name].size or 0) > _SMALL and not name.endswith(PICKLES)

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of a file: of a large one as the hub lists it, without fetching it."""
        return self._listing[name].sha256 or remembered_sha256(self.path(name))

    def bytes_to_hash(self, names: Iterable[str]) -> int:
        """Bytes that would be read on this machine to hash these files: none, as the hub lists what they hash to."""
        return 0

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Fetch what loading needs (weights and small files, no code) and return the snapshot's folder."""
        for name in (
            *side_files(self),
            *(n for n in self.names() if n.endswith(".index.json")),
            *weight_files,
        ):
            self.path(name)
        return self._snapshot


def check_access(sources: Iterable[str]) -> None:
    """Ask the hub for each model whether it would give us its files, before any is fetched.

    Raises
    ------
    CheckpointError
        It would not: the model is gated or private, or not there. A hub that cannot be asked refuses nothing, as the
        models may be in the cache.
    """
    for source in sources:
        url = f"{endpoint()}/api/models/{_parse(source)[0]}/auth-check"
        try:
            asked(lambda url=url: ranges.permitted(url), source)  # type: ignore[misc]
        except Unreachable:
            return


def _listing(told: Any) -> tuple[str, dict[str, _Listed]]:
    """Take the commit and its files, those in folders left out, from the hub's answer; no commit from other answers."""

    def text(value: Any, pattern: str) -> str | None:
        return value if isinstance(value, str) and re.fullmatch(pattern, value) else None

    told = told if isinstance(told, dict) else {}
    siblings = told.get("siblings")
    listing = {}
    for entry in siblings if isinstance(siblings, list) else []:
        entry = entry if isinstance(entry, dict) else {}
        name, size, lfs = text(entry.get("rfilename"), r"[^/\\\0]{1,255}"), entry.get("size"), entry.get("lfs")
        if name and name != ".." and isinstance(size, int) and 0 <= size < 2**50:
            sha256 = text(lfs.get("sha256"), "[0-9a-f]{64}") if isinstance(lfs, dict) else None
            listing[name] = _Listed(size, sha256, None if sha256 else text(entry.get("blobId"), _COMMIT.pattern))
    return text(told.get("sha"), _COMMIT.pattern) or "", listing


def _parse(source: str) -> tuple[str, str]:
    match = _ID.fullmatch(source)
    if match:
        with suppress(HFValidationError):
            validate_repo_id(match["repo"])
            revision = match["revision"] or "main"
            if ".." not in revision and not revision.startswith("/"):
                return match["repo"], revision
    inside = "; for a folder within a repository, fetch it and give it" if source.count("/") > 1 else ""
    raise CheckpointError(
        f"{source!r} is no folder here and no hub id; a hub id is org/name[@revision], a folder ./name{inside}"
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
