"""How the choices of a table are spelt in one line: bounds, levels, categories, lists of names."""

from collections.abc import Sequence
from pathlib import Path

from apes.data.table.cells import Place
from apes.data.table.chunk import check_columns
from apes.data.table.opening import open_table
from apes.data.table.reading import ALL_OTHERS, Bounds
from apes.errors import ParameterError

_FILE = "file:"
# Of more columns the option for all of them is named.
_COLUMNS_SPELT = 12


def names_of(text: str | None) -> tuple[str, ...]:
    """``a,b,c`` as names."""
    return () if text is None else tuple(part.strip() for part in text.split(","))


def bounds_of(text: str | None) -> dict[str, Bounds]:
    """``0:1,age=0:120`` as bounds by column, those without a name of all others; or ``file:PATH``."""
    if text is None:
        return {}
    if text.startswith(_FILE):
        return _bounds_in(text.removeprefix(_FILE))
    return {name: _pair(values, text) for name, values in _pairs("bounds", text, ALL_OTHERS).items()}


def is_bounds_file(bounds: str | None) -> bool:
    """Whether bounds are in a file."""
    return bounds is not None and bounds.startswith(_FILE)


def bounds_to_add(given: str | None, columns: Sequence[str]) -> str:
    """What ``bounds`` are to be, given these, so that these columns have some: LOW and HIGH stand for numbers."""
    if len(columns) > _COLUMNS_SPELT:
        return ",".join([*([] if given is None else [given]), "LOW:HIGH"])
    pairs = [f"{name}=LOW:HIGH" for name in columns]
    return ",".join([*([] if given is None else [given]), *pairs])


def absolute(bounds: str) -> str:
    """The same, with the whole path of a file: good from any folder."""
    return f"{_FILE}{Path(bounds.removeprefix(_FILE)).resolve()}" if bounds.startswith(_FILE) else bounds


def levels_of(text: str | None) -> dict[str, float]:
    """``low=0.1,high=1`` as budgets by level."""
    levels = {} if text is None else _pairs("budget_levels", text)
    return {name: _number("budget_levels", value, text) for name, value in levels.items()}


def categories_of(text: str | None) -> dict[str, tuple[str, ...]]:
    """``city=A|B|C,smoker=yes|no`` as values by column."""
    columns = {} if text is None else _pairs("categories", text)
    return {name: tuple(value.strip() for value in values.split("|")) for name, values in columns.items()}


def _pairs(option: str, text: str, unnamed: str | None = None) -> dict[str, str]:
    """NAME=VALUE, separated by commas."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        name = name.strip() if equals or unnamed is None else unnamed
        if not name or name in found:
            raise ParameterError(f"{option} must be NAME=VALUE,NAME=VALUE,... with names that differ, got {text!r}")
        found[name] = value.strip()
    return found


def _bounds_in(path: str) -> dict[str, Bounds]:
    """Bounds in a table of columns column, low, high."""
    table, found = open_table(path), dict[str, Bounds]()
    check_columns(table, ["column", "low", "high"])
    for chunk in table.chunks(["low", "high"], ["column"]):
        for at, (name, pair) in enumerate(zip(chunk.texts["column"], chunk.numbers.tolist(), strict=True)):
            if name in found:
                raise Place(table.title, "column", chunk.first_row).error(at, f"{name!r} has bounds already")
            found[name] = (pair[0], pair[1])
    return found


def _pair(text: str, whole: str) -> Bounds:
    low, colon, high = text.partition(":")
    if not colon:
        raise ParameterError(f"bounds must be LOW:HIGH or NAME=LOW:HIGH, separated by commas, got {whole!r}")
    return _number("bounds", low, whole), _number("bounds", high, whole)


def _number(option: str, text: str, whole: str | None) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"{option} must have numbers after the names, got {text!r} in {whole!r}") from None
