"""Completion in a shell by click: which words may stand next, where bash parts them at ``:`` and ``=``."""

import os
import re

import rich_click as click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, shell_complete, split_arg_string

#: the variable by which a shell asks
ASKED = "_PROVLAB_COMPLETE"
_PARTED = re.compile(r"\n([:=])(?:\n|$)")  # words come in a line each


@add_completion_class
class _Bash(BashComplete):
    """Bash hands over ``zoo:oak`` as three words, and puts what it gets in the place of the last."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words so far, and the one that is being written."""
        words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
        _, *before, begun = _PARTED.sub(r"\1", "\n".join(words)).split("\n")
        return split_arg_string(" ".join(before)), begun

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return what follows the last sign at which bash parts words."""
        return super().format_completion(CompletionItem(re.split("[:=]", item.value)[-1] or item.value, item.type))


def answer(group: click.Group) -> int:
    """Answer the shell that asks; return the status."""
    return shell_complete(group, {}, group.name or "provlab", ASKED, os.environ[ASKED])
