"""Options of several commands: statistics and how they are computed, named as `provlab.compare` names them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import rich_click as click
from click.shell_completion import CompletionItem

from provlab import plugins
from provlab import statistics as registry
from provlab.errors import nearest

MAX_BLOCKS = 10_000  # more than any model has: a mistyped range must not fill the memory


class Word(click.ParamType):
    """A word that a shell completes.

    Parameters
    ----------
    name
        How help writes it.
    words
        Gives all that may stand there, asked for only where it is needed.
    """

    def __init__(self, name: str, words: Callable[[], Iterable[str]]) -> None:
        self.name, self.words = name, words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Offer the words that go on with what is written."""
        return [CompletionItem(word) for word in self.words() if word.startswith(incomplete)]


class WordList(Word):
    """Words in a list, with a sign `between` them, which a shell completes one by one."""

    def __init__(self, name: str, words: Callable[[], Iterable[str]], between: str = ",") -> None:
        super().__init__(name, words)
        self.between = between

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Return the words."""
        return [word.strip() for word in value.split(self.between) if word.strip()]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """Offer what goes on with the last word."""
        before, between, begun = incomplete.rpartition(self.between)
        return [CompletionItem(before + between + item.value) for item in super().shell_complete(ctx, param, begun)]


class Outcomes(WordList):
    """Outcomes of a test, each a word."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return all outcomes that the words stand for."""
        known, words = _outcomes(), super().convert(value, param, ctx)
        if strange := [word for word in words if word not in known]:
            hint = nearest(strange[0], known) or f"; there are {', '.join(known)}"
            self.fail(f"there is no outcome {strange[0]!r}{hint}", param, ctx)
        return frozenset().union(*(known[word] for word in words))


class BlockNumbers(click.ParamType):
    """Numbers of blocks: ``0,2,4-6`` as ``[0, 2, 4, 5, 6]``."""

    name = "0,1,4-7"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Return the numbers."""
        blocks: list[int] = []
        for part in value.split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
                self.fail(f"it is a list such as 0,1,4-7, not {value!r}", param, ctx)
            if int(last if dash else first) >= MAX_BLOCKS:
                self.fail(f"no model has a block {last if dash else first}; blocks are counted from 0", param, ctx)
            blocks += range(int(first), int(last if dash else first) + 1)
        return list(dict.fromkeys(blocks))


class TextFile(click.ParamType):
    """A file of text, which is read."""

    name = "FILE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        try:
            content = Path(value).read_text(encoding="utf-8-sig").removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            self.fail(f"{value} cannot be read as UTF-8 text ({error})", param, ctx)
        if not content.strip():
            self.fail(f"{value} is empty; give some words", param, ctx)
        return content


def _outcomes() -> dict[str, set[str]]:
    """Word for an outcome at the command line -> the outcomes that it stands for."""
    from provlab.report.decide import OUTCOMES, REJECTIONS

    return {outcome.replace(" ", "-"): {outcome} for outcome in OUTCOMES} | {"rejected": set(REJECTIONS)}


def _together(_: click.Context, __: click.Parameter, lists: Sequence[list[str]]) -> list[str] | None:
    """Lists of an option that was repeated, as one; None where it was not given."""
    return [word for words in lists for word in words] if lists else None


def repeated(flag: str, name: str, words: WordList, what: str) -> Any:
    """Let a command take an option whose value is a list, and which may be repeated."""
    return click.option(flag, name, type=words, multiple=True, callback=_together, help=what)


def added(*options: Any) -> Callable[[Any], Any]:
    """Let a command take several options, which its help names in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


ALLOW_PICKLE = click.option("--allow-pickle", is_flag=True, help="also open .bin weights (weights_only)")
MEMORY = click.option("--memory", metavar="SIZE", help="memory to use, such as 8GB (default: most that is free)")
SEED = click.option("--seed", type=int, metavar="N", help="seed of all random choices (default: 0)")
DEVICE = click.option("--device", metavar="NAME", help="where models run: cpu, cuda, cuda:1 (default: cpu)")
DTYPE = click.option("--dtype", metavar="NAME", help="their precision: float32, bfloat16, float16 (default: float32)")
TEXT = click.option(
    "--text",
    type=TextFile(),
    help="held-out text that both models know (default: English prose that no zoo model has seen)",
)

#: which statistics to compute, on which blocks, and how
STATISTICS = added(
    repeated(
        "--statistic",
        "statistics",
        WordList("NAMES", lambda: registry.REGISTRY),
        "statistics to compute, such as phi_u,phi_match (default: all that apply)",
    ),
    click.option("--blocks", type=BlockNumbers(), help="transformer blocks to compare, counted from 0 (default: all)"),
    DEVICE,
    DTYPE,
    SEED,
    click.option(
        "--permutations", "n_permutations", type=int, metavar="N", help="of PERMTEST for phi_l2 (default: 99)"
    ),
    click.option(
        "--sequences", "n_sequences", type=int, metavar="N", help="input sequences for activations (default: 32)"
    ),
    click.option("--sequence-length", type=int, metavar="N", help="tokens in each sequence (default: 64)"),
    click.option(
        "--activation-tokens", type=int, metavar="N", help="token positions kept, a fixed sample (default: 16384)"
    ),
    click.option(
        "--quick", is_flag=True, default=None, help="a few whole blocks and 256 tokens: large models without a GPU"
    ),
    ALLOW_PICKLE,
)

#: which tests are judged together, by which error, and what makes the exit status 1, for scripts
JUDGED = added(
    click.option(
        "--primary",
        type=Word("NAME", lambda: registry.REGISTRY),
        help="judge by this statistic alone, the others are description (default: all tests are one family)",
    ),
    click.option(
        "--fdr",
        is_flag=True,
        help="control the false discovery rate (Benjamini-Yekutieli) instead of the chance of any false rejection",
    ),
    click.option(
        "--fail-on",
        type=Outcomes("OUTCOMES", _outcomes),
        default="",
        help="exit with 1 on any of these outcomes, such as rejected,by-order-alone,rows-of-one-origin (rejected "
        "stands for identical and same-function too)",
    ),
)


def known() -> str:
    """Name the statistics, and the formats of weights that are read."""
    usual = ", ".join(registry.USUAL)
    others = ", ".join(name for name in registry.REGISTRY if name not in registry.USUAL)
    formats = (point.load() for point in plugins.named(plugins.FORMATS).values())
    codes = ", ".join(name for module in formats for name in module.CODES)
    return (
        f"Statistics: {usual}; only when named: {others}. Weights are read from safetensors, GGUF and, with "
        f"--allow-pickle, .bin; stored as they are or as codes ({codes}); BASE+ADAPTER merges a LoRA adapter."
    )


def without_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given; the library has the defaults of the others."""
    return {name: value for name, value in settings.items() if value is not None}
