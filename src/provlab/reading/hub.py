"""Checkpoints on the Hugging Face hub: one commit, only the files that are asked for, each verified.

huggingface_hub neither compares a download with its SHA-256, nor resumes it in a later run, nor bounds the time that a
busy server asks to wait; so names are resolved here, and bytes are fetched and checked here, through its session (which
sends the token to the hub alone) and into its cache. Tensors of large safetensors files are fetched one by one; they
cannot be compared with the SHA-256 of their file, and records say so. Environment variables are read at call time.
"""

__makes_no_numbers__ = True

import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
from filelock import FileLock
from huggingface_hub import hf_hub_url
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from huggingface_hub.utils.sha import git_hash
from numpy.typing import NDArray
from tqdm import tqdm

from provlab.errors import CheckpointError, one_line
from provlab.files import atomic_file, cache_dir, write_json
from provlab.reading import asking
from provlab.reading.asking import NoRanges, OtherLength, Unreachable, endpoint
from provlab.reading.files.container import is_weights, parts_of
from provlab.reading.files.pickle_names import PICKLES
from provlab.reading.local import hashed, hub_cache, remembered_sha256
from provlab.reading.weights import side_files

_ID = re.compile(r"(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?P<inside>(?:/\w[\w.-]*)*)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHARD = re.compile(r"(.*-)\d{5}(-of-\d{5}\.safetensors)")
_SMALL = 2**24  # bytes of a file that is always fetched whole, and so verified
_PIECE = 2**24  # bytes fetched at a time
_AT_ONCE = 4  # connections
_START = 40_000  # bytes in which most headers end
_MAX_HEADER = 100_000_000  # the format itself allows no longer one
#: what a repository of the hub may hold
Kind = Literal["model", "dataset"]
_LARGEST_TEXT = 2**27  # bytes of a file beside the weights; the largest tokenizers have some 2**25


@dataclass(frozen=True)
class _HubFile:
    """The hub's entry for a file: bytes, SHA-256 of a large one, git's SHA-1 of a small one."""

    size: int | None
    sha256: str | None
    git_sha1: str | None


class HubFiles:
    """The files of one folder at one commit of a hub repository. Make one with `HubFiles.resolve`."""

    def __init__(
        self,
        repo: str,
        inside: str,
        revision: str,
        commit: str,
        listing: dict[str, _HubFile] | None,
        unreachable: Unreachable | None = None,
        chosen: str = "",
        kind: Kind = "model",
    ) -> None:
        self.repo, self.kind, self._inside, self.chosen = repo, kind, inside, chosen
        self.commit: str | None = commit
        self.label = f"{repo}/{inside}{chosen}".removesuffix("/") + ("" if revision == "main" else f"@{revision}")
        self._commit = commit
        self._unreachable = unreachable  # why the hub gave no answer; it is not asked again for each file
        self._cache = hub_cache()
        self._snapshot = _storage(repo, kind) / "snapshots" / commit / inside
        self.partial = ""  # why files may be missing that the repository has
        self._listing = listing if listing is not None else self._cached_listing()
        self._verified: set[str] = set()
        self._headers: dict[str, NDArray[np.uint8] | None] = {}
        self._lock = Lock()

    @classmethod
    def resolve(cls, source: str, kind: Kind = "model") -> "HubFiles":
        """Resolve ``org/name[/folder][@revision]`` to a commit, from the hub or, without a network, from the cache.

        `kind` says what the hub keeps there: a model, or a data set.

        Raises
        ------
        CheckpointError
            The id is malformed, the repository or revision is unknown, access is refused, or there is neither
            a network nor a copy in the cache.
        """
        repo, inside, revision = _parse(source)
        inside, chosen = _file_in(inside)
        url = f"{endpoint()}/api/{kind}s/{repo}/revision/{quote(revision, safe='')}?blobs=true"
        try:
            answer = asking.answered(url, source)
        except Unreachable as error:
            return cls._from_cache(source, repo, inside, revision, error, chosen, kind)
        commit, listing = _listing(answer, inside)
        if not commit:
            raise CheckpointError(f"{source}: {endpoint()} answers, but not as a hub does; check HF_ENDPOINT")
        with suppress(OSError):  # a cache that others own may be read-only
            if not _COMMIT.fullmatch(revision):
                with atomic_file(_storage(repo, kind) / "refs" / revision) as temporary:
                    temporary.write_text(commit, encoding="utf-8")
            write_json(
                _listing_path(repo, kind, inside, commit), {name: vars(entry) for name, entry in listing.items()}
            )
        return cls(repo, inside, revision, commit, listing, chosen=chosen, kind=kind)

    @classmethod
    def _from_cache(
        cls, source: str, repo: str, inside: str, revision: str, error: Unreachable, chosen: str, kind: Kind
    ) -> "HubFiles":
        commit = revision
        if not _COMMIT.fullmatch(revision):
            with suppress(OSError):
                commit = (_storage(repo, kind) / "refs" / revision).read_text(encoding="utf-8").strip()
        if not _COMMIT.fullmatch(commit) or not (_storage(repo, kind) / "snapshots" / commit / inside).is_dir():
            raise CheckpointError(
                f"{source} is no folder here, cannot be asked from the hub ({error}), and is not in the "
                f"cache {hub_cache()}; {error.remedy}, or give a local folder"
            ) from error
        return cls(repo, inside, revision, commit, None, error, chosen, kind)

    def _cached_listing(self) -> dict[str, _HubFile]:
        """Return the listing kept from the last contact, else one of the files in the cache."""
        with suppress(OSError, ValueError, TypeError, AttributeError):
            path = _listing_path(self.repo, self.kind, self._inside, self._commit)
            kept = json.loads(path.read_text(encoding="utf-8"))
            return {name: _HubFile(**entry) for name, entry in kept.items()}
        listing = {}
        for path in sorted(self._snapshot.iterdir()):
            blob = path.resolve().name  # the cache names a blob by its SHA-256 or git's SHA-1
            sha256 = blob if re.fullmatch(r"[0-9a-f]{64}", blob) else None
            sha1 = blob if _COMMIT.fullmatch(blob) else None
            if path.is_file() or path.is_symlink():  # a link to a missing blob is a file of the repository too
                listing[path.name] = _HubFile(path.stat().st_size if path.is_file() else None, sha256, sha1)
        if self._unreachable:
            names = one_line(", ".join(name for name in listing if listing[name].size is not None) or "an empty folder")
            self.partial = (
                f"of {self.label} the cache {self._cache} holds only {names}, and the hub cannot be asked "
                f"({self._unreachable}); {self._unreachable.remedy}"
            )
        return listing

    def names(self) -> frozenset[str]:
        """Names of the files in the folder, by default the top of the repository."""
        if self.chosen.lower().endswith(".gguf"):
            return frozenset(parts_of(self.chosen, self._listing))
        return frozenset(self._listing)

    def path(self, name: str) -> Path:
        """Path of a file in the cache, fetched first if need be, and verified.

        Raises
        ------
        CheckpointError
            It cannot be fetched, or does not match the hub's listing.
        """
        with self._lock:
            path = self._snapshot / name
            fetched = not path.exists()
            if fetched:
                self._fetch(name, path)
            if name not in self._verified:
                self._verify(name, path, fetched)
                self._verified.add(name)
                shutil.rmtree(self._pieces(name), ignore_errors=True)
            return path

    def read(self, name: str, start: int, nbytes: int) -> NDArray[np.uint8]:
        """Some bytes of a file: of the whole file if it is here or small, else these alone are fetched, and kept.

        Raises
        ------
        CheckpointError
            They cannot be fetched.
        """
        if self.in_part(name):
            with suppress(NoRanges):
                return self._part(name, start, nbytes)
        return np.fromfile(self.path(name), np.uint8, nbytes, offset=start)

    def _part(self, name: str, start: int, nbytes: int) -> NDArray[np.uint8]:
        with self._faults(name):
            content, end = np.empty(nbytes, np.uint8), 0
            for path in self._fetched(name, start, nbytes):
                begin, end = end, end + path.stat().st_size
                content[begin:end] = np.fromfile(path, np.uint8)
            return content

    def _pieces(self, name: str) -> Path:
        """Folder of the pieces of a file, each named by its place and length."""
        return _kept(self.repo, self.kind) / self._commit / self._inside / name

    def _fetched(self, name: str, start: int, nbytes: int) -> Iterator[Path]:
        """Yield the files of the pieces that make up some bytes, fetching several at once."""
        places = [(first, min(_PIECE, start + nbytes - first)) for first in range(start, start + nbytes, _PIECE)]
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            with tqdm(total=nbytes, unit="B", unit_scale=True, desc=name, leave=False, disable=None) as bar:
                for path in pool.map(lambda place: self._piece(name, *place), places):
                    bar.update(path.stat().st_size)
                    yield path
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure, the others are not tried

    def _piece(self, name: str, start: int, nbytes: int) -> Path:
        """Fetch a piece into its file, except for the bytes that the file has; after a failure it keeps what came."""
        path = self._pieces(name) / f"{start}-{nbytes}"
        content = io.BytesIO(path.read_bytes()[:nbytes] if path.is_file() else b"")
        had = content.seek(0, io.SEEK_END)
        if had < nbytes:
            try:
                self._ask(name, start, nbytes, content)
            finally:
                if content.tell() != had:
                    with atomic_file(path) as temporary:
                        temporary.write_bytes(content.getvalue())
        return path

    def _ask(self, name: str, start: int, nbytes: int, sink: Any) -> None:
        if self._unreachable:
            raise self._unreachable
        asking.ask(
            lambda: asking.fetch(self._url(name), start, nbytes, self._listing[name].size, sink),
            f"{self.label}: {name}",
            commit=self._commit,
        )

    def _url(self, name: str) -> str:
        return hf_hub_url(
            self.repo, self._inside + name, repo_type=self.kind, revision=self._commit, endpoint=endpoint()
        )

    def _listed(self, name: str) -> _HubFile:
        """Return the entry for a file; a mirror that lists no sizes is asked for that of this one."""
        if self._listing[name].size is None and not self.here(name):
            with self._faults(name):
                if self._unreachable:
                    raise self._unreachable
                answer = asking.described(self._url(name), f"{self.label}: {name}", self._commit)
            self._listing[name] = _entry(answer.size, answer.etag, answer.etag)
        return self._listing[name]

    def _fetch(self, name: str, path: Path) -> None:
        """Fetch a whole file into the cache, in huggingface_hub's layout, from where an earlier call stopped."""
        listed, pieces = self._listed(name), self._pieces(name)
        size, whole = listed.size or 0, pieces / "whole"
        if size > _LARGEST_TEXT and not name.endswith((".safetensors", ".gguf", *PICKLES)):
            raise CheckpointError(f"{self.label}: {name} has {size} bytes, as no such file has; it is not fetched")
        with self._faults(name):
            pieces.mkdir(parents=True, exist_ok=True)
            with FileLock(pieces.with_name(f"{name}.lock")):
                if path.exists():  # another process was quicker
                    return
                done = whole.stat().st_size // _PIECE * _PIECE if whole.is_file() else 0
                try:
                    with whole.open("ab") as stream:
                        stream.truncate(done)
                        for piece in self._fetched(name, done, size - done):
                            stream.write(piece.read_bytes())
                            piece.unlink()
                except NoRanges:
                    with whole.open("wb") as stream:
                        self._ask(name, 0, size, stream)
                self._snapshot.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)  # a link to a missing blob
                if blob := listed.sha256 or listed.git_sha1:
                    blobs = _storage(self.repo, self.kind) / "blobs"
                    blobs.mkdir(exist_ok=True)
                    shutil.move(whole, blobs / blob)
                    path.symlink_to(Path(os.path.relpath(blobs, self._snapshot)) / blob)
                else:
                    shutil.move(whole, path)

    @contextmanager
    def _faults(self, name: str) -> Iterator[None]:
        """Raise a CheckpointError of one line where a file, or a part of it, did not come or cannot be kept."""
        try:
            yield
        except Unreachable as error:
            raise CheckpointError(
                f"{self.label}: {name} is not in the cache {self._cache} and cannot be fetched ({error}); "
                f"{error.remedy}"
            ) from error
        except OtherLength as error:
            raise CheckpointError(f"{self.label}: {name} arrived damaged ({error}); try again") from error
        except OSError as error:
            place, why = error.filename or self._cache, error.strerror or one_line(error)
            raise CheckpointError(
                f"{self.label}: {name} cannot be kept in {place} ({why}); "
                "make room, or set HF_HOME and PROVLAB_CACHE to other folders"
            ) from error

    def _verify(self, name: str, path: Path, fetched: bool) -> None:
        """Compare with the listing; a damaged file that was just fetched is removed from the cache."""
        listed, size = self._listing.get(name, _HubFile(None, None, None)), path.stat().st_size
        if listed.size is not None and size != listed.size:
            damage = f"{size} bytes instead of {listed.size}"
        elif listed.sha256 and remembered_sha256(path) != listed.sha256:
            damage = "another SHA-256 than the hub lists"
        elif listed.git_sha1 and git_hash(path.read_bytes()) != listed.git_sha1:
            damage = "another checksum than the hub lists"
        else:
            return
        if fetched:
            path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise CheckpointError(f"{self.label}: {name} arrived damaged ({damage}); try again")
        raise CheckpointError(f"{self.label}: {name} is damaged in the cache ({damage}); delete {path.resolve()}")

    @contextmanager
    def with_header(self, name: str) -> Iterator[Path]:
        """Yield the path of a file whose header can be read: if the file is not here, of a shell of full length.

        The shell is the header and a hole, so that the format's own parser compares the header with the file's length,
        as for local files, and no weights are fetched. The headers of all shards are fetched with the first.
        """
        if name not in self._headers:
            shards = [other for other in self._listing if _SHARD.sub(r"\1\2", other) == _SHARD.sub(r"\1\2", name)]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                self._headers |= zip(shards, pool.map(self._header, shards), strict=True)
        header = self._headers[name]
        if header is None:
            yield self.path(name)
            return
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as shell:
            shell.write(header.tobytes())
            shell.truncate(self.size(name))
            shell.flush()
            yield Path(shell.name)

    def _header(self, name: str) -> NDArray[np.uint8] | None:
        """Read the header of a safetensors file; None if the file is here, or the server sends whole files only."""
        if self.here(name):
            return None
        size = self.size(name)
        with suppress(NoRanges):
            start = self._part(name, 0, min(size, _START, max(8, size >> 11)))  # of a small file a small part
            length = 8 + int.from_bytes(start[:8].tobytes(), "little")
            if length > min(size, _MAX_HEADER + 8):
                raise CheckpointError(f"{self.label}: {name} has no header of safetensors; give another revision")
            return start[:length] if length <= len(start) else self._part(name, 0, length)
        return None

    def size(self, name: str) -> int:
        """Bytes of a file, without fetching it."""
        size = self._listed(name).size
        return self.path(name).stat().st_size if size is None else size

    def here(self, name: str) -> bool:
        """Whether a file is in the cache already."""
        return (self._snapshot / name).exists()

    def in_part(self, name: str) -> bool:
        """Whether only some bytes are fetched of a large file that is not here; pickles are always fetched whole."""
        return not self.here(name) and (self._listed(name).size or 0) > _SMALL and not name.endswith(PICKLES)

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of a file: of a large one as the hub lists it, without fetching it."""
        return self._listed(name).sha256 or remembered_sha256(self.path(name))

    def tensor_hashes(self, name: str) -> dict[str, str] | None:
        """Hex SHA-256 of the bytes of each tensor in a file here; None where it is no safetensors."""
        return hashed(self.path(name)).tensors if self.here(name) else None

    def hash_known(self, name: str) -> bool:
        """Whether `sha256` reads no file: the hub lists the hashes."""
        return True

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Fetch the files that loading needs (weights and small files, no code) and return the snapshot's folder."""
        for name in (*side_files(self), *weight_files):
            self.path(name)
        return self._snapshot


