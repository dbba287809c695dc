"""The reference of the command line, made from the command line: names, arguments, options and their help.

A comment ``<!-- commands: GROUP -->`` on a page becomes one section per command of the group; ``top`` is `apes` itself.
"""

import re
from collections.abc import Iterator
from typing import Any

import typer
from sphinx.application import Sphinx

PLACE = re.compile(r"<!-- commands: (\w+) -->")
_MARKS = re.compile(r"([\\*_\[\]<>|#~$])")


def commands(group: str) -> "Iterator[tuple[str, Any]]":
    """Name and command, as click has them, of all of a group."""
    from apes.cli.main import app

    root = typer.main.get_command(app)
    named = root.commands if group == "top" else root.commands[group].commands
    for name, command in named.items():
        if not hasattr(command, "commands"):
            whole = f"apes {name}" if group == "top" else f"apes {group} {name}"
            yield whole, command.loaded() if hasattr(command, "loaded") else command


def section(name: str, command: Any) -> str:
    """A command as Markdown: how it is called, what it does, its arguments and options."""
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"## `{name}`", "", _escaped(command.help or ""), "", "```text", usage, "```", ""]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            spelling, meaning = record
            lines += [f"`{spelling.strip()}`", f": {_escaped(meaning) or 'No more is to be said.'}", ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Help as Markdown that shows it as it stands; what is in backticks already does."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _MARKS.sub(r"\\\1", part) for part in parts)


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    def made(place: re.Match[str]) -> str:
        return "\n".join(section(*found) for found in commands(place[1]))

    source[0] = PLACE.sub(made, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
