"""Plain English: phrases and names that stop a reader, found in comments, docstrings, messages, names and documents.

Run by ``make lint`` over the whole project; ``python tests/language/plain.py src/provlab/cli`` reads what is named.
A line that quotes somebody else's words ends with ``plain: quoted``.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: what is read unless paths are given
PLACES = (
    "src",
    "tests",
    "benchmarks",
    "book",
    "notebooks",
    "README.md",
    "DESIGN.md",
    "CONTRIBUTING.md",
    "Makefile",
)
#: files in folders; lines of a notebook are those of its words, cell after cell
READ = (".py", ".md", ".ipynb")
#: planted examples stand here
EXCEPT = ("tests/language",)
START = r"(?:^|[.!?:;]\s+|\(|[-*]\s+)"
#: each phrase, with what to write in its place
PHRASES = {
    START.replace("^", r"^\s*") + r"Of\s+(?!course\b)": 'a sentence that begins with "Of": begin with the subject',
    START + r"(?:[Ww]ho|[Ww]hoever)\s+\w": '"who" as a subject: name the actor (a reader, a caller, the worker)',
    r"\b(?:whoever|whosoever|whichever one)\b": "name the actor",
    r"\b(?:to|for|by|from|that|as|than|if|where|when|so|and|but|tells|shows)\s+who\s+\w": (
        '"who" without a noun: name the actor'
    ),
    START
    + r"What\s+[^?\n]*\b(?:is|are|was|were|has|have|needs?|comes?|goes|stays?|takes?)\b[^?\n]*(?:\.(?:\s|$)|:\s|$)": (
        '"What ..." as a subject: name the thing'
    ),
    r"\b(?:hold|holds|held|holding)\s+(?:\w+\s+){0,4}against\b": 'write "compare with"',
    r"\bbesides\b": 'write "also", "additional", "and"',
    r"\b(?:is|are|was|were|be|been)\s+told\b|\btells? (?:of|apart)\b|\btold (?:of|by|to)\b": (
        'write "reported", "stated"'
    ),
    r"\b(?:floor|floors|room|rooms|house)\s+(?:of|under|above|below|in)\s+the\s+(?:code|house|library|plan)\b": (
        'write "layer", "module", "project"'
    ),
    r"\bthe (?:house|rooms?) (?:rule|style)\b|\bhouse (?:rule|style)\b": 'write "project"',
    r"\b(?:befell|befalls|on its behalf|stands behind|in hand\b|comes by\b|is rid of|rid of its own)": (
        "use the field's word"
    ),
    r"\ball the same\b|\bit is said\b|\bis said by\b|\bare said by\b|\bwhat (?:it|they) (?:is|are) called\b": (
        "say it directly"
    ),
    r"\baccus(?:es?|ed|ing) for\b": 'write "rejects"',
    r"\bfor its (?:own )?sake\b|\bin vain\b|\bafresh\b|\banew\b": "use a common word",
}
PATTERNS = {re.compile(pattern, re.MULTILINE): advice for pattern, advice in PHRASES.items()}
#: participles and pronouns that name no value: a value is a noun (`matches`, `message`, `errors`)
NAMES = frozenset({"one", "found", "told", "said", "asked", "seen", "wanted", "befell", "given", "taken", "heard"})


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and strings of a Python file, or the paragraphs of any other, each with its first line."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(source)["cells"]
        yield 1, "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        return
    if path.suffix != ".py":
        yield 1, source
        return
    comment: list[str] = []
    begun = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if not comment:
                begun = token.start[0]
            comment.append(token.string.lstrip("#: "))
        elif comment and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            yield begun, "\n".join(comment)
            comment = []
        if token.type == tokenize.STRING and " " in token.string:
            try:
                value = ast.literal_eval(token.string)
            except (ValueError, SyntaxError):  # an f-string
                value = token.string
            if isinstance(value, str):
                yield token.start[0], value


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Names that a file gives to functions, arguments and variables; fields of records keep theirs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef):
            yield node.lineno, node.name


def faults(path: Path) -> list[str]:
    """Each fault of one file as ``line: fault``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    bad = []
    for first, text in texts(path):
        for pattern, advice in PATTERNS.items():
            for match in pattern.finditer(text):
                line = first + text.count("\n", 0, match.end())
                if "plain: quoted" not in lines[min(line, len(lines)) - 1]:
                    words = " ".join(match.group().split())[:60]
                    bad.append((line, f"{words!r}: {advice}"))
    if path.suffix == ".py":
        bad += [(line, f"the name {name!r}: a value is a noun") for line, name in names(path) if name in NAMES]
    return [f"{line}: {fault}" for line, fault in sorted(set(bad))]


def files(places: list[Path]) -> Iterator[Path]:
    """Files that are read, below each place."""
    for place in places:
        inside = [path for path in sorted(place.rglob("*")) if path.suffix in READ] if place.is_dir() else [place]
        for path in inside:
            if not path.resolve().is_relative_to(ROOT) or not str(path.resolve().relative_to(ROOT)).startswith(EXCEPT):
                yield path


def main() -> int:
    """Print the faults; 1 if there are any."""
    places = [Path(name) for name in sys.argv[1:]] or [ROOT / name for name in PLACES]
    bad = [f"{path}:{fault}" for path in files(places) for fault in faults(path)]
    print("\n".join(bad), end="\n" if bad else "")  # noqa: T201
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
