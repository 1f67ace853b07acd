# ruff: noqa: T201
"""Open every page of the built book in Chromium: can everybody read it, and on a phone?

Run by the Makefile after each build: ``python tests/book/check_axe.py FOLDER``. On a desktop, in light and in dark, no
page may have a violation that axe-core (in ``axe/``, MPL-2.0) calls more than minor; at the width of a phone none
may scroll sideways, cut a formula at its end, or, before *For the record*, be longer than a first reading takes
(`SCREENS`); and none may ask a network for anything, or have a script that stops. Exit 1 with a line for each fault.
Without a Chromium it says so and exits 0.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "book"))
from browser import Browser, browser, installed

AXE = Path(__file__).with_name("axe") / "axe.min.js"
DESKTOP, PHONE = (1280, 900), (390, 844)  # CSS pixels
# screens that a chapter may have before "For the record": a finding, a picture, a formula, a result, limits, a summary
SCREENS = {"a desktop": 3.8, "a phone": 6.0}
FIRST_READING = """(() => {
  const record = document.querySelector("section#for-the-record");
  if (!record || !location.pathname.includes("/experiments/")) return 0;
  return (record.getBoundingClientRect().top - document.querySelector("h1").getBoundingClientRect().top) / innerHeight;
})()"""
# formulas, outside of what is folded, whose right end lies beyond the box that clips them
CUT = """[...document.querySelectorAll("mjx-container > svg")].filter((one) => {
  // the list of contents lies beside the screen of a phone until it is opened
  if (!one.checkVisibility() || one.closest("table, .bd-sidebar-secondary")) return false;
  let edge = innerWidth;
  for (let box = one.parentElement; box && box !== document.body; box = box.parentElement) {
    const style = getComputedStyle(box);
    const clips = style.overflowX !== "visible" && style.display !== "inline";
    if (clips) edge = Math.min(edge, box.getBoundingClientRect().right);
  }
  return one.getBoundingClientRect().right > edge + 1;
}).map((one) => (one.closest("[id]")?.id ?? "") + ": " + one.parentElement.textContent.trim().slice(0, 60))"""
RUN = """axe.run(document, {resultTypes: ["violations"], runOnly: %s}).then(found => found.violations
  .filter(one => one.impact !== "minor")
  .map(one => [one.id, one.nodes.length, one.nodes[0].target.join(" ") + ": " + one.nodes[0].html.slice(0, 120)]))"""
GOES_ON = 'http-equiv="refresh"'  # a page that has moved, and goes on before it can be looked at
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


def check_page(page: Path, chromium: Browser, axe: str) -> list[str]:
    """Return one line for each fault of a page."""
    chromium.screen(PHONE)
    chromium.open(page)
    faults = [f"asks for {url[:80]}" for url in chromium.requests()]
    faults += [f"a script of it stops: {error}" for error in chromium.errors()]
    if sideways := chromium.value(SIDEWAYS):
        faults.append(f"scrolls sideways on a phone, {sideways[0]} px wide: {sideways[1]}")
    faults += [f"cuts a formula on a phone, in {formula}" for formula in chromium.value(CUT)]
    faults += too_long(chromium, "a phone")
    chromium.value(axe)
    chromium.value(f"{STILL}; {THEME % 'dark'}")
    violations = [(" on a phone, in the dark", *violation) for violation in chromium.value(RUN % PHONE_RULES)]
    chromium.value(THEME % "light")
    chromium.screen(DESKTOP)
    faults += too_long(chromium, "a desktop")
    violations += [("", *violation) for violation in chromium.value(RUN % ALL)]
    for where, rule, n, target in violations:
        faults.append(f"{rule}{where}: {n} x, first {' '.join(target.split())}")
    return faults


def _goes_on(page: Path) -> bool:
    with page.open(encoding="utf-8") as text:
        return GOES_ON in text.read(1000)


def too_long(chromium: Browser, screen: str) -> list[str]:
    """Say how long the first reading of the page is, if that is more than it may be."""
    n = chromium.value(FIRST_READING)
    return [f"a first reading of {n:.1f} screens on {screen}, of at most {SCREENS[screen]:g}"] * (n > SCREENS[screen])


def check(folder: Path, program: str) -> tuple[int, list[str]]:
    """Return the number of pages of the book built into `folder`, and a line for each fault.

    Raises
    ------
    OSError
        If the browser does not start, or cannot open a file.
    """
    pages = [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts and not _goes_on(path)]
    axe = AXE.read_text(encoding="utf-8")

    left = iter(sorted(pages, key=lambda page: -page.stat().st_size))  # each browser takes the next, the longest first

    def several(chromium: Browser) -> list[str]:
        return [f"{page.relative_to(folder)}: {fault}" for page in left for fault in check_page(page, chromium, axe)]

    n = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 4)
    with ExitStack() as stack, ThreadPoolExecutor(n) as pool:
        browsers = [stack.enter_context(browser(program)) for _ in range(n)]
        for chromium, page in zip(browsers, pages, strict=False):
            chromium.open(page)
        try:
            faults = list(pool.map(several, browsers))
        except OSError as error:  # it did start
            raise RuntimeError(f"Chromium stopped: {error}") from error
        return len(pages), sorted(chain.from_iterable(faults))


def main() -> int:
    """Check the folder named on the command line."""
    if len(sys.argv) != 2:
        print("usage: python tests/book/check_axe.py FOLDER", file=sys.stderr)
        return 2
    program = installed()
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
