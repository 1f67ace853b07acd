"""Build the book as far as it has come: ``make preview``. Chapters that are still to be computed say so in one line.

Pages refer to chapters that are not there yet, so warnings are no errors here; they are in ``make book``.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import yaml

BOOK = Path(__file__).parent
GLUED = re.compile(r"```\{glue\} \S+\n:doc: experiments/(\w+)\.ipynb\n```")  # what a page shows of a computed one
WAITING = "*Still being computed.*"


def assemble(experiments: Path, folder: Path) -> tuple[int, int]:
    """Put the book together in `folder`; return how many of its computed pages are there, and how many will be."""
    for path in BOOK.iterdir():
        if path.name not in ("experiments", "__pycache__"):
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, folder / path.name)
    shutil.copy2(BOOK.parent / "notebooks" / "profiles" / "paper.costs.csv", folder)
    (folder / "experiments").mkdir()
    toc = yaml.safe_load((BOOK / "_toc.yml").read_text(encoding="utf-8"))
    pages = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    names = [page.removeprefix("experiments/") for page in pages if page.startswith("experiments/")]
    there = [name for name in names if (experiments / f"{name}.ipynb").is_file()]
    for name in names:
        if name in there:
            shutil.copy2(experiments / f"{name}.ipynb", folder / "experiments")
            continue
        title = nbformat.read(BOOK.parent / "notebooks" / f"{name}.ipynb", as_version=4).cells[0].source.splitlines()[0]
        text = (
            f"{title}\n\n*Still being computed: {len(there)} of {len(names)} pages are there. Load this one again.*\n"
        )
        (folder / "experiments" / f"{name}.md").write_text(text, encoding="utf-8")
    for page in folder.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        kept = GLUED.sub(lambda glued: glued[0] if glued[1] in there else WAITING, text)
        page.write_text(re.sub(f"({re.escape(WAITING)}\\n\\n)+", f"{WAITING}\n\n", kept), encoding="utf-8")
    return len(there), len(names)


def main(build: Path, finished: Path) -> None:
    """Build a preview from the pages under `build` and put it where the finished book will be."""
    computed = max((page.stat().st_mtime for page in (build / "book" / "experiments").glob("*.ipynb")), default=0.0)
    if (finished / "index.html").is_file() and (finished / "index.html").stat().st_mtime > computed:
        return
    folder = build / "preview"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "book").mkdir(parents=True)
    n_there, n_pages = assemble(build / "book" / "experiments", folder / "book")
    if n_there == n_pages:  # the whole book is built next
        return
    tool = Path(sys.executable).with_name("jupyter-book")
    made = subprocess.run(
        [tool, "build", folder / "book", "--config", BOOK.parent / "_config.yml", "--path-output", folder, "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    (folder / "build.log").write_bytes(made.stdout)
    html = folder / "_build" / "html"
    if made.returncode or not html.is_dir():
        sys.stdout.write(f"no preview of the book could be built; see {folder / 'build.log'}\n")  # the study goes on
        return
    shutil.rmtree(finished, ignore_errors=True)
    os.replace(html, finished)
    sys.stdout.write(f"{n_there} of {n_pages} pages of the book can be read: {finished / 'index.html'}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
