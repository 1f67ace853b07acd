# ruff: noqa: T201
"""Open every page of the built book in Chromium: can everybody read it, and on a phone?

Run by the Makefile after each build: ``python tests/book/check_axe.py FOLDER``. On a desktop, in light and in dark, no
page may have a violation that axe-core (in ``axe/``, MPL-2.0) calls more than minor; at the width of a phone none
may scroll sideways; and none may ask a network for anything. Exit 1 with a line for each fault. Without a Chromium it
says so and exits 0.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

AXE = Path(__file__).with_name("axe") / "axe.min.js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = (1280, 900), (390, 844)  # CSS pixels
PATIENCE = 90.0  # seconds for one answer
# what says of a page whether it is ready: equations are drawn after it has loaded
READY = "(window.MathJax?.startup?.promise ?? Promise.resolve()).then(() => true)"
RUN = """axe.run(document, {resultTypes: ["violations"], runOnly: %s}).then(found => found.violations
  .filter(one => one.impact !== "minor")
  .map(one => [one.id, one.nodes.length, one.nodes[0].target.join(" ") + ": " + one.nodes[0].html.slice(0, 120)]))"""
ALL = '["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]'
PHONE_RULES = '{type: "rule", values: ["color-contrast", "scrollable-region-focusable"]}'
THEME = "document.documentElement.dataset.theme = '%s'"
# colours at once, not on their way
STILL = "document.head.insertAdjacentHTML('beforeend', '<style>* {transition: none !important}</style>')"
# the elements that reach furthest beyond the screen, unless a box around them scrolls
SIDEWAYS = """(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const boxed = node => node && node !== document.body &&
    (getComputedStyle(node).overflowX !== "visible" || boxed(node.parentElement));
  const wide = [...document.body.querySelectorAll("*")].filter(
    node => node.getBoundingClientRect().right > width + 1 && !boxed(node.parentElement));
  return [document.documentElement.scrollWidth,
    wide.slice(0, 3).map(node => node.outerHTML.slice(0, 100)).join(" | ")];
})()"""


class Browser:
    """A headless Chromium, spoken to over a pair of pipes in the DevTools protocol."""

    def __init__(self, process: "subprocess.Popen[bytes]", write: int, read: int) -> None:
        self.process, self._write, self._read = process, write, read
        self._last, self._buffer = 0, b""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.ask(f"{domain}.enable")

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
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            piece = os.read(self._read, 1 << 20) if ready else b""
            if not piece:
                raise OSError("it ended" if ready else f"it said nothing for {PATIENCE:g} s")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def value(self, script: str) -> Any:
        """Return what a script, or the promise that it gives, comes to on the page."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "a script failed"))
        return answer["result"].get("value")

    def screen(self, size: tuple[int, int]) -> None:
        """Give the page a screen of this width and height."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1,
            mobile=size == PHONE,
        )  # fmt: skip

    def open(self, page: Path) -> None:
        """Load a page and wait until its equations are drawn."""
        self.events.clear()
        if said := self.ask("Page.navigate", url=page.resolve().as_uri()).get("errorText"):
            raise OSError(f"{page.name}: {said}")
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.value(READY)

    def asked_for(self) -> list[str]:
        """Return addresses on the web that the page asked for."""
        sent = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if url.startswith(("http:", "https:", "ws:", "wss:"))]


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
            preexec_fn=pipes, close_fds=False,
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        try:
            yield Browser(process, to_write, from_read)
        finally:
            process.kill()
            process.wait()
            os.close(to_write)
            os.close(from_read)


def check_page(page: Path, chromium: Browser, axe: str) -> list[str]:
    """Return one line for each fault of a page."""
    chromium.screen(PHONE)
    chromium.open(page)
    faults = [f"asks for {url[:80]}" for url in chromium.asked_for()]
    if sideways := chromium.value(SIDEWAYS):
        faults.append(f"scrolls sideways on a phone, {sideways[0]} px wide: {sideways[1]}")
    chromium.value(axe)
    chromium.value(f"{STILL}; {THEME % 'dark'}")
    found = [(" on a phone, in the dark", *one) for one in chromium.value(RUN % PHONE_RULES)]
    chromium.value(THEME % "light")
    chromium.screen(DESKTOP)
    found += [("", *one) for one in chromium.value(RUN % ALL)]
    for where, rule, n, target in found:
        faults.append(f"{rule}{where}: {n} x, first {' '.join(target.split())}")
    return faults


def check(folder: Path, program: str) -> tuple[int, list[str]]:
    """Return the number of pages of the book built into `folder`, and a line for each fault.

    Raises
    ------
    OSError
        If the browser does not start, or cannot open a file.
    """
    pages = [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts]
    axe = AXE.read_text(encoding="utf-8")

    left = iter(sorted(pages, key=lambda page: -page.stat().st_size))  # each browser takes the next, the longest first

    def several(chromium: Browser) -> list[str]:
        return [f"{page.relative_to(folder)}: {fault}" for page in left for fault in check_page(page, chromium, axe)]

    n = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 4)
    with ExitStack() as stack, ThreadPoolExecutor(n) as pool:
        browsers = [stack.enter_context(browser(program)) for _ in range(n)]
        for one, page in zip(browsers, pages, strict=False):
            one.open(page)
        try:
            found = list(pool.map(several, browsers))
        except OSError as error:  # it did start
            raise RuntimeError(f"Chromium stopped: {error}") from error
        return len(pages), sorted(chain.from_iterable(found))


def main() -> int:
    """Check the folder named on the command line."""
    if len(sys.argv) != 2:
        print("usage: python tests/book/check_axe.py FOLDER", file=sys.stderr)
        return 2
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print("book: not opened in a browser, since there is no Chromium here (on Debian: apt-get install chromium)")
        return 0
    began = time.monotonic()
    try:
        n, faults = check(Path(sys.argv[1]), program)
    except OSError as error:  # a browser that is confined, or lacks a library, is no fault of the book
        print(f"book: not opened in a browser, since {program} does not work here: {error}")
        return 0
    for fault in faults:
        print(f"book: {fault}", file=sys.stderr)
    if not n:
        print(f"book: {sys.argv[1]} holds no page", file=sys.stderr)
    elif not faults:
        print(
            f"book: {n} pages opened in Chromium in {time.monotonic() - began:.0f} s: no violation by axe-core, "
            "none scrolls sideways on a phone"
        )
    return 1 if faults or not n else 0


if __name__ == "__main__":
    sys.exit(main())
