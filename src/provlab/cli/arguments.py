"""Arguments of several commands: statistics and their options, blocks, a file for JSON."""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, NoReturn

from provlab import plugins, provenance
from provlab import statistics as registry
from provlab.cli import completion
from provlab.cli.completion import completed
from provlab.errors import CheckpointError, InputError, ProvlabError, nearest
from provlab.files import atomic_file, cache_dir, closed_above
from provlab.models.part import NAMES as PARTS
from provlab.models.part import split
from provlab.models.sources import unknown

if TYPE_CHECKING:
    from provlab.report.card import Card
    from provlab.report.views import Report

MAX_BLOCKS = 10_000  # more than any model has: a mistyped range must not fill the memory

#: option -> field of `provlab.statistics.options.Options`, which has the defaults; its type, its value's name, and help
SETTINGS: dict[str, tuple[str, type, str | None, str]] = {
    "--device": (
        "device",
        str,
        None,
        "where models run and their weights are multiplied: cpu, cuda, cuda:1 (default: cpu)",
    ),
    "--dtype": ("dtype", str, None, "precision of activations (default: float32)"),
    "--seed": ("seed", int, None, "seed of random tokens and permutations (default: 0)"),
    "--permutations": ("n_permutations", int, "T", "permutations of PERMTEST for phi_l2 (default: 99)"),
    "--sequences": ("n_sequences", int, "N", "input sequences for activations (default: 32)"),
    "--sequence-length": ("sequence_length", int, "N", "tokens in each sequence (default: 64)"),
    "--activation-tokens": ("activation_tokens", int, "N", "token positions kept, a fixed sample (default: 16384)"),
}

_WRONG = re.compile(r"unrecognized arguments: (?:[^-]\S* )*(--?\S+)|invalid choice: '([^']*)'")  # as argparse says it
_MISSING = re.compile(r"the following arguments are required: (.*)")
_NO_NUMBER = re.compile(r"argument (\S+): invalid (int|float) value: (.*)")
_NO_VALUE = re.compile(r"argument (\S+): expected (?:one|at least one) argument")
_CHOICE = re.compile(r"[\w.-]+")


class _Help(argparse.HelpFormatter):
    """Keeps words whole and paragraphs apart; the usage names what must be given, and the rest as ``[options]``."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        """Add the first line."""
        needed = [action for action in actions if action.required or not action.option_strings]
        options = [argparse.Action([], "options", nargs="?")] * (len(needed) < len(actions))
        super().add_usage(usage, [*options, *needed], [], prefix)

    def add_argument(self, action: argparse.Action) -> None:
        """Add one, and leave room for the names of commands, which are set in twice."""
        super().add_argument(action)
        self._action_max_length += 2 * isinstance(action, argparse._SubParsersAction)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
        filled = [
            fill(part, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
            for part in paragraphs
        ]
        return "\n\n".join(filled)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; `more` gives what the help ends with, found only when it is asked for."""

    more: Callable[[], str] | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **settings})

    def format_help(self) -> str:
        """Return the help, and what `more` adds."""
        if self.more:
            self.epilog = self.more()
        return super().format_help()

    def offer_example(self, line: str) -> None:
        """Put an example that runs below the question which the command answers."""
        self.description = f"{self.description}\n\nexample: {line}"

    words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Keep the words, for what is said of a wrong one."""
        self.words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print one line, with the word that was meant, and leave with 2."""
        message = self._in_words(message)
        word = _WRONG.search(message)
        if word and word[1] is not None:
            message += nearest(word[1].partition("=")[0], self._option_string_actions)
        elif word:
            message += nearest(word[2], _CHOICE.findall(message.partition("(choose from")[2]))
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

    def _in_words(self, message: str) -> str:
        """What argparse says of its own types and names, as a sentence about the command line."""
        options = [word.partition("=")[0] for word in self.words if word.startswith("--") and word != "--"]
        strange = [word for word in options if not any(flag.startswith(word) for flag in self._option_string_actions)]
        if missing := _MISSING.match(message):
            if strange:
                return f"unrecognized arguments: {strange[0]}"
            usage = " ".join(self.format_usage().split()[1:])
            # argparse counts words of which none need be given
            spare = {action.metavar or action.dest for action in self._actions if action.nargs in ("*", "?")}
            left = [name for name in missing[1].split(", ") if name not in spare]
            plural = len(left) > 1 or any(a.nargs == "+" and (a.metavar or a.dest) in left for a in self._actions)
            return f"{', '.join(left)} {'are' if plural else 'is'} missing; give {usage}"
        if bad := _NO_NUMBER.match(message):
            return f"{bad[1]} is a {'whole number' if bad[2] == 'int' else 'number'}, not {bad[3]}"
        if bare := _NO_VALUE.match(message):
            flag = bare[1].rpartition("/")[2]
            after = self.words[1 + self.words.index(flag) :] if flag in self.words else []
            dash = f"; one that begins with a dash is written {flag}={after[0]}" if after else ""
            return f"{flag} needs a value{dash}"
        return message


def _known() -> str:
    """Name the statistics, and the formats of weights that are read."""
    usual = ", ".join(registry.USUAL)
    others = ", ".join(name for name in registry.REGISTRY if name not in registry.USUAL)
    formats = (point.load() for point in plugins.named(plugins.FORMATS).values())
    codes = ", ".join(name for module in formats for name in module.CODES)
    return (
        f"Statistics: {usual}; only when named: {others}. Weights are read from safetensors, GGUF and, with "
        f"--allow-pickle, .bin; stored as they are or as codes ({codes}); BASE+ADAPTER merges a LoRA adapter."
    )


def add_statistics(parser: argparse.ArgumentParser) -> None:
    """Add which statistics to compute, on which blocks, and how."""
    if isinstance(parser, Parser):
        parser.more = _known
    named = "statistics to compute (default: all that apply)"
    completed(
        parser.add_argument("--statistic", action="append", metavar="NAME[,NAME]", help=named),
        completion.statistics,
        ",",
    )
    parser.add_argument(
        "--blocks", metavar="0,1,4-7", help="transformer blocks to compare, counted from 0 (default: all)"
    )
    for flag, (field, kind, metavar, what) in SETTINGS.items():
        parser.add_argument(flag, dest=field, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=what)
    quick = "read a few whole blocks, drawn by the models' digests, and 256 tokens: large models, no GPU"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")


def add_text(parser: argparse.ArgumentParser) -> None:
    """Add the text that models are run on."""
    what = "held-out text that both models know (default: English prose that no zoo model has seen)"
    parser.add_argument("--text", metavar="FILE", help=what)


def text(flag: str, name: str | None) -> str | None:
    """Return the text of a file; None stays None.

    Raises
    ------
    InputError
        If the file is no UTF-8 text, or has no word.
    """
    if name is None:
        return None
    try:
        content = Path(name).read_text(encoding="utf-8-sig").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{flag} {name} cannot be read as UTF-8 text ({error})") from error
    if not content.strip():
        raise InputError(f"{flag} {name} is empty; give some words")
    return content


def add_family(parser: argparse.ArgumentParser) -> None:
    """Add which tests are judged together, and by which error."""
    alone = "judge by this statistic alone, the others are description (default: all tests are one family)"
    completed(parser.add_argument("--primary", metavar="NAME", help=alone), completion.statistics)
    error = "control the false discovery rate (Benjamini-Yekutieli) instead of the chance of any false rejection"
    parser.add_argument("--fdr", action="store_true", help=error)


def add_status(parser: argparse.ArgumentParser) -> None:
    """Add what makes the exit status 1, for scripts."""

    def outcomes(text: str) -> frozenset[str]:
        words = _outcomes()
        if unknown := [word for word in text.split(",") if word not in words]:
            hint = nearest(unknown[0], words) or f"; there are {', '.join(words)}"
            raise argparse.ArgumentTypeError(f"there is no outcome {unknown[0]!r}{hint}")
        return frozenset().union(*(words[word] for word in text.split(",")))

    what = "exit with 1 on any of these outcomes, such as rejected,by-order-alone,rows-of-one-origin (rejected stands "
    what += "for identical and same-function too)"
    action = parser.add_argument(
        "--fail-on", metavar="OUTCOME[,OUTCOME]", type=outcomes, default=frozenset(), help=what
    )
    completed(action, lambda *_: _outcomes(), ",")


def _outcomes() -> dict[str, set[str]]:
    """Word for an outcome at the command line -> the outcomes that it stands for."""
    from provlab.report.decide import OUTCOMES, REJECTIONS

    return {outcome.replace(" ", "-"): {outcome} for outcome in OUTCOMES} | {"rejected": set(REJECTIONS)}


def add_model(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add an argument that names a model, or several."""
    completed(parser.add_argument(name, **settings), completion.models, files=True)


def add_part(parser: argparse.ArgumentParser) -> None:
    """Add which part of each model is compared."""
    what = f"compare a part alone: {', '.join(PARTS)}, or what lies below a prefix (MODEL::NAME is that of one model)"
    parser.add_argument("--part", metavar="NAME[=PREFIX]", help=what)


def parted(sources: Iterable[str], named: str | None) -> list[str]:
    """Return the sources with the part that was named; those that name one of their own keep it."""
    return [source if named is None or split(source)[1] else f"{source}::{named}" for source in sources]


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add where a report goes that others can recompute."""

    def new_folder(name: str) -> Path:
        if Path(name).exists():
            raise argparse.ArgumentTypeError(f"{name} exists; give a new folder")
        try:
            check_open(Path(name))
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return Path(name)

    if "verify" not in plugins.named(plugins.COMMANDS):
        parser.set_defaults(report=None)
        return
    what = "write a folder that provlab verify recomputes: page, JSON, in-toto statement, CycloneDX pedigree"
    parser.add_argument("-o", "--report", metavar="FOLDER", type=new_folder, help=what)


def report(folder: Path | None, question: str, settings: dict[str, Any], result: Any) -> None:
    """Write a result, with the settings that it was asked with, as a folder where that was asked."""
    if folder is not None:
        plugins.named(plugins.COMMANDS)["verify"].load().write(folder, question, settings, result)


def store_root(named: str | None) -> Path:
    """Folder of finished units of work: as named, else below a project's results, else in the cache.

    Raises
    ------
    InputError
        If this user may not write in the folder that was named.
    """
    if named:
        check_open(Path(named))
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


def family(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_family` added as keyword arguments of `provlab.compare` and `provlab.study`."""
    return {"primary": arguments.primary, "fdr": arguments.fdr}


def statistics(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_statistics` added as keyword arguments of `provlab.compare` and `provlab.study`.

    Raises
    ------
    InputError
        If ``--blocks`` is no list of blocks.
    """
    names = [name.strip() for listed in arguments.statistic or [] for name in listed.split(",") if name.strip()]
    return {
        "statistics": names if arguments.statistic else None,
        "blocks": parse_blocks(arguments.blocks),
        "allow_pickle": arguments.allow_pickle,
        **({"quick": True} if arguments.quick else {}),
        **{field: getattr(arguments, field) for field, *_ in SETTINGS.values() if hasattr(arguments, field)},
    }


def parse_blocks(text: str | None) -> list[int] | None:
    """``0,2,4-6`` as ``[0, 2, 4, 5, 6]``; None stays None.

    Raises
    ------
    InputError
        If the text is anything else.
    """
    if text is None:
        return None
    blocks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise InputError(f"--blocks is a list such as 0,1,4-7, not {text!r}")
        if int(last if dash else first) >= MAX_BLOCKS:
            raise InputError(f"--blocks: no model has a block {last if dash else first}; blocks are counted from 0")
        blocks += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(blocks))


#: names that many know a model of the hub by -> its name there
KNOWN_AS = {
    **dict.fromkeys(("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"), "openai-community"),
    **dict.fromkeys(("bert-base-uncased", "bert-base-cased", "bert-large-uncased"), "google-bert"),
    **dict.fromkeys(("roberta-base", "roberta-large", "xlm-roberta-base"), "FacebookAI"),
    **dict.fromkeys(("t5-small", "t5-base"), "google-t5"),
    "distilbert-base-uncased": "distilbert",
}


def check_models(sources: Iterable[str]) -> None:
    """Refuse names that stand for no model, before any model is opened, trained or fetched.

    Raises
    ------
    ProvlabError
        A scheme does not have the name, a folder does not exist, or a name lacks its scheme or its organisation.
    """
    schemes = plugins.named(plugins.SCHEMES)
    for source, _ in map(split, sources):
        scheme, colon, name = source.partition(":")
        if not source.strip():
            raise CheckpointError("a model's name is empty; give zoo:NAME, a checkpoint folder, or a hub id org/name")
        if colon and name and scheme not in schemes and nearest(scheme, schemes):
            raise unknown(scheme, name, schemes)
        if colon:
            if check := plugins.hook(scheme, "check"):
                check(name)
            continue
        if "+" in source or Path(source).expanduser().exists():
            continue
        if source.startswith((".", "/", "~")):
            raise CheckpointError(f"{source} does not exist; give a checkpoint folder that does")
        if source in KNOWN_AS:
            raise CheckpointError(f"{source} is no folder here; did you mean {KNOWN_AS[source]}/{source}?")
        if "/" in source or "@" in source:
            continue
        for known in schemes:
            if _has(known, source):
                raise CheckpointError(f"{source} is no folder here; did you mean {known}:{source}?")


def _has(scheme: str, name: str) -> bool:
    """Whether a scheme knows a name."""
    check = plugins.hook(scheme, "check")
    try:
        return check is not None and check(name) is None
    except ProvlabError:
        return False


def check_open(path: Path, elsewhere: str = "name a place of your own") -> None:
    """Refuse a place in which this user may not write, before any work is done for it.

    Raises
    ------
    InputError
        If it is closed; `elsewhere` is what the message ends with.
    """
    if closed := closed_above(path):
        raise InputError(f"this user may not write in {closed}; {elsewhere}")


def check_json(target: str | None, flag: str = "--json") -> None:
    """Refuse a file that cannot be written, before any work is done for it.

    Raises
    ------
    InputError
        If its folder does not exist, or it is a folder.
    """
    if target is None or target == "-":
        return
    path = Path(target)
    if not path.parent.is_dir():
        raise InputError(f"{flag}: {path.parent} is no folder, so {path.name} cannot be written there; make it first")
    if path.is_dir():
        raise InputError(f"{flag}: {path} is a folder; give a file name, or - for standard output")
    check_open(path)


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Offer ``-v``."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print all of the result, with assumptions")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Offer ``--json``."""
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")


def deliver(
    target: str | None, content: Callable[[], Any], text: "Callable[[], str | Report | Card]", *, verbose: bool = False
) -> None:
    """Write a result as JSON where that was asked, ``-`` being standard output, and print it as text unless there."""
    if target:
        written = json.dumps(content(), indent=1, allow_nan=False) + "\n"
        if target == "-":
            sys.stdout.write(written)
            return
        with atomic_file(Path(target)) as temporary:
            temporary.write_text(written, encoding="utf-8")
    shown = text()
    if isinstance(shown, str):
        print(shown)
        return
    from provlab.cli.screen import show  # numpy, which the help of a command waits for otherwise

    show(shown, verbose=verbose)
