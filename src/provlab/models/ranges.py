"""Files on the hub, whole or some bytes of them: fetched in pieces, each once, and kept.

A tensor stands in one piece in a safetensors file, and a server that knows `Range` sends that alone. What is read so
cannot be held against the SHA-256 of its file; records say so, and where the whole file is here, that is read instead.
"""

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]
from numpy.typing import NDArray
from tqdm import tqdm

from provlab.files import atomic_file
from provlab.models.asking import CutOff, Page, TooSlow

_PIECE = 2**24  # bytes asked for at a time
AT_ONCE = 4  # connections
SECONDS = 20.0  # without an answer, or without a byte more of it
_SLOWEST = 2**12  # bytes a second, on average, below which nobody waits longer
_LONGEST_ANSWER = 2**26  # bytes of JSON

Ask = Callable[[Callable[[], None]], None]


class NoRanges(Exception):
    """The server sends whole files only."""


class OtherLength(Exception):
    """The server has another number of bytes than the hub lists."""


class Bar(tqdm):
    """A progress bar that only a person at a terminal sees."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["disable"] = not sys.stderr.isatty()
        super().__init__(*args, **kwargs)


def read(url: str, start: int, nbytes: int, *, size: int, kept: Path, ask: Ask) -> NDArray[np.uint8]:
    """Read some bytes of a file: from the pieces kept in a folder, and the others from the hub.

    Parameters
    ----------
    size
        Bytes of the whole file, as the hub lists it.
    kept
        Folder of the file's pieces, each named by its place and length; made if need be.
    ask
        Calls the function that it is given, and puts what goes wrong on the way into words.

    Raises
    ------
    NoRanges
        The server sends whole files only.
    OtherLength
        The server has a longer or shorter file.
    """
    found = np.empty(nbytes, np.uint8)
    for first, path in _pieces(url, start, nbytes, size, kept, ask):
        content = np.fromfile(path, np.uint8)
        found[first - start : first - start + len(content)] = content
    return found


def whole(url: str, size: int, *, kept: Path, ask: Ask) -> Path:
    """Fetch a file, from where an earlier call was interrupted.

    Returns
    -------
    Path
        A file in `kept`, to be moved to its place.

    Raises
    ------
    OtherLength
        The server has a longer or shorter file.
    """
    path = kept / "whole"
    kept.mkdir(parents=True, exist_ok=True)
    if size <= _PIECE:
        _piece(url, None, size, path, ask)
        return path
    done = path.stat().st_size // _PIECE * _PIECE if path.is_file() else 0
    try:
        with path.open("ab") as stream:
            stream.truncate(done)
            for _, piece in _pieces(url, done, size - done, size, kept, ask):
                stream.write(piece.read_bytes())
                piece.unlink()
    except NoRanges:
        with atomic_file(path) as temporary, temporary.open("wb") as stream:
            ask(lambda: fetched(url, None, size, stream))
    return path


def _pieces(url: str, start: int, nbytes: int, size: int, kept: Path, ask: Ask) -> Iterator[tuple[int, Path]]:
    """Yield each piece's first byte and its file, fetching several at once."""
    places = [(first, min(_PIECE, start + nbytes - first)) for first in range(start, start + nbytes, _PIECE)]
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        with Bar(total=nbytes, unit="B", unit_scale=True, desc=kept.name, leave=False) as bar:
            found = pool.map(lambda place: _piece(url, place, size, kept / f"{place[0]}-{place[1]}", ask), places)
            for (first, length), path in zip(places, found, strict=True):
                yield first, path
                bar.update(length)
    finally:
        pool.shutdown(cancel_futures=True)  # after a failure, the others are not tried as well


def _piece(url: str, place: tuple[int, int] | None, size: int, path: Path, ask: Ask) -> Path:
    """Fetch a piece into its file, but for what is in that already; what came before a failure is kept there."""
    nbytes = place[1] if place else size
    with suppress(FileNotFoundError):
        if path.stat().st_size == nbytes:
            return path
    content = io.BytesIO(path.read_bytes()[:nbytes] if path.is_file() else b"")
    had = content.seek(0, io.SEEK_END)
    try:
        ask(lambda: fetched(url, place, size, content))
    finally:
        if content.tell() != had:
            with atomic_file(path) as temporary:
                temporary.write_bytes(content.getvalue())
    return path


def fetched(url: str, place: tuple[int, int] | None, size: int, sink: BinaryIO) -> None:
    """Ask the server for what `sink` lacks of a file of `size` bytes, or of one piece, and take no more if all is sent.

    A piece is given as its first byte and its length.
    """
    start, nbytes = place or (0, size)
    had = sink.tell()
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if had or place:
        headers["Range"] = f"bytes={start + had}-{start + nbytes - 1}"
    began = time.monotonic()
    with get_session().stream("GET", url, headers=headers, timeout=SECONDS, follow_redirects=True) as answer:
        if answer.status_code == 416:
            raise OtherLength(f"fewer than {start + nbytes} bytes")
        hf_raise_for_status(answer)
        _refuse_pages(answer)
        sent = re.match(r"bytes ([0-9]+)-[0-9]+/([0-9]+)", answer.headers.get("Content-Range", ""))
        if answer.status_code != 206 or not sent or int(sent[1]) != start + had:
            if start:
                raise NoRanges
            sink.seek(0)
            sink.truncate()
            had = 0
        length = int(sent[2]) if sent else answer.headers.get("Content-Length")
        if length is not None and int(length) != size and "Content-Encoding" not in answer.headers:
            raise OtherLength(f"{length} bytes instead of {size}")
        for chunk in answer.iter_bytes():
            sink.write(chunk[: nbytes - sink.tell()])
            if sink.tell() == nbytes:
                return
            _refuse_drips(time.monotonic() - began, sink.tell() - had)
    raise CutOff(f"after {sink.tell()} of {nbytes} bytes")


def answered(url: str) -> Any:
    """Ask the server a question that is answered in JSON."""
    began = time.monotonic()
    content = bytearray()
    with get_session().stream("GET", url, headers=build_hf_headers(), timeout=SECONDS, follow_redirects=True) as answer:
        hf_raise_for_status(answer)
        _refuse_pages(answer)
        for chunk in answer.iter_bytes():
            content += chunk
            _refuse_drips(time.monotonic() - began, len(content))
            if len(content) > _LONGEST_ANSWER:
                break
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Page from error


def permitted(url: str) -> None:
    """Ask the server a question whose answer is its status."""
    hf_raise_for_status(get_session().get(url, headers=build_hf_headers(), timeout=SECONDS, follow_redirects=True))


def _refuse_pages(answer: Any) -> None:
    """Raise `Page` where a network's login, or a proxy, answers in place of the hub, which sends no HTML here."""
    if answer.headers.get("Content-Type", "").lower().startswith("text/html"):
        raise Page


def _refuse_drips(seconds: float, nbytes: int) -> None:
    """Raise `TooSlow` where an answer takes longer than anyone waits for it."""
    if seconds > SECONDS + nbytes / _SLOWEST:
        raise TooSlow(f"{nbytes} bytes came in {seconds:.0f} s")