def check_access(sources: Iterable[str], kind: Kind = "model") -> None:
    """Ask the hub for each model, or data set, whether it grants access to the files, before any is fetched.

    Raises
    ------
    CheckpointError
        The model is gated or private, or not there. A hub that cannot be asked refuses nothing, as the models may be in
        the cache.
    """
    with suppress(Unreachable):
        for source in sources:
            asking.permitted(_parse(source)[0], source, kind)


def _text(value: Any, pattern: str) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(pattern, value) else None


def _entry(size: Any, sha256: Any, git_sha1: Any) -> _HubFile:
    """Return an entry from what a server says of a file."""
    sha256 = _text(sha256, "[0-9a-f]{64}")
    size = size if isinstance(size, int) and 0 <= size < 2**50 else None
    return _HubFile(size, sha256, None if sha256 else _text(git_sha1, _COMMIT.pattern))


def _listing(answer: Any, inside: str) -> tuple[str, dict[str, _HubFile]]:
    """Read the commit and the files of one folder of it from the hub's answer; no commit from other answers."""
    answer = answer if isinstance(answer, dict) else {}
    siblings = answer.get("siblings")
    listing = {}
    for entry in siblings if isinstance(siblings, list) else []:
        entry = entry if isinstance(entry, dict) else {}
        path, lfs = _text(entry.get("rfilename"), re.escape(inside) + r"[^/\\\0]{1,255}"), entry.get("lfs")
        if path and (name := path.removeprefix(inside)) != "..":
            sha256 = lfs.get("sha256") if isinstance(lfs, dict) else None
            listing[name] = _entry(entry.get("size"), sha256, entry.get("blobId"))
    return _text(answer.get("sha"), _COMMIT.pattern) or "", listing


