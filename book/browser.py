"""A headless Chromium, spoken to in the DevTools protocol over a pair of pipes."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 90.0  # seconds of silence in which it does not work either
# resolves when a page is ready: equations are drawn after it has loaded
READY = "(window.MathJax?.startup?.promise ?? Promise.resolve()).then(() => true)"


def installed() -> str | None:
    """Path of the first Chromium on this machine, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def seconds_worked(group: int | None) -> int:
    """CPU seconds of the processes of a group so far; 0 where the system's ``ps`` does not tell."""
    if group is None or shutil.which("ps") is None:
        return 0
    listing = subprocess.run(["ps", "-A", "-o", "pgid=,time="], capture_output=True, text=True, check=False).stdout
    total = 0
    for pgid, clock in (line.split() for line in listing.splitlines() if len(line.split()) == 2):
        if int(pgid) == group:
            days, _, rest = clock.rpartition("-")  # [DD-][HH:]MM:SS, on some systems with hundredths
            parts = [int(days or 0), *(int(float(part)) for part in rest.split(":"))]
            hours, minutes, seconds = [0] * (4 - len(parts)) + parts[1:]
            total += 86400 * parts[0] + 3600 * hours + 60 * minutes + seconds
    return total


class Browser:
    """A headless Chromium, spoken to over a pair of pipes in the DevTools protocol."""

    def __init__(self, write: int, read: int, group: int | None = None) -> None:
        self._write, self._read, self._group = write, read, group
        self._last, self._buffer, self._worked = 0, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)  # these name the load that they belong to

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; what happens in between is kept in `events`."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        """Return the next message; a browser that works may be silent, as it prints a long book without a word."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not ready and (worked := seconds_worked(self._group)) > self._worked:  # asked in silence alone
                until, self._worked = time.monotonic() + PATIENCE, worked
                continue
            if not piece:
                raise OSError("it ended" if ready else f"it said nothing and did nothing for {PATIENCE:g} s")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _heard(self, start: int, **parameters: str) -> int:
        """Wait for an event with these parameters, the earliest that of index `start`; return the index after it."""
        while True:
            if start == len(self.events):
                self.events.append(self._next())
            start += 1
            if parameters.items() <= self.events[start - 1]["params"].items():
                return start

    def value(self, script: str) -> Any:
        """Return what a script, or the promise that it gives, comes to on the page."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "a script failed"))
        return answer["result"].get("value")

    def screen(self, size: tuple[int, int]) -> None:
        """Give the page a screen of this width and height; a narrow one is a phone's."""
        width, height = size
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, page: Path) -> None:
        """Load a page and wait until its equations are drawn."""
        self.events.clear()
        load = self.ask("Page.navigate", url=page.resolve().as_uri())
        if error := load.get("errorText"):
            raise OSError(f"{page.name}: {error}")
        begun = self._heard(0, name="init", loaderId=load["loaderId"])  # the end of an earlier load may come only now
        self._heard(begun, name="load", frameId=load["frameId"])  # of this page, or of one that it sends us to
        self.value(READY)

    def requests(self) -> list[str]:
        """Return the addresses on the web that the page requested."""
        sent = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if url.startswith(("http:", "https:", "ws:", "wss:"))]

    def errors(self) -> list[str]:
        """Return the first line of each error in which a script of the page ended."""
        thrown = [e["params"]["exceptionDetails"] for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        return [one.get("exception", {}).get("description", one["text"]).split("\n")[0] for one in thrown]


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """Start a Chromium with an empty profile, and end it."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def pipes() -> None:  # Chromium reads commands from 3 and answers on 4
        read, write = os.dup(to_read), os.dup(from_write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=pipes, close_fds=False, start_new_session=True,
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        try:
            yield Browser(to_write, from_read, process.pid)
        finally:
            process.kill()
            process.wait()
            os.close(to_write)
            os.close(from_read)
