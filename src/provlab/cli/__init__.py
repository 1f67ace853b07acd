"""The commands of ``provlab``, one module each, in the order of `COMMANDS`.

A module offers ``add(parser)``, which says what the command takes and names the function that runs it; only the module
of the command that is given is imported. All but `compare` and `study` are found by the entry points
`provlab.commands`, as are those of other packages. `STATUSES` says what the exit status means.
"""

import argparse
import errno
import io
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path

from provlab import plugins, provenance
from provlab.cli import completion
from provlab.cli.arguments import Parser
from provlab.errors import InputError, ProvlabError, one_line
from provlab.files import cache_dir, closed_above
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
    "run": "run a notebook with your own parameters",
    "reproduce": "run the notebooks of a plan, skipping what is up to date",
    "zoo": "list or train the embedded models of known lineage",
    "claims": "judge the papers' claims from stored records",
    "plan": "estimate tensors, bytes, memory and hours of a study before it starts",
}

#: command -> what its help says first: the question that it answers, and an example that runs
ANSWERS = {
    "compare": (
        "Were two models trained independently? One sentence, the tests, and what would fool them.",
        "provlab compare zoo:oak zoo:oak-chat --statistic phi_u",
    ),
    "study": (
        "Which pairs of many models were not trained independently? Families first, then pairs by their verdict.",
        "provlab study zoo:oak zoo:oak-chat zoo:elm --statistic phi_u",
    ),
    "tree": (
        "Which models are of one family, which of two is later, and whose parent is shown?",
        "provlab tree zoo:oak zoo:oak-chat zoo:elm",
    ),
    "verify": (
        "Is a report right? Models are hashed, the question is asked again, and all is compared.",
        "provlab compare zoo:oak zoo:elm --statistic phi_u -o report && provlab verify report",
    ),
    "shelf": (
        "Which fingerprints of models are kept? They answer identify without the models.",
        "provlab shelf add zoo:oak zoo:elm --shelf shelf",
    ),
    "identify": (
        "Is a model kin of one on a shelf?",
        "provlab identify zoo:oak-chat --shelf shelf",
    ),
    "disguise": (
        "How would a thief hide a model? Exact attacks are proved by the outputs; of lossy ones the loss is measured.",
        "provlab disguise zoo:oak-chat hidden --with T1+split=3",
    ),
    "diff": (
        "Over which inputs do two models of one tokenizer disagree, and by how much?",
        "provlab diff zoo:oak zoo:oak-chat --sequences 400",
    ),
    "run": (
        "The study's pages on models of your own.",
        "provlab run --list",
    ),
    "reproduce": (
        "Are the papers' claims so? All notebooks of a plan; the ones that are up to date are skipped.",
        "",
    ),
    "zoo": ("Which models are embedded, and what was each made from?", "provlab zoo list 'oak*'"),
    "claims": ("Which claims of the papers hold, by the records of the last reproduction?", "provlab claims -v"),
    "plan": (
        "How many bytes, how much memory and how many hours does a study take?",
        "provlab plan zoo:oak zoo:elm --statistic phi_u",
    ),
}

#: command that takes two models -> what is said where more are given
_TOO_MANY = dict.fromkeys(
    ("compare", "diff"), "; two models are taken here, provlab study A B C tests all pairs of many"
)
#: the commands of the core; the others come by entry points, those of this package too
_CORE = ("compare", "study")
_HERE = "provlab.cli"
_LITTLE = 2**26  # bytes: a disk with less is full
_STUDY = "the study, which is no part of the library; in a checkout of provlab, make env installs both"
#: commands of other packages -> who brings them, and how they come
_ELSEWHERE = dict.fromkeys(("run", "reproduce", "claims"), _STUDY)

