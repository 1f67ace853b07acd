"""The commands of ``provlab``, one module each, in the order of `COMMANDS`.

A module has its `command`, one of click's; only the module of the command that is given is imported. All but `compare`
and `study` are found by the entry points `provlab.commands`, as are those of other packages.
"""

import io
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import rich_click as click
from click.exceptions import Exit

from provlab import plugins
from provlab.cli import completion, failures
from provlab.cli.command import LOOK, CommandGroup
from provlab.errors import InputError
from provlab.processes import collect_seldom

#: command -> what it does, in the order in which the help names them
COMMANDS = {
    "compare": "test a pair of models",
    "study": "test all pairs of many models",
    "tree": "find the families of many models, which is later, and whose parent is shown",
    "verify": "recompute a report from the models that it names",
    "shelf": "keep fingerprints of models",
    "identify": "say which models of a shelf a model is kin of",
    "disguise": "write a model as an adversary would show it, outputs proved or the loss told",
    "diff": "say over which inputs two models disagree",
    "check": "judge what a vendor says of models, a claim a line",
    "run": "run a notebook with your own parameters",
    "book": "write a profile of your own models, which make reproduce binds as a book",
    "reproduce": "run the notebooks of a plan, skipping what is up to date",
    "zoo": "list or train the embedded models of known lineage",
    "claims": "judge the papers' claims from stored records",
    "plan": "estimate tensors, bytes, memory and hours of a study before it starts",
}
#: the commands of the core; the others come by entry points, those of this package too
_CORE = ("compare", "study")
_STUDY = "the study, which is no part of the library; in a checkout of provlab, make env installs both"
#: commands of other packages -> who brings them, and how they come
_ELSEWHERE = dict.fromkeys(("run", "book", "reproduce", "claims"), _STUDY)


class _Stub(click.RichCommand):
    """A command as help lists it; its module is imported when it is given."""

    def __init__(self, name: str, home: str) -> None:
        what = COMMANDS.get(name, f"a command of {home.partition('.')[0]}")
        super().__init__(name=name, short_help=what, hidden=not home)
        self.home = home

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words behind the command."""
        if not self.home:
            raise InputError(f"{self.name} is a command of {_ELSEWHERE[self.name or '']}")
        return import_module(self.home).command.make_context(info_name, args, parent, **extra)


def commands() -> CommandGroup:
    """All commands that there are here."""
    homes = {name: point.value for name, point in plugins.named(plugins.COMMANDS).items()}
    homes |= {name: f"{__name__}.{name}" for name in _CORE}
    names = [name for name in dict.fromkeys([*COMMANDS, *homes]) if name in homes or name in _ELSEWHERE]
    group = CommandGroup(
        name="provlab",
        commands={name: _Stub(name, homes.get(name, "")) for name in names},
        help="Were two language models trained independently, and where do they disagree?\n\n"
        "provlab help COMMAND has an example and the options of one.",
        epilog=failures.STATUSES,
        context_settings=LOOK,
    )
    version = click.version_option(package_name="provlab", message="provlab %(version)s", help="show the version")
    return version(group)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    if sys.stdout is None:  # closed by the caller, as by >&-: what is opened first would take its place
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for the whole run)
    group = commands()
    if completion.ASKED in os.environ:
        return completion.answer(group)
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] and words[0] in ("help", "-h", "--help"):
        words = [*words[1:2], "--help"]
    try:
        with group.make_context("provlab", words) as context:
            _quiet()
            collect_seldom()
            return group.invoke(context)
    except (click.ClickException, Exit) as error:
        return failures.status(error)


def _quiet() -> None:
    """Leave stderr to progress bars and our own errors; a letter that a stream cannot show is written by its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.disable(logging.ERROR)
