"""A small server that speaks as much of the hub's protocol as reading a model needs."""

import contextlib
import hashlib
import json
import mmap
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


WEIGHTS = (".safetensors", ".bin")


def git_sha1(content: bytes) -> str:
    """Name of a blob in git, which is the hub's checksum of small files."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _sha256(path: Path) -> str:
    """Checksum of a file of weights, computed once: one may have gigabytes, and each request asks."""
    status = path.stat()
    return _sha256_of(path, status.st_size, status.st_mtime_ns)


def _mapped(path: Path) -> memoryview:
    """Content of a file, of which only what is sent is read."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b"")


@cache
def _sha256_of(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass
class Repo:
    """One repository: a folder served at one commit under some revision names."""

    folder: Path
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    gated: bool = False
    token: str | None = None  # what a reader of a gated repository must show
    corrupt: set[str] = field(default_factory=set)  # files whose bytes differ from what is listed
    ignores_range: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Say nothing of a client that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class HubServer:
    """Context manager: serves `repos` and keeps a log of ``(method, path, range)``."""

    def __init__(self, repos: dict[str, Repo]) -> None:
        self.repos = repos
        self.log: list[tuple[str, str, str | None]] = []
        self.broken = False
        #: given a request and its path, answers it in its own way, or returns False
        self.trouble: Callable[[BaseHTTPRequestHandler, str], bool] | None = None
        #: whether pages of other origins may read, as on the hub; and whether they see how long a file is
        self.cors, self.shows_length = True, True
        self.n_bytes_sent = 0
        self._connections: list[socket.socket] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                hub._connections.append(self.connection)

            def do_GET(self):
                hub._answer(self, body=True)

            def do_HEAD(self):
                hub._answer(self, body=False)

            def do_OPTIONS(self):
                hub.send(self, 200, b"", {"Access-Control-Allow-Headers": "Range"})

            def log_message(self, *args):
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        for path in (path for repo in self.repos.values() for path in repo.folder.rglob("*") if path.suffix in WEIGHTS):
            _sha256(path)  # of gigabytes before anybody asks: a client waits for no answer so long
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            for connection in self._connections:  # kept alive by their clients
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def fetched(self) -> list[str]:
        """Names of files fetched whole, in order."""
        return [
            path.rpartition("/")[2]
            for method, path, span in self.log
            if method == "GET" and "/resolve/" in path and span is None
        ]

    def _answer(self, request, *, body):
        path = unquote(urlsplit(request.path).path)
        self.log.append((request.command, path, request.headers.get("Range")))
        if self.trouble and self.trouble(request, path):
            return None
        if self.broken:
            return self._refuse(request, 503, "Maintenance")
        for name, repo in self.repos.items():  # that of a data set begins with datasets/
            asked = f"/api/{name}" if name.startswith("datasets/") else f"/api/models/{name}"
            if path.startswith(f"{asked}/revision/"):
                return self._info(request, name, repo, path.split("/revision/")[1])
            if path == f"{asked}/auth-check":
                return self._allowed(request, repo, repo.commit) and self.send(request, 200, b"", {})
            if path.startswith(f"/{name}/resolve/"):
                revision, _, file = path.removeprefix(f"/{name}/resolve/").partition("/")
                return self._file(request, repo, revision, file, body=body)
        return self._refuse(request, 404, "RepoNotFound")

    def _allowed(self, request, repo, revision):
        if repo.gated and request.headers.get("Authorization") != f"Bearer {repo.token}":
            self._refuse(request, 403 if request.headers.get("Authorization") else 401, "GatedRepo")
            return False
        if revision not in (repo.commit, *repo.revisions):
            self._refuse(request, 404, "RevisionNotFound")
            return False
        return True

    def _info(self, request, name, repo, revision):
        if not self._allowed(request, repo, revision):
            return
        siblings = []
        for file in sorted(p for p in repo.folder.rglob("*") if p.is_file()):
            size = file.stat().st_size
            entry = {"rfilename": str(file.relative_to(repo.folder)), "size": size}
            if file.suffix in WEIGHTS:
                entry["lfs"] = {"sha256": _sha256(file), "size": size, "pointerSize": 130}
                entry["blobId"] = git_sha1(entry["lfs"]["sha256"].encode())  # of a small file that points to it
            else:
                entry["blobId"] = git_sha1(file.read_bytes())
            siblings.append(entry)
        answer = {"id": name, "modelId": name, "sha": repo.commit, "siblings": siblings}
        self.send(request, 200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _file(self, request, repo, revision, file, *, body):
        if not self._allowed(request, repo, revision):
            return
        if not (repo.folder / file).is_file():
            self._refuse(request, 404, "EntryNotFound", {"X-Repo-Commit": repo.commit})
            return
        path = repo.folder / file
        size, first, last = path.stat().st_size, 0, path.stat().st_size - 1
        headers = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if path.suffix in WEIGHTS:
            headers |= {"X-Linked-Etag": f'"{_sha256(path)}"', "X-Linked-Size": str(size)}
            headers["ETag"] = headers["X-Linked-Etag"]
        else:
            headers["ETag"] = f'"{git_sha1(path.read_bytes())}"'
        status, span = 200, request.headers.get("Range")
        if span and not repo.ignores_range:
            begin, _, end = span.removeprefix("bytes=").partition("-")
            status, first, last = 206, int(begin), min(int(end), size - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        content = _mapped(path)[first : last + 1]
        if file in repo.corrupt and last == size - 1:
            content = bytes(content[:-1]) + bytes([content[-1] ^ 1])
        self.send(request, status, content, headers, body=body)

    def _refuse(self, request, status, code, headers=None):
        self.send(request, status, b"", {"X-Error-Code": code, **(headers or {})})

    def send(self, request, status, content, headers, *, body=True):
        request.send_response(status)
        if self.cors:
            headers = {**headers, "Access-Control-Allow-Origin": "*"}
            if self.shows_length:
                headers["Access-Control-Expose-Headers"] = "Accept-Ranges, Content-Range, X-Repo-Commit"
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(key, value)
        request.end_headers()
        with contextlib.suppress(OSError):  # a client may close before the end
            for start in range(0, len(content) if body else 0, 1 << 16):
                request.wfile.write(content[start : start + (1 << 16)])
                self.n_bytes_sent += 1 << 16
