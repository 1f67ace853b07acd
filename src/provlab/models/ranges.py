"""Pieces of a file on the hub, each fetched once and kept.

A tensor stands in one piece in a safetensors file, and a server that knows `Range` sends that alone. What is read so
cannot be held against the SHA-256 of its file; records say so, and where the whole file is here, that is read instead.
"""

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]
from numpy.typing import NDArray
from tqdm import tqdm

from provlab.files import atomic_file

_PIECE = 2**24  # bytes asked for at a time: what an interruption may lose
_AT_ONCE = 4  # connections
SECONDS = 20.0  # without an answer, or without a byte more of it


class NoRanges(Exception):
    """The server sends whole files only."""


class Bar(tqdm):
    """A progress bar that only a person at a terminal sees."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("name", None)
        kwargs["disable"] = not sys.stderr.isatty()
        super().__init__(*args, **kwargs)


def read(
    url: str, start: int, nbytes: int, *, kept: Path, ask: Callable[[Callable[[], bytes]], bytes]
) -> NDArray[np.uint8]:
    """Read some bytes of a file: from the pieces kept in a folder, and the others from the hub.

    Parameters
    ----------
    kept
        Folder of the file's pieces, each named by its place and length; made if need be.
    ask
        Calls the function that it is given, and puts what goes wrong on the way into words.

    Raises
    ------
    NoRanges
        The server sends whole files only.
    """
    places = [(first, min(_PIECE, start + nbytes - first)) for first in range(start, start + nbytes, _PIECE)]

    def piece(place: tuple[int, int]) -> NDArray[np.uint8]:
        path = kept / f"{place[0]}-{place[1]}"
        if not path.is_file() or path.stat().st_size != place[1]:
            content = ask(lambda: fetched(url, *place))
            with atomic_file(path) as temporary:
                temporary.write_bytes(content)
        return np.fromfile(path, np.uint8)

    found = np.empty(nbytes, np.uint8)
    with (
        ThreadPoolExecutor(_AT_ONCE) as pool,
        Bar(total=nbytes, unit="B", unit_scale=True, desc=kept.name, leave=False) as bar,
    ):
        for (first, length), content in zip(places, pool.map(piece, places), strict=True):
            found[first - start : first - start + length] = content
            bar.update(length)
    return found


def fetched(url: str, start: int, nbytes: int) -> bytes:
    """Ask the server for one piece of a file, and take no more even from one that sends the whole."""
    headers = {**build_hf_headers(), "Range": f"bytes={start}-{start + nbytes - 1}", "Accept-Encoding": "identity"}
    with get_session().stream("GET", url, headers=headers, timeout=SECONDS, follow_redirects=True) as answer:
        hf_raise_for_status(answer)
        sent = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
        if start and (answer.status_code != 206 or not sent or int(sent[1]) != start):
            raise NoRanges
        content = bytearray()
        for chunk in answer.iter_bytes():
            content += chunk
            if len(content) >= nbytes:
                break
    if len(content) < nbytes:
        raise ConnectionError(f"{len(content)} bytes came where {nbytes} were asked for")
    return bytes(content[:nbytes])
