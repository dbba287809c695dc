"""Errors in terms of options: the library names its parameters, and on the command line these are options.

A parameter is recognised where the messages of the package name one: at the beginning, before "must", alone or in a
list; in brackets; and anywhere if it is of several words, as `user_column` is. What is quoted is left as it is.
"""

import inspect
import re
from collections.abc import Callable, Mapping

from typer.models import ArgumentInfo, OptionInfo

# Parameters of the library that a command fills from an option of another name.
_FILLED_BY = {
    "budget": "budget_column",
    "label": "label_column",
    "processes": "workers",
    "user": "user_column",
    "vaults": "silos",
}
_PARAMETER = r"[a-z][a-z0-9_]*"
_INDEX = r"(?:\[[^\]]*\])?"
_FIRST = re.compile(rf"{_PARAMETER}{_INDEX}(?:(?:, | or | and ){_PARAMETER}{_INDEX})*(?= must\b)")
_IN_BRACKETS = re.compile(rf"(?<=\(){_PARAMETER}(?=\))")
_OF_SEVERAL_WORDS = re.compile(r"(?<![\w'\"/.\\=-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w'\"/.(=])")


def option_names(command: Callable[..., None]) -> dict[str, str]:
    """How the parameters of a command are given: ``--user-column`` for user_column, ``FOLDER`` for an argument."""
    names: dict[str, str] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        for note in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(note, ArgumentInfo):
                names[parameter.name] = parameter.name.upper()
            elif isinstance(note, OptionInfo):
                # typer keeps the first name of an annotation where a default would be.
                written = (note.default, *(note.param_decls or ()))
                chosen = [name for name in written if isinstance(name, str) and name.startswith("--")]
                option = chosen[0] if chosen else f"--{parameter.name.replace('_', '-')}"
                names[parameter.name] = option
                # What the library calls it is what is said on the command line.
                names[option.removeprefix("--").replace("-", "_")] = option
    filled = {name: names[option] for name, option in _FILLED_BY.items() if option in names}
    return filled | names


def in_options(message: str, names: Mapping[str, str]) -> str:
    """A message of the library with the options that its parameters are given by; unknown ones stay as they are."""

    def named(found: re.Match[str]) -> str:
        return re.sub(_PARAMETER, lambda word: names.get(word.group(), word.group()), found.group())

    first = _FIRST.match(message)
    rest = message if first is None else message[first.end() :]
    rest = _OF_SEVERAL_WORDS.sub(named, _IN_BRACKETS.sub(named, rest))
    return rest if first is None else named(first) + rest
