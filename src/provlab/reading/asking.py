"""Requests to the hub: repeated while it is busy, ended where an answer drips, and every refusal in one line.

A refusal (no such model, no access) is a `CheckpointError`; where no answer came, and a copy in the cache serves as
well, it is `Unreachable`, whose text stands in brackets in the caller's message.
"""

__makes_no_numbers__ = True

import io
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO

from huggingface_hub import HfApi, HfFileMetadata, get_hf_file_metadata
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

from provlab.errors import CheckpointError, one_line

SECONDS = 20.0  # without an answer, or without a byte more of it
_SLOWEST = 2**12  # bytes a second, on average, below which a download is ended
_LONGEST_ANSWER = 2**26  # bytes of JSON
_BUSY = (408, 429, 500, 502, 503, 504)  # answers after which the question is repeated
_WAITS = (1.0, 4.0)  # seconds before that, where the server names none
_LONGEST_WAIT = 60.0


class Unreachable(Exception):
    """No answer from the hub, or none that is of use; the text says why, `remedy` what to do."""

    def __init__(self, why: str, remedy: str = "connect") -> None:
        super().__init__(why)
        self.remedy = remedy


class NoRanges(Exception):
    """The server sends whole files only."""


class OtherLength(Exception):
    """The server has another number of bytes than the hub lists."""


class _CutOff(ConnectionError):
    """An answer ended before its end."""


def ask(question: Callable[[], None], label: str, *, commit: str | None = None) -> None:
    """Call `question`, again while the hub is busy or an answer is cut off, and raise every failure in one line.

    Parameters
    ----------
    question
        Sends a request; called again, it goes on where it stopped.
    label
        The model, or its file, for messages.
    commit
        The commit of the file, which the hub has listed before.

    Raises
    ------
    CheckpointError
        The hub refuses.
    Unreachable
        It gives no answer.
    """
    if offline():
        raise Unreachable("HF_HUB_OFFLINE is set")
    for wait in (*_WAITS, None):
        try:
            return question()
        except HfHubHTTPError as error:
            # the store's address is signed for a while: asked again, the hub gives a new one
            seconds = 0.0 if _by_store(error) else _seconds_to_wait(error, wait or 0.0)
            again = _by_store(error) or error.response.status_code in _BUSY
            if wait is None or not again or seconds > _LONGEST_WAIT:
                raise _refusal(error, label, commit) from error
        except Exception as error:
            # httpx has no base class that it exports under one name in all versions
            if not type(error).__module__.startswith(("httpx", "httpcore")) and not isinstance(
                error, ConnectionError | TimeoutError
            ):
                raise
            cut = type(error).__name__ in ("ReadError", "WriteError", "CloseError", "RemoteProtocolError", "_CutOff")
            if wait is None or not cut:
                raise _lost(error, cut) from error
            seconds = wait
        time.sleep(seconds)
    raise AssertionError  # the last attempt returns or raises


def fetch(url: str, start: int, nbytes: int, size: int | None, sink: BinaryIO) -> None:
    """Append to `sink` the bytes that it lacks of `nbytes` from `start` on, of a file of `size` bytes.

    Without a size, a whole answer of any length up to `nbytes` is taken.
    """
    had, began = sink.tell(), time.monotonic()
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if start + had or (size is not None and nbytes < size):
        headers["Range"] = f"bytes={start + had}-{start + nbytes - 1}"
    with get_session().stream("GET", url, headers=headers, timeout=SECONDS, follow_redirects=True) as answer:
        if answer.status_code == 416:
            raise OtherLength(f"fewer than {start + nbytes} bytes")
        hf_raise_for_status(answer)
        if answer.headers.get("Content-Type", "").lower().startswith("text/html"):  # the hub sends none here
            raise _web_page()
        sent = re.match(r"bytes ([0-9]+)-[0-9]+/([0-9]+)", answer.headers.get("Content-Range", ""))
        if answer.status_code != 206 or not sent or int(sent[1]) != start + had:
            if start:
                raise NoRanges
            had = sink.seek(0)
            sink.truncate()
        length = int(sent[2] if sent else answer.headers.get("Content-Length", size or 0))
        if size is not None and length != size and "Content-Encoding" not in answer.headers:
            raise OtherLength(f"{length} bytes instead of {size}")
        for chunk in answer.iter_bytes():
            sink.write(chunk[: nbytes - sink.tell()])
            if sink.tell() == nbytes:
                return
            if (seconds := time.monotonic() - began) > SECONDS + (sink.tell() - had) / _SLOWEST:
                why = f"{sink.tell()} bytes came in {seconds:.0f} s"
                raise Unreachable(why, "try again on a better line; what came is kept")
    if size is not None and sink.tell() < nbytes:
        raise _CutOff(f"after {sink.tell()} of {nbytes} bytes")


