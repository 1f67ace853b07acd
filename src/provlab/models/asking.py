"""Asking the hub: again while it is busy, and every refusal in one line.

A refusal (no such model, no access) is a `CheckpointError`; where only no answer came, and a copy in the cache is as
good as before, it is `Unreachable`, whose text stands in brackets in what the caller says.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from provlab.errors import CheckpointError, one_line

_DEFAULT_ENDPOINT = "https://huggingface.co"
_BUSY = (408, 429, 500, 502, 503, 504)  # answers after which it is worth asking again
_WAITS = (1.0, 4.0)  # seconds before that, where the server names none
_LONGEST_WAIT = 60.0

T = TypeVar("T")


class Unreachable(Exception):
    """No answer from the hub, or none that is of use; the text says why, `remedy` what to do."""

    def __init__(self, why: str, remedy: str = "connect") -> None:
        super().__init__(why)
        self.remedy = remedy


class CutOff(Exception):
    """An answer ended before its end."""


class Page(Exception):
    """A web page came where data were asked for."""


class TooSlow(Exception):
    """An answer drips."""


def asked(question: Callable[[], T], source: str, *, commit: str | None = None) -> T:
    """Ask the hub, again while it is busy, and put what goes wrong into words.

    Parameters
    ----------
    question
        What asks; called again, it goes on where it was.
    source
        What the words are about: a model, or a file of one.
    commit
        The commit that a file is asked of, which the hub has listed before.

    Raises
    ------
    CheckpointError
        The hub refuses.
    Unreachable
        It gives no answer.
    """
    if offline():
        raise Unreachable("HF_HUB_OFFLINE is set")
    try:
        return _patiently(question)
    except OfflineModeIsEnabled as error:
        raise Unreachable("HF_HUB_OFFLINE is set") from error
    except HfHubHTTPError as error:
        raise _refusal(error, source, commit) from error
    except Page as error:
        raise Unreachable(
            f"in place of {endpoint()} a web page answers: a login of this network, or a proxy",
            "log in with a browser, or set HTTPS_PROXY, and try again",
        ) from error
    except TooSlow as error:
        raise Unreachable(str(error), "try again on a better line; what came is kept") from error
    except Exception as error:
        if isinstance(error, CutOff) or _of_the_network(error):
            raise _lost(error) from error
        raise


def _patiently(question: Callable[[], T]) -> T:
    """Ask again where an answer is cut off, and while the hub is busy: after as long as it says, if bearable."""
    refused_by_store = False
    for wait in _WAITS:
        seconds = wait
        try:
            return question()
        except HfHubHTTPError as error:
            if _by_store(error) and not refused_by_store:
                refused_by_store, seconds = True, 0.0  # the question gets a new address from the hub
            else:
                seconds = _told_to_wait(error, wait)
                if error.response.status_code not in _BUSY or seconds > _LONGEST_WAIT:
                    raise
        except Exception as error:
            if not _is_cut(error):
                raise
        time.sleep(seconds)
    return question()


def _told_to_wait(error: HfHubHTTPError, otherwise: float) -> float:
    """Return the seconds that a busy server asks to wait: as a number, as a date, or in the hub's own header."""
    headers = error.response.headers
    named = str(headers.get("Retry-After", "")).strip()
    if re.fullmatch(r"[0-9]{1,9}", named):
        return float(named)
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(named) - datetime.now(UTC)).total_seconds())
    own = re.search(r"\bt=([0-9]{1,9})", headers.get("RateLimit", ""))
    return float(own[1]) if own else otherwise


def _refusal(error: HfHubHTTPError, source: str, commit: str | None) -> Exception:
    """Put a status into words."""
    status = error.response.status_code
    if isinstance(error, GatedRepoError):
        return CheckpointError(f"{source} is gated: accept its licence on {endpoint()} and set HF_TOKEN to your token")
    if commit and isinstance(error, RepositoryNotFoundError | RevisionNotFoundError):
        return CheckpointError(
            f"{source}: commit {commit[:12]} has vanished from the hub since it was listed; open the model again, or "
            "set HF_TOKEN if it is private now"
        )
    if isinstance(error, RepositoryNotFoundError):
        return CheckpointError(
            f"{source} is neither a folder here nor a model on {endpoint()}; if it is private, set HF_TOKEN"
        )
    if isinstance(error, RevisionNotFoundError):
        return CheckpointError(f"{source}: the repository has no such revision; leave @... out for main")
    if isinstance(error, RemoteEntryNotFoundError) or (commit and status in (404, 410)):
        return CheckpointError(f"{source} has vanished from the hub since it was listed; open the model again")
    if _by_store(error):
        return Unreachable(
            f"the store that the hub sends to refuses ({status}), also at a new address",
            "see whether this machine's clock is right, and try again later",
        )
    if status == 401:
        return CheckpointError(f"{source}: the hub refuses the token in HF_TOKEN (401); make a new one, or unset it")
    if status == 403:
        return CheckpointError(f"{source}: the hub refuses access (403); accept the licence and set HF_TOKEN")
    seconds = _told_to_wait(error, -1.0)
    asks = f" and asks to wait {seconds:.0f} s" if seconds >= 0 else ""
    return Unreachable(f"it answers {status}{asks}", "try again later" if status in _BUSY else "check HF_ENDPOINT")


def _lost(error: Exception) -> Unreachable:
    """Put what the network did into words."""
    text = one_line(error)
    if _is_cut(error):
        return Unreachable(f"the connection to {endpoint()} was cut: {text}", "try again; what came is kept")
    if "CERTIFICATE" in text.upper():
        remedy = "set SSL_CERT_FILE to the certificates of your network"
        return Unreachable(f"no connection to {endpoint()}, whose certificate is not trusted here: {text}", remedy)
    if "Timeout" in type(error).__name__:
        return Unreachable(f"no connection to {endpoint()}: no answer in time", "try again; what came is kept")
    return Unreachable(f"no connection to {endpoint()}: {text}")


def _by_store(error: HfHubHTTPError) -> bool:
    """Whether the refusal comes from the store of large files, to which the hub sends with a signed address."""
    return error.response.status_code in (400, 401, 403) and bool(error.response.history)


def _of_the_network(error: Exception) -> bool:
    """Whether the client failed: its errors have no common base that it exports, only the module they come from."""
    return type(error).__module__.startswith(("httpx", "httpcore")) or isinstance(error, ConnectionError | TimeoutError)


def _is_cut(error: Exception) -> bool:
    """Whether there was a connection, which ended before the answer did."""
    known = {"ReadError", "WriteError", "CloseError", "RemoteProtocolError"}
    return isinstance(error, CutOff) or (_of_the_network(error) and type(error).__name__ in known)


def endpoint() -> str:
    """Address of the hub."""
    return (os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")


def offline() -> bool:
    """Whether the user forbids to ask the hub."""
    return any(
        os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}
        for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )
