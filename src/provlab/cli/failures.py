"""Failures of a command: one line on stderr with the way out, and the exit status."""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rich_click as click
from click.exceptions import Exit

from provlab import provenance
from provlab.errors import InputError, ProvlabError, one_line
from provlab.extras import missing
from provlab.files import cache_dir, closed_above

STATUSES = (
    "exit status: 0 the command ran, 1 it ran and --fail-on holds or verify refutes the report, "
    "2 it could not run (one line on stderr says why), 130 it was stopped"
)
_LITTLE = 2**26  # bytes: a disk with less is full
#: number of a system's error -> how a sentence about the file ends that it names
_SYSTEM = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "does not exist"),
    errno.EEXIST: "exists; name a new one",
    errno.EISDIR: "is a folder; name a file",
    errno.ENAMETOOLONG: "is a longer name than the disk takes; name a shorter one",
    errno.ELOOP: "is a link that leads to itself; name the file",
}


def status(error: BaseException, context: click.Context | None = None) -> int:
    """Say in one line what ended a command, and return its exit status; `context` has what the command was given.

    With PROVLAB_DEBUG set, an error of the program is raised.
    """
    if isinstance(error, Exit):  # help and version leave so
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; nothing is wrong
        return 0
    if _from_an_interrupt(error):
        kept = getattr(context and context.command, "goes_on", False)
        _say(f"stopped{'; what was finished is kept, the same command goes on from there' if kept else ''}")
        return 130
    if isinstance(error, click.ClickException):
        _say(f"error: {_of_the_line(error)}")
    elif isinstance(error, ProvlabError):
        _say(f"error: {_by_flag(error, context)}")
    elif isinstance(error, ModuleNotFoundError) and (told := missing(error)):
        _say(f"error: {told}")
    elif full := _full_disks(error, context.params if context else {}):
        _say(f"error: no room is left on the disk of {full[0]}; free some and go on")
    elif isinstance(error, OSError):
        _say(f"error: {_of_the_system(error)}")
    elif os.environ.get("PROVLAB_DEBUG"):
        raise error
    else:
        _say(f"internal error: {type(error).__name__}: {one_line(error)} (PROVLAB_DEBUG=1 shows where)")
    return 2


def _say(sentence: str) -> None:
    print("provlab:", " ".join(sentence.split()), file=sys.stderr)


def _from_an_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt is what an error came of, as when it falls into a library's own handler or a clean-up."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _of_the_line(error: click.ClickException) -> str:
    """What click says of a command line, with what must be given, and where to read more."""
    message = error.format_message().removesuffix(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if isinstance(error, click.MissingParameter):
        message += f"; give {context.command_path} {' '.join(context.command.collect_usage_pieces(context))}"
    if isinstance(context.command, click.Group) and not getattr(error, "possibilities", None):
        message += f"; there are {', '.join(context.command.list_commands(context))}"
    if "extra argument" in message:
        message += getattr(context.command, "surplus", "")
    return f"{message} (see {context.command_path} --help)"


def _by_flag(error: ProvlabError, context: click.Context | None) -> str:
    """An error's sentence; an option is named as it is written where it begins with its name in Python."""
    name, _, rest = str(error).partition(" ")
    flags = {option.name: max(option.opts, key=len) for option in context.command.params} if context else {}
    named = isinstance(error, InputError) and name in flags and rest.startswith("must ")
    return f"{flags[name]} {rest}" if named else str(error)


def _of_the_system(error: OSError) -> str:
    """Say of a system's error what it means for the file that it names, with the way out."""
    if error.filename is None or isinstance(error.filename, int):
        return one_line(error.strerror or error)
    path = Path(os.path.abspath(os.fsdecode(error.filename)))
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{path} {_SYSTEM.get(error.errno or 0, f'cannot be used: {one_line(error.strerror or error)}')}"
    closed = closed_above(path)
    if closed is None or (error.errno != errno.EROFS and (closed == path or not os.access(closed, os.X_OK))):
        return f"this user may not open {path}; change its permissions, or name another"
    kept = {cache_dir(): "PROVLAB_CACHE", provenance.results_root(): "PROVLAB_RESULTS"}
    by = next((f" by {name}" for root, name in kept.items() if path.is_relative_to(os.path.abspath(root))), "")
    return f"this user may not write in {closed}; name a folder of your own{by}"


def _full_disks(error: BaseException, values: Mapping[str, Any]) -> list[Path]:
    """Folders whose disk is full, where an error may mean that: libraries say it in words of their own."""
    words = "requested and" in str(error) or "space" in str(error).lower()
    if getattr(error, "errno", None) != errno.ENOSPC and not words:
        return []
    named = getattr(error, "filename", None)
    paths = [Path(value) for value in values.values() if isinstance(value, str | Path)]
    around = [folder for path in paths for folder in (path, *path.parents) if os.path.isdir(folder)]
    usual = [provenance.results_root(), Path(tempfile.gettempdir()), cache_dir(), Path.cwd()]
    folders = [Path(named).parent] if named else [*around, *usual]
    return [folder for folder in folders if folder.is_dir() and shutil.disk_usage(folder).free < _LITTLE]