def answered(url: str, label: str) -> Any:
    """Return the hub's answer in JSON; raises as `ask` does."""
    content = io.BytesIO()
    ask(lambda: fetch(url, 0, _LONGEST_ANSWER, None, content), label)
    try:
        return json.loads(content.getvalue())
    except (ValueError, RecursionError) as error:
        raise _web_page() from error


def described(url: str, label: str, commit: str) -> HfFileMetadata:
    """Ask for size and hash of one file, without its bytes; raises as `ask` does, and where no size is named."""
    answers: list[HfFileMetadata] = []
    ask(lambda: answers.append(get_hf_file_metadata(url, timeout=SECONDS)), label, commit=commit)
    if answers[0].size is None:
        raise Unreachable("it names no size", "unset HF_ENDPOINT, or give a mirror that does")
    return answers[0]


def permitted(repo: str, label: str, kind: str = "model") -> None:
    """Raise as `ask` does where the hub would not give the files of a model, or of a data set."""
    ask(lambda: HfApi(endpoint=endpoint()).auth_check(repo, repo_type=kind), label)


def _seconds_to_wait(error: HfHubHTTPError, otherwise: float) -> float:
    """Return the seconds that a busy server asks to wait: as a number, as a date, or in the hub's own header."""
    headers = error.response.headers
    seconds = str(headers.get("Retry-After", "")).strip()
    if re.fullmatch(r"[0-9]{1,9}", seconds):
        return float(seconds)
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(seconds) - datetime.now(UTC)).total_seconds())
    own = re.search(r"\bt=([0-9]{1,9})", headers.get("RateLimit", ""))
    return float(own[1]) if own else otherwise


def _refusal(error: HfHubHTTPError, label: str, commit: str | None) -> Exception:
    """Return the error for a status."""
    status = error.response.status_code
    gone = isinstance(error, RepositoryNotFoundError | RevisionNotFoundError)
    if isinstance(error, GatedRepoError):
        return CheckpointError(f"{label} is gated: accept its licence on {endpoint()} and set HF_TOKEN to your token")
    if commit and gone:
        return CheckpointError(
            f"{label}: commit {commit[:12]} has vanished from the hub since it was listed; open the model again, or "
            "set HF_TOKEN if it is private now"
        )
    if isinstance(error, RepositoryNotFoundError):
        return CheckpointError(
            f"{label} is neither a folder here nor a model on {endpoint()}; if it is private, set HF_TOKEN"
        )
    if gone:
        return CheckpointError(f"{label}: the repository has no such revision; leave @... out for main")
    if isinstance(error, RemoteEntryNotFoundError) or (commit and status in (404, 410)):
        return CheckpointError(f"{label} has vanished from the hub since it was listed; open the model again")
    if _by_store(error):
        return Unreachable(
            f"the store that the hub sends to refuses ({status}), also at a new address",
            "see whether this machine's clock is right, and try again later",
        )
    if status == 401:
        return CheckpointError(f"{label}: the hub refuses the token in HF_TOKEN (401); make a new one, or unset it")
    if status == 403:
        return CheckpointError(f"{label}: the hub refuses access (403); accept the licence and set HF_TOKEN")
    seconds = _seconds_to_wait(error, -1.0)
    asks = f" and asks to wait {seconds:.0f} s" if seconds >= 0 else ""
    return Unreachable(f"it answers {status}{asks}", "try again later" if status in _BUSY else "check HF_ENDPOINT")


def _lost(error: Exception, cut: bool) -> Unreachable:
    """Return the error for a failure of the network."""
    text = one_line(error)
    if cut:
        return Unreachable(f"the connection to {endpoint()} was cut: {text}", "try again; what came is kept")
    if "CERTIFICATE" in text.upper():
        remedy = "set SSL_CERT_FILE to the certificates of your network"
        return Unreachable(f"no connection to {endpoint()}, whose certificate is not trusted here: {text}", remedy)
    if "Timeout" in type(error).__name__:
        return Unreachable(f"no connection to {endpoint()}: no answer in time", "try again; what came is kept")
    return Unreachable(f"no connection to {endpoint()}: {text}")


def _web_page() -> Unreachable:
    return Unreachable(
        f"in place of {endpoint()} a web page answers: a login of this network, or a proxy",
        "log in with a browser, or set HTTPS_PROXY, and try again",
    )


def _by_store(error: HfHubHTTPError) -> bool:
    """Whether the refusal comes from the store of large files, to which the hub sends with a signed address."""
    return error.response.status_code in (400, 401, 403) and bool(error.response.history)


def endpoint() -> str:
    """Address of the hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def offline() -> bool:
    """Whether the user forbids to ask the hub."""
    return any(
        os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}
        for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )
