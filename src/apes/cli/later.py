"""Commands that are loaded when they are called: until then, a name, the place of a function, and a line of help."""

import importlib
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from apes.cli.shared import says_what_went_wrong


class _Later(TyperCommand):
    """A command for those who list commands; whoever calls it gets the real one, with all its options."""

    # Any: contexts and commands are click's or typer's own, according to typer's version.
    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Load the command and let it read its arguments, or say its help: click runs what the context names."""
        return self.loaded().make_context(*args, **extra)

    def loaded(self) -> Any:
        """The real command."""
        # typer makes commands out of functions: ours, which takes no argument, hands over the command's own.
        assert self.callback is not None
        app = typer.Typer(add_completion=False)
        app.command(self.name)(says_what_went_wrong(self.callback()))
        return typer.main.get_command(app)


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