STATUSES = (
    "exit status: 0 the command ran, 1 it ran and --fail-on holds or verify refutes the report, "
    "2 it could not run (one line on stderr says why), 130 it was stopped"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    if sys.stdout is None:  # closed by the caller, as by >&-: what is opened first would take its place
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for the whole run)
    parser = Parser(
        prog="provlab",
        description="Were two language models trained independently, and where do they disagree?",
        epilog=f"provlab help COMMAND has an example and the options of one. {STATUSES}",
    )
    parser.add_argument("--version", action="version", version=f"provlab {metadata.version('provlab')}")
    commands = parser.add_subparsers(required=True, metavar="command", parser_class=Parser)
    line = completion.words_so_far()
    words = line if line is not None else sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] and words[0] in ("help", "-h", "--help"):
        words = [*words[1:2], "--help"]
    homes, chosen = _homes(), parser
    for name, home in homes.items():
        answers, example = ANSWERS.get(name, (None, ""))
        command_parser = commands.add_parser(
            name,
            help=COMMANDS.get(name, f"a command of {home.partition('.')[0]}"),
            description=answers,
        )
        if example:
            command_parser.offer_example(example)
        if words[:1] == [name]:
            chosen = command_parser
            import_module(home).add(command_parser)
    if line is not None:
        completion.answer(parser)
    for name in {*words[:1]} & (_ELSEWHERE.keys() - homes.keys()):
        return _failed(InputError(f"{name} is a command of {_ELSEWHERE[name]}"))
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        more = "" if unknown[0].startswith("-") else _TOO_MANY.get(words[0], "")
        chosen.error(f"unrecognized arguments: {' '.join(unknown)}{more}")
    _quiet()
    collect_seldom()
    try:
        command: Callable[[argparse.Namespace], int] = parsed.command
        return command(parsed)
    except KeyboardInterrupt:
        return _stopped(parsed)
    except Exception as error:
        if _from_an_interrupt(error):
            return _stopped(parsed)
        if os.environ.get("PROVLAB_DEBUG") and not isinstance(error, ProvlabError | OSError):
            raise
        return _failed(_by_flag(error, chosen), parsed)


def _by_flag(error: Exception, parser: argparse.ArgumentParser) -> Exception:
    """Name an option as it is written, where an error of the library begins with its name in Python."""
    name, _, rest = str(error).partition(" ")
    flags = {action.dest: max(action.option_strings, key=len) for action in parser._actions if action.option_strings}
    if isinstance(error, InputError) and flags.get(name, "--" + name) != "--" + name and rest.startswith("must "):
        return InputError(f"{flags[name]} {rest}")
    return error


def _homes() -> dict[str, str]:
    """Module of each command that there is here, in the order in which the help names them."""
    homes = {name: point.value for name, point in plugins.named(plugins.COMMANDS).items()}
    homes |= {name: f"{_HERE}.{name}" for name in _CORE}
    return {name: homes[name] for name in dict.fromkeys([*COMMANDS, *homes]) if name in homes}


def _from_an_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt is what an error came of, as when it falls into a library's own handler or a clean-up."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _stopped(parsed: argparse.Namespace) -> int:
    """Say so; commands that keep what is finished set `goes_on`."""
    kept = "; what was finished is kept, the same command goes on from there"
    print(f"provlab: stopped{kept if getattr(parsed, 'goes_on', False) else ''}", file=sys.stderr)
    return 130


def _failed(error: Exception, parsed: argparse.Namespace | None = None) -> int:
    """Say in one line what was wrong; the arguments name folders whose disk may be full."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; nothing is wrong
        return 0
    if isinstance(error, ProvlabError):
        print(f"provlab: error: {' '.join(str(error).split())}", file=sys.stderr)
    elif full := _full_disks(error, parsed):
        print(f"provlab: error: no room is left on the disk of {full[0]}; free some and go on", file=sys.stderr)
    elif isinstance(error, OSError):
        print(f"provlab: error: {_of_the_system(error)}", file=sys.stderr)
    else:
        print(
            f"provlab: internal error: {type(error).__name__}: {one_line(error)} (PROVLAB_DEBUG=1 shows where)",
            file=sys.stderr,
        )
    return 2


#: number of a system's error -> how a sentence about the file ends that it names
_SYSTEM = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "does not exist"),
    errno.EEXIST: "exists; name a new one",
    errno.EISDIR: "is a folder; name a file",
    errno.ENAMETOOLONG: "is a longer name than the disk takes; name a shorter one",
    errno.ELOOP: "is a link that leads to itself; name the file",
}


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


def _full_disks(error: Exception, parsed: argparse.Namespace | None) -> list[Path]:
    """Folders whose disk is full, where an error may mean that: libraries say it in words of their own."""
    words = "requested and" in str(error) or "space" in str(error).lower()
    if getattr(error, "errno", None) != errno.ENOSPC and not words:
        return []
    named = getattr(error, "filename", None)
    paths = [Path(value) for value in vars(parsed or argparse.Namespace()).values() if isinstance(value, str | Path)]
    around = [folder for path in paths for folder in (path, *path.parents) if os.path.isdir(folder)]
    usual = [provenance.results_root(), Path(tempfile.gettempdir()), cache_dir(), Path.cwd()]
    folders = [Path(named).parent] if named else [*around, *usual]
    return [folder for folder in folders if folder.is_dir() and shutil.disk_usage(folder).free < _LITTLE]


def _quiet() -> None:
    """Leave stderr to progress bars and our own errors; a letter that a stream cannot show is written by its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.disable(logging.ERROR)