def _parse(source: str) -> tuple[str, str, str]:
    """Return the repository, the folder in it (``""`` or with a slash at its end), and the revision."""
    if match := _ID.fullmatch(source):
        with suppress(HFValidationError):
            validate_repo_id(match["repo"])
            revision = match["revision"] or "main"
            if ".." not in revision and not revision.startswith("/"):
                return match["repo"], match["inside"][1:] + "/" * bool(match["inside"]), revision
    raise CheckpointError(
        f"{source!r} is no folder here and no hub id; a hub id is org/name[/folder][@revision], a folder ./name"
    )


def _file_in(inside: str) -> tuple[str, str]:
    """Return the folder and the file of weights that a path in a repository ends with, ``""`` if it is a folder's."""
    folder, _, last = inside.removesuffix("/").rpartition("/")
    return (f"{folder}/" if folder else "", last) if is_weights(last) else (inside, "")


def _listing_path(repo: str, kind: Kind, inside: str, commit: str) -> Path:
    return _kept(repo, kind) / inside / f"{commit}.json"


def _kept(repo: str, kind: Kind) -> Path:
    """Folder of a repository's listings, and of pieces of its files."""
    return cache_dir() / ("hub" if kind == "model" else f"hub-{kind}s") / repo.replace("/", "--")


def _storage(repo: str, kind: Kind) -> Path:
    """Folder of a repository in the cache, in huggingface_hub's layout."""
    return hub_cache() / f"{kind}s--{repo.replace('/', '--')}"
