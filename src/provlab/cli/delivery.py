"""Where an answer goes: the terminal, a file, a folder that others recompute. A closed one is refused first."""

import json as as_json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from provlab import plugins, provenance
from provlab.cli.screen import show
from provlab.errors import InputError
from provlab.files import atomic_file, cache_dir, closed_above

if TYPE_CHECKING:
    from provlab.report.card import Card
    from provlab.report.views import Report


class OutputFile(click.ParamType):
    """A file that can be written, with an `ending` where it must have one; without, ``-`` is standard output."""

    name = "FILE"

    def __init__(self, ending: str = "") -> None:
        self.ending = ending

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        path = Path(value)
        if value == "-" and not self.ending:
            return value
        if not path.parent.is_dir():
            self.fail(f"{path.parent} is no folder, so {path.name} cannot be written there; make it first", param, ctx)
        if path.is_dir():
            also = "" if self.ending else ", or - for standard output"
            self.fail(f"{path} is a folder; give a file name{also}", param, ctx)
        if self.ending not in ("", path.suffix):
            self.fail(f"{value} is no name of such a file; give one that ends in {self.ending}", param, ctx)
        check_open(path)
        return value


class OutputFolder(click.ParamType):
    """A folder that can be written, which may have to be `new`."""

    name = "FOLDER"

    def __init__(self, *, new: bool = False) -> None:
        self.new = new

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        if self.new and Path(value).exists():
            self.fail(f"{value} exists; name a new folder", param, ctx)
        if Path(value).is_file():
            self.fail(f"{value} is a file; give a folder", param, ctx)
        check_open(Path(value))
        return value


VERBOSE = click.option("-v", "--verbose", is_flag=True, help="print all of the result, with assumptions")
JSON = click.option("--json", type=OutputFile(), help="write everything as JSON; - is standard output")
RESULTS = click.option(
    "--results",
    type=OutputFolder(),
    help="folder of finished work, from which the command goes on after a stop (default: below _results/ of a "
    "checkout, else in the cache)",
)


def report(command: Any) -> Any:
    """Let a command write a folder that ``provlab verify`` recomputes, where that is installed."""
    if "verify" not in plugins.named(plugins.COMMANDS):
        return command
    what = "write a folder that provlab verify recomputes: page, JSON, in-toto statement, CycloneDX pedigree"
    return click.option("-o", "--report", type=OutputFolder(new=True), help=what)(command)


def check_open(path: Path, elsewhere: str = "name a place of your own") -> None:
    """Refuse a place in which this user may not write, before any work is done for it.

    Raises
    ------
    InputError
        If it is closed; `elsewhere` is what the message ends with.
    """
    if closed := closed_above(path):
        raise InputError(f"this user may not write in {closed}; {elsewhere}")


def store_root(named: str | None) -> Path:
    """Folder of finished units of work: as named, else below a project's results, else in the cache.

    Raises
    ------
    InputError
        If this user may not write in the folder that PROVLAB_RESULTS names.
    """
    if named:
        return Path(named)
    results = provenance.results_root()
    if "PROVLAB_RESULTS" in os.environ:
        check_open(results)
        return results / "own"
    # a checkout in which this user may not write is read as any other folder is
    inside = (provenance.project_root() / "notebooks").is_dir() and not closed_above(results / "own")
    return (results if inside else cache_dir()) / "own"


def seconds_between_bars() -> float:
    """Return how often a terminal is shown how far the work is, and a file into which stderr goes."""
    return 1.0 if sys.stderr.isatty() else 60.0


def write_report(folder: str | None, question: str, settings: Mapping[str, Any], result: Any) -> None:
    """Write a result, with the settings that it was asked with, as a folder where that was asked, `afterwards`."""
    if folder is not None:
        write = plugins.named(plugins.COMMANDS)["verify"].load().write
        afterwards(lambda: write(Path(folder), question, settings, result))


def afterwards(write: Callable[[], Any]) -> None:
    """Write something when the command has printed its answer, which no fault of a file then withholds."""
    context = click.get_current_context()
    assert context is not None
    context.call_on_close(write)


def deliver(
    json: str | None, content: Callable[[], Any], shown: "str | Report | Card", *, verbose: bool = False
) -> None:
    """Print a result as text, then write it as JSON where that was asked; ``-`` is JSON on standard output alone."""
    if json != "-":
        _print(shown, verbose=verbose)
        sys.stdout.flush()
    if json:
        write_json(json, content)


def write_json(json: str, content: Callable[[], Any]) -> None:
    """Write a result as JSON; ``-`` is standard output."""
    written = as_json.dumps(content(), indent=1, allow_nan=False) + "\n"
    if json == "-":
        sys.stdout.write(written)
        return
    write_text(json, written)


def write_text(path: str, text: str) -> None:
    """Write a file, whole or not at all."""
    with atomic_file(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _print(shown: "str | Report | Card", *, verbose: bool) -> None:
    if isinstance(shown, str):
        print(shown)
        return
    show(shown, verbose=verbose)
