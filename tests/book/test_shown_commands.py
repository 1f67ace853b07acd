"""Each command that the README, the book and the notebooks show is one that the program takes, as it stands there.

Words are parsed by the command itself, and parameters of a page are asked of the page's own rules; nothing runs.
"""

import json
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from click import ClickException, MissingParameter

from provlab import plugins
from provlab.cli import COMMANDS
from provlab.errors import ProvlabError
from provlab_study.publishing.parameters import assigned, checked, find_notebook

PROJECT = Path(__file__).parents[2]
NOTEBOOKS = PROJECT / "notebooks"
FILES = [PROJECT / "README.md", *sorted((PROJECT / "book").glob("*.md")), *sorted(NOTEBOOKS.glob("*.ipynb"))]
SHOWN = re.compile(r"(?:\$ )?(?:\S*bin/)?provlab (?=[a-z])(.*)")
#: what stands for words of the reader's: no command is taken literally with them
OPEN = re.compile(r"\.\.\.|…|\{|\b(PAGE|PLAN|NOTEBOOK|COMMAND)\b")
#: a file or a folder of the reader's, which is not here
ABSENT = re.compile(r"there is no file|does not exist|is no folder here|\[Errno 2\]")
#: shown since it is not whole: what TAB makes a name of
UNFINISHED = {"run llama"}


def shown(text: str) -> Iterator[str]:
    """Words behind ``provlab`` of each command in backticks, or in a line of a fenced block."""
    for block in re.findall(r"(?ms)^```[^\n]*\n(.*?)^```", text):
        for line in block.replace("\\\n", " ").splitlines():
            if found := SHOWN.fullmatch(line.strip()):
                yield found[1].partition(" #")[0].strip()
    for span in re.findall(r"`([^`]+)`", re.sub(r"(?ms)^```.*?^```", "", text)):
        if found := SHOWN.fullmatch(" ".join(span.split())):
            yield found[1]


def texts(path: Path) -> str:
    """Words of a page; of a notebook those of its cells, commands in strings of code included."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def refused(line: str) -> str:
    """Say what the program has against a line, "" where it takes it; a line may name a command and an option alone."""
    name, *words = shlex.split(line.partition(" > ")[0].partition(" | ")[0])
    if name not in (*COMMANDS, "help"):
        return f"there is no command {name}"
    if not words or name == "help" or "--help" in words:
        return ""
    entry = plugins.named(plugins.COMMANDS).get(name)
    command = import_module(entry.value if entry else f"provlab.cli.{name}").command
    try:
        given = command.make_context(name, list(words)).params  # it takes words out
        if name == "run" and not given["listing"]:
            path = find_notebook(given["notebook"])
            checked(path, assigned(path, given["parameters"]))
    except MissingParameter:
        return ""
    except (ClickException, ProvlabError) as error:
        said = error.message if isinstance(error, ClickException) else str(error)
        alone = len(words) == 1 and "requires an argument" in said
        return "" if alone or ABSENT.search(said) else said
    return ""


def test_each_command_that_is_shown_is_one_that_the_program_takes() -> None:
    lines = {(path.name, line) for path in FILES for line in shown(texts(path)) if not OPEN.search(line)}
    assert len(lines) > 100
    wrong = {where: said for where in sorted(lines) if where[1] not in UNFINISHED and (said := refused(where[1]))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("Run `provlab comprae a b`.", "there is no command comprae"),
        ("```\n$ .venv/bin/provlab compare zoo:oak zoo:elm --statistc phi_u  # both\n```", "No such option"),
        ("`provlab compare zoo:oak zoo:elm zoo:yew`", "extra argument"),
        ("`provlab run audit -p suspect=org/a -p base=org/b`", "give control too"),
        ("`provlab run llama_tree -p model=org/a,org/b`", "has no parameter 'model'"),
        ("`provlab run lama_tree -p seed=1`", "did you mean llama_tree"),
    ],
)
def test_a_planted_command_is_seen(planted: str, said: str) -> None:
    (line,) = shown(planted)
    assert said in refused(line)
