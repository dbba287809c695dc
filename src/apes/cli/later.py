"""Commands that are loaded when they are called: until then, a name, the place of a function, and a line of help."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo

from apes.cli.option_names import option_names
from apes.cli.shared import ignore_further_answers, in_one_line, says_what_went_wrong


class _Later(TyperCommand):
    """A command for those who list commands; whoever calls it gets the real one, with all its options."""

    # Any: contexts and commands are click's or typer's own, according to typer's version.
    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Load the command and let it read its arguments, say its help or complete a word of it.

        Click runs, and asks for completions, what the context names: the real command.
        """
        with in_one_line():
            command = self.loaded()
            # An option may be refused while it is read, before the command is called.
            with in_one_line(option_names(self._function())):
                try:
                    return command.make_context(*args, **extra)
                except BrokenPipeError:
                    # Whoever reads the help has read enough.
                    ignore_further_answers()
                    raise typer.Exit from None

    def loaded(self) -> Any:
        """The real command."""
        app, function = typer.Typer(add_completion=False), self._function()
        app.command(self.name)(says_what_went_wrong(function))
        return _with_help_of_arguments(typer.main.get_command(app), function)

    def _function(self) -> Callable[..., None]:
        """The command's function, imported now."""
        # typer makes commands out of functions: ours, which takes no argument, hands over the command's own.
        if self.callback is None:
            raise LookupError(f"{self.name} has no function")
        function: Callable[..., None] = self.callback()
        return function


def add_later(app: typer.Typer, name: str, place: str, line: str) -> None:
    """Add a command to an app.

    Args:
        app: The command line, or a group of it.
        name: The command's.
        place: MODULE:FUNCTION, within `apes.cli`.
        line: The first paragraph of the function's docstring; tests hold one against the other.
    """

    def function() -> Callable[..., None]:
        module, _, own = place.partition(":")
        found: Callable[..., None] = getattr(importlib.import_module(f"apes.cli.{module}"), own)
        return found

    app.command(name, cls=_Later, help=line)(function)


def _with_help_of_arguments(command: Any, function: Callable[..., None]) -> Any:
    """The command, whose positional arguments say what they are for.

    Since click 8.5 arguments have a help of their own, which is empty, and versions of typer that do not know of it let
    that one win.
    """
    told = {
        parameter.name: note.help
        for parameter in inspect.signature(function, eval_str=True).parameters.values()
        for note in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(note, ArgumentInfo)
    }
    for parameter in command.params:
        if parameter.name in told and not parameter.help:
            parameter.help = told[parameter.name]
    return command
