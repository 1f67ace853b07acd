"""Build the whole book as one PDF from pages that have been computed: ``make pdf``.

The same sources as the HTML book, put together anew with three changes: code that folds away on the screen is left
out, every figure is its still picture, and each part of the contents begins on a page of its own. The result is
counted against the pages: no figure, equation or chapter may be missing, no reference open.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import yaml
from bs4 import BeautifulSoup

BOOK = Path(__file__).parent
ROOT = BOOK.parent
TOOLS = ("latexmk", "xelatex", "makeindex", "kpsewhich")
# files of the Debian packages beyond the programs' own
FILES = ("fncychap.sty", "tabulary.sty", "pdflscape.sty", "polyglossia.sty", "FreeSerif.otf")
PACKAGES = "latexmk texlive-xetex texlive-latex-recommended texlive-latex-extra fonts-freefont-otf"
PREAMBLE = r"""
% where a long word in a table may be broken
\catcode"200B=\active
\protected\def^^^^200b{\hspace{0pt}}
% a sign that the bold type lacks
\catcode"2717=\active
\protected\def^^^^2717{{\mdseries\char"2717\relax}}
% a picture stays where it is spoken of, with room for its caption
\usepackage{float}
\usepackage{pdflscape}
\makeatletter
\AtBeginDocument{\spx@image@maxheight0.78\textheight}
\makeatother
\setlength{\emergencystretch}{3em}
\hypersetup{bookmarksdepth=2}
"""
GLUED = "application/papermill.record/"
LATEX: dict[str, Any] = {
    "latex_engine": "xelatex",
    "latex_use_xindy": False,
    "latex_domain_indices": False,
    "latex_show_urls": "no",
    "latex_table_style": ["booktabs", "colorrows"],
    "nb_mime_priority_overrides": [["latex", "text/html", 1]],
    "latex_elements": {
        "papersize": "a4paper",
        "pointsize": "10pt",
        "extraclassoptions": "openany,oneside",
        "figure_align": "H",
        "preamble": PREAMBLE,
        "fvset": r"\fvset{fontsize=\scriptsize}",  # what commands print is up to 110 characters wide
        "tableofcontents": r"\setcounter{tocdepth}{0}\sphinxtableofcontents",
    },
}


def missing() -> str | None:
    """Say in one line what is missing for LaTeX, or None."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if not absent:
        absent = [name for name in FILES if subprocess.run(["kpsewhich", name], capture_output=True).returncode]
    if not absent:
        return None
    return f"no PDF without LaTeX ({', '.join(absent)} not found); on Debian: apt-get install {PACKAGES}"


def contents() -> tuple[list[str], dict[str, str]]:
    """Pages of the book in order, without the first, and the part that begins with a page."""
    toc = yaml.safe_load((BOOK / "_toc.yml").read_text(encoding="utf-8"))
    parts = {part["chapters"][0]["file"]: part["caption"] for part in toc["parts"]}
    return [page for part in toc["parts"] for chapter in part["chapters"] for page in _pages(chapter)], parts


def _pages(entry: dict[str, Any]) -> list[str]:
    return [entry["file"], *(page for section in entry.get("sections", []) for page in _pages(section))]


def assemble(experiments: Path, folder: Path) -> None:
    """Put the book together in `folder` as it is printed."""
    for path in BOOK.iterdir():
        if path.name not in ("experiments", "__pycache__"):
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, folder / path.name)
    # the first page stands before all parts and chapters: its sections are none
    index = folder / "index.md"
    index.write_text(
        re.sub(r"^##+ (.+)$", r"**\1**", index.read_text(encoding="utf-8"), flags=re.MULTILINE), encoding="utf-8"
    )
    (folder / "experiments").mkdir()
    pages, parts = contents()
    for page in pages:
        part = f"```{{raw}} latex\n\\part{{{parts[page]}}}\n```" if page in parts else ""
        if not page.startswith("experiments/"):
            path = folder / f"{page}.md"
            if part:
                path.write_text(f"{part}\n\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
            continue
        notebook = nbformat.read(experiments.parent / f"{page}.ipynb", as_version=4)
        for cell in notebook.cells:
            printed(cell)
        if part:
            notebook.cells.insert(0, nbformat.v4.new_markdown_cell(part))
        nbformat.write(notebook, folder / f"{page}.ipynb")


def printed(cell: nbformat.NotebookNode) -> None:
    """Change a cell into what is printed of it: no folded code, and the still picture of a figure with its caption."""
    tags = cell.metadata.get("tags", [])
    removed = {"hide-input": "remove-input", "hide-cell": "remove-cell"}
    cell.metadata["tags"] = [removed.get(tag, tag) for tag in tags]
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        for glued in ("", GLUED):  # as a cell shows it, and as another page takes it over
            if not {f"{glued}image/png", f"{glued}text/html"} <= data.keys():
                continue
            caption = BeautifulSoup(data[f"{glued}text/html"], "html.parser").find("figcaption")
            image = "".join(data[f"{glued}image/png"].split())
            data[f"{glued}text/html"] = f'<figure><img src="data:image/png;base64,{image}"/>{caption or ""}</figure>'


def configuration(folder: Path) -> Path:
    """Write the book's configuration with what LaTeX needs besides, and return its path."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["sphinx"]["config"] |= LATEX
    config["sphinx"]["config"]["extensions"].append("printed")
    config["sphinx"]["local_extensions"] = {"page_links": str(BOOK), "printed": str(BOOK)}
    config["latex"] = {"latex_engine": "xelatex", "use_jupyterbook_latex": False}
    config["latex"]["latex_documents"] = {"targetname": "book.tex"}
    path = folder / "_config.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


MATHS = re.compile(r"^\$\$.+?\$\$|^\\begin\{(align|equation|gather)\*?\}", re.DOTALL | re.MULTILINE)
PICTURES = re.compile(r"!\[[^\]]*\]\(|^[`:]{3,}\{(?:image|figure)\}|<img", re.MULTILINE)


def expected(folder: Path) -> tuple[int, int, list[str]]:
    """Count the pictures and the equations of the assembled pages, and list the headings of all but the first."""
    pictures, equations, headings = 0, 0, []
    for page in ["index", *contents()[0]]:
        if page.startswith("experiments/"):
            notebook = nbformat.read(folder / f"{page}.ipynb", as_version=4)
            text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
            data = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
            pictures += sum(PICTURES.search(one.get("text/html", "")) is not None for one in data)
        else:
            text = (folder / f"{page}.md").read_text(encoding="utf-8")
        pictures += len(PICTURES.findall(text))
        equations += len(MATHS.findall(text))
        headings += re.findall(
            r"^# (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
        )[:1]
    return pictures, equations, headings[1:]


def letters(text: str) -> str:
    """Only the letters of a heading, as Markdown or LaTeX has it."""
    return re.sub(r"\\[A-Za-z]+|[^a-z]", "", text.replace("\\", " \\").lower())


def faults(folder: Path, tex: str, log: str) -> list[str]:
    """Count what LaTeX was given, and how it went, against the pages; one line for each fault."""
    pictures, equations, headings = expected(folder)
    found = []
    if (there := tex.count("includegraphics")) < pictures:
        found.append(f"{pictures - there} of {pictures} pictures are missing")
    if (there := len(re.findall(r"\\begin\{(equation|align|gather)\*?\}", tex))) < equations:
        found.append(f"{equations - there} of {equations} equations are missing")
    chapters = {letters(title) for title in re.findall(r"^\\(?:chapter|section)\*?\{(.+)\}$", tex, re.MULTILINE)}
    found += [f"no chapter {heading!r}" for heading in headings if letters(heading) not in chapters]
    found += sorted(set(re.findall(r"(?:Reference|Citation) `[^']+' on page \S+ undefined", log)))
    return found


def notices(log: str) -> list[str]:
    """Return what a reader may see, and no check can mend."""
    absent = sorted(set(re.findall(r"Missing character: There is no (\S+)", log)))
    wide = [width for width in re.findall(r"Overfull \\hbox \((\d+)\.\d*pt", log) if int(width) > 20]
    return [f"letters without a glyph: {' '.join(absent)}"] * bool(absent) + [
        f"{len(wide)} lines stick out, the widest by {max(map(int, wide))} points" for _ in wide[:1]
    ]


def refused(line: str) -> int:
    """Write one line, and return the exit status."""
    sys.stderr.write(f"make pdf: {line}\n")
    return 2


def build(profile: str) -> int:
    """Build the PDF of the pages of a profile."""
    started = time.monotonic()
    pages = ROOT / "_build" / profile / "book"
    if absent := [
        page for page in contents()[0] if page.startswith("experiments/") and not (pages / f"{page}.ipynb").is_file()
    ]:
        n = len(absent)
        return refused(
            f"{n} page{'s' * (n > 1)} of {profile} not computed yet ({absent[0]}); make notebooks PROFILE={profile}"
        )
    folder = pages.parent / "pdf"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "book").mkdir(parents=True)
    assemble(pages / "experiments", folder / "book")
    tool = Path(sys.executable).with_name("jupyter-book")
    options = ["--builder", "latex", "-W", "-n", "--keep-going", "--all", "-q"]
    command = [tool, "build", folder / "book", "--config", configuration(folder), "--path-output", folder, *options]
    if not ran(command, folder / "build.log", ROOT):
        return refused(f"the book cannot be built; see {folder / 'build.log'}")
    latex = folder / "_build" / "latex"
    if not ran(["latexmk", "-xelatex", "-interaction=nonstopmode", "-silent", "book.tex"], folder / "latex.log", latex):
        return refused(f"LaTeX failed; see {latex / 'book.log'}")
    tex, log = (latex / "book.tex").read_text(encoding="utf-8"), unfolded(latex / "book.log")
    if wrong := faults(folder / "book", tex, log):
        for fault in wrong:
            refused(fault)
        return 1
    for notice in notices(log):
        sys.stdout.write(f"pdf: {notice}\n")
    finished = pages.parent / "book.pdf"
    os.replace(latex / "book.pdf", finished)
    pictures, equations, headings = expected(folder / "book")
    n_pages = re.search(r"Output written on \S+ \((\d+) pages", log)
    sys.stdout.write(
        f"{finished}: {n_pages[1] if n_pages else '?'} pages, {len(headings)} chapters, {pictures} pictures,"
        f" {equations} equations, {finished.stat().st_size / 1e6:.1f} MB, in {time.monotonic() - started:.0f} s\n"
    )
    return 0


def ran(command: list[Any], log: Path, folder: Path) -> bool:
    """Run a command with its output in a file; whether it succeeded."""
    with log.open("wb") as stream:
        return subprocess.run(command, cwd=folder, stdout=stream, stderr=subprocess.STDOUT).returncode == 0


def unfolded(log: Path) -> str:
    """Text of a log of TeX, whose lines are folded at 79 characters."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return "".join(line if len(line) == 79 else f"{line}\n" for line in lines)


def main(arguments: list[str]) -> int:
    """``--tools``: only say whether LaTeX is here; PROFILE: build its PDF."""
    if fault := missing():
        return refused(fault)
    return 0 if arguments == ["--tools"] else build(*arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
