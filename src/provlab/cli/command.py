"""A command of ``provlab``: click reads its words, rich-click shows its help, and its failures become one line.

A module of a command has it as ``command``::

    @click.command(cls=Command)
    @sources.model("source")
    @options.JSON
    def command(source: str, json: str | None) -> int:
        ...

Its text is what the help says first, its keyword arguments are named as in Python, and what it returns is the status.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import rich_click as click

from provlab.cli import failures

_FILLED = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)  # cells are filled up to their width, also in colour
#: how help looks: as click's own, without boxes; ``-h`` asks for it too
LOOK = {
    "help_option_names": ["-h", "--help"],
    "rich_help_config": {
        "theme": "default-slim",
        "enable_theme_env_var": False,
        "options_table_help_sections": ["help"],
        "padding_helptext_first_line": (0, 0, 1, 0),  # between the question and its example
    },
}


def unfilled(text: str) -> str:
    """Leave out the blanks at the ends of lines."""
    return _FILLED.sub(r"\1", text)


class Command(click.RichCommand):
    """One command.

    Parameters
    ----------
    goes_on : bool
        Whether work that was finished is kept where it is stopped.
    surplus : str
        Said where more models are given than it takes.
    more : callable, optional
        Gives what the help ends with, found only when it is asked for.
    """

    def __init__(
        self,
        *arguments: Any,
        goes_on: bool = False,
        surplus: str = "",
        more: Callable[[], str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.goes_on, self.surplus, self.more = goes_on, surplus, more

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, and what `more` adds."""
        if self.more:
            self.epilog = self.more()
        return re.sub(r"\n{3,}", "\n\n", unfilled(super().get_help(ctx)))

    def invoke(self, ctx: click.Context) -> int:
        """Run the command and return its status, here where it is known with all that it was given."""
        try:
            return super().invoke(ctx) or 0
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (one line and a status come of each)
            return failures.status(error, ctx)


class CommandGroup(click.RichGroup, Command):  # type: ignore[misc]  # rich-click's own classes differ so
    """Several commands under one name; `known_as` has other words that users give for some, which are named to them."""

    command_class = Command

    def __init__(self, *arguments: Any, known_as: Mapping[str, str] | None = None, **settings: Any) -> None:
        self.known_as = known_as or {}
        super().__init__(*arguments, **{"no_args_is_help": False, **settings})  # help is for those who ask

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order in which they were added."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command; the name of one by another word is an error that says it."""
        if cmd_name in self.known_as:
            raise click.UsageError(f"No such command '{cmd_name}'. Did you mean '{self.known_as[cmd_name]}'?", ctx)
        return super().get_command(ctx, cmd_name)
