# ruff: noqa: T201
"""Hold the built book against what it promises: it reads without a network, holds no failure, names every picture.

Run by the Makefile after each build: ``python tests/book/check_html.py FOLDER``. Exit 1 with a line for each fault.
"""

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# a page may link to the web (a paper, a licence), but load nothing from it
LOADS = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "link": ("href",),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
}
# of <link>, those that only say where else a page is
NOT_LOADED = {"canonical", "alternate", "author", "license", "next", "prev", "index", "search"}
WEB = re.compile(r"^\s*(https?:)?//")
CSS_WEB = re.compile(r"(?:url\(|@import)\s*['\"]?\s*(?:https?:)?//[^)'\"\s]+")
SCRIPT_WEB = re.compile(r"(?:import\(|\.src\s*=|[A-Z_]+_URL\s*=)\s*['\"`]https?://")
# the numbers behind a row are kept in its record; in a cell of a table they push all others off the page
LIST = re.compile(r"\s*\[(?:[^\[\],]{1,40}, ){20}")
FAILURES = (
    "Traceback (most recent call last)",
    "An Exception was encountered at",
    "papermill-error-cell",
    "Execution using papermill encountered an exception",
)


@dataclass
class Page(HTMLParser):
    """What one page loads, links to and shows."""

    path: Path
    faults: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    _inside: str = ""

    def __post_init__(self):
        super().__init__(convert_charrefs=True)
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = {name: value or "" for name, value in attrs}
        self._inside = tag if tag in ("script", "style") else ""
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "img" and not values.get("alt", "").strip():
            self.faults.append(f"a picture without alt text: {values.get('src', '')[:60]}")
        if "data-illegible" in values:
            self.faults.append(f"a picture whose words cannot be read: {values['data-illegible']}")
        if {"output_error", "traceback"} & set(values.get("class", "").split()):
            self.faults.append("a cell that failed")
        if tag == "link" and NOT_LOADED & set(values.get("rel", "").split()):
            return
        for name in LOADS.get(tag, ()):
            if WEB.match(values.get(name, "")):
                self.faults.append(f"<{tag}> loads {values[name][:80]}")
        if result := CSS_WEB.search(values.get("style", "")):
            self.faults.append(f"a style loads {result[0]}")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "style" and (result := CSS_WEB.search(data)):
            self.faults.append(f"a style loads {result[0]}")
        elif self._inside == "script" and (result := SCRIPT_WEB.search(data)):
            self.faults.append(f"a script loads {data[result.start() : result.end() + 40]}")
        elif not self._inside:
            if LIST.match(data):
                self.faults.append(f"a list of numbers in the place of one: {data.strip()[:60]}")
            self.text.append(data)


def check(folder: Path) -> list[str]:
    """Return one line for each fault of the book built into `folder`."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts}
    if not pages or (folder / "index.html").resolve() not in pages:
        return [f"{folder} holds no book: no index.html"]
    faults = []
    for path, page in pages.items():
        text = "".join(page.text)
        result = page.faults + [f"shows a failure: {mark}" for mark in FAILURES if mark in text]
        result += [fault for link in page.links if (fault := _dead(link, path, folder, pages))]
        faults += [f"{path.relative_to(folder.resolve())}: {fault}" for fault in dict.fromkeys(result)]
    for sheet in sorted(folder.rglob("*.css")):
        for result in CSS_WEB.findall(sheet.read_text(encoding="utf-8", errors="replace")):
            faults.append(f"{sheet.relative_to(folder)}: loads {result}")
    return faults


def _dead(link: str, path: Path, folder: Path, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_relative_to(folder.resolve()) or not target.exists():
        return f"a link to nothing: {link}"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return f"a link to no such place: {link}"
    return None


def main() -> int:
    """Check the folder named on the command line."""
    if len(sys.argv) != 2:
        print("usage: python tests/book/check_html.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    faults = check(folder)
    for fault in faults:
        print(f"book: {fault}", file=sys.stderr)
    if not faults:
        n = sum(1 for _ in folder.rglob("*.html"))
        print(f"book: {n} pages, nothing loaded from a network, no failed cell, no dead link, every picture described")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
