"""Completion in a shell: which words may stand next (argcomplete, which registers ``provlab`` with bash, zsh and fish).

An argument says what completes it by `completed`; options and commands come from the parser. Nothing here may import
what is slow: a reader waits after every press of the key.
"""

import os
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from typing import Any

from provlab import plugins
from provlab.statistics import REGISTRY

#: the variable by which a shell asks for words, and the line so far
ASKED, LINE, POINT = "_ARGCOMPLETE", "COMP_LINE", "COMP_POINT"


#: gives what may stand in a place, by the arguments before it and what is written there so far
Words = Callable[[Namespace, str], Iterable[str]]


def completed(action: Action, words: Words, between: str = "", *, files: bool = False) -> Action:
    """Let an argument be completed.

    Parameters
    ----------
    action
        The argument.
    words
        Gives all that may stand there; others than those that go on with what is written are left out.
    between
        What parts the words of one value, such as a comma.
    files
        Whether a path may stand there too.
    """

    def completer(prefix: str, parsed_args: Namespace, **_: Any) -> list[str]:
        before, part, begun = prefix.rpartition(between) if between else ("", "", prefix)
        fitting = [before + part + word for word in words(parsed_args, begun) if word.startswith(begun)]
        if files:
            from argcomplete.completers import FilesCompleter

            fitting += FilesCompleter()(prefix)
        return fitting

    action.completer = completer  # type: ignore[attr-defined]  # where argcomplete looks for it
    return action


def words_so_far() -> list[str] | None:
    """Words after ``provlab`` on the line that a shell asks about; None where none asks."""
    if ASKED not in os.environ:
        return None
    from argcomplete.lexers import split_line

    line, point = os.environ.get(LINE, ""), os.environ.get(POINT, "")
    _, _, _, words, _ = split_line(line, int(point) if point.isdecimal() else len(line))
    return list(words[int(os.environ[ASKED]) :])


def answer(parser: ArgumentParser) -> None:
    """Answer the shell that asks, and leave."""
    from argcomplete import autocomplete

    autocomplete(parser, always_complete_options="long")


def models(_: Namespace, begun: str) -> list[str]:
    """Models that a scheme lists, such as ``zoo:oak``; before the colon the schemes, of which none is loaded."""
    schemes, (scheme, colon, _rest) = plugins.named(plugins.SCHEMES), begun.partition(":")
    if not colon or scheme not in schemes:
        return [f"{name}:" for name in schemes]
    names = plugins.hook(scheme, "names")
    return [f"{scheme}:{name}" for name in names()] if names else []


def statistics(*_: object) -> list[str]:
    """Statistics and scores."""
    return list(REGISTRY)
