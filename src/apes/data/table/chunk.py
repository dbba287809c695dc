"""Some rows of a table at a time, so that a large file never lies in memory as text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apes.data.table.cells import Place, as_numbers, as_texts
from apes.errors import DataError
from apes.mathematics.arrays import F64

ROWS_AT_ONCE = 4096
_NAMES_SHOWN = 20
# Called with what was read and what there is to read: bytes, or rows.
Progress = Callable[[int, int], None]
Cells = Sequence[Any] | NDArray[Any]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows of a table.

    Attributes:
        first_row: Number of the first, from 1.
        names: The columns that were asked for as numbers.
        numbers: What is in them, (rows, columns), finite.
        texts: The columns that were asked for as texts, none of them empty.
    """

    first_row: int
    names: tuple[str, ...]
    numbers: F64
    texts: dict[str, list[str]]

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.numbers)

    def number(self, name: str) -> F64:
        """One of the columns of numbers."""
        return self.numbers[:, self.names.index(name)]


class Table(Protocol):
    """Where rows come from."""

    @property
    def title(self) -> str:
        """What it is called in messages."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, all different."""

    def chunks(self, numbers: Sequence[str], texts: Sequence[str], progress: Progress | None = None) -> Iterator[Chunk]:
        """All rows in order, with these columns as numbers and those as texts."""


def make_chunk(
    title: str, first_row: int, cells: Mapping[str, Cells], numbers: Sequence[str], texts: Sequence[str]
) -> Chunk:
    """Read the cells of some rows: these columns as numbers, those as texts; at least one in all."""
    found = np.empty((len(cells[[*numbers, *texts][0]]), len(numbers)))
    for at, name in enumerate(numbers):
        found[:, at] = as_numbers(cells[name], Place(title, name, first_row))
    words = {name: as_texts(cells[name], Place(title, name, first_row)) for name in texts}
    return Chunk(first_row, tuple(numbers), found, words)


def check_names(title: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a table's columns if each has one and no two have the same."""
    if not names:
        raise DataError(f"{title} is empty: it has no columns")
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{title}: column {number} has no name; the first row must name every column")
        if name in seen:
            raise DataError(f"{title} has two columns {name!r}; names must differ")
        seen.add(name)
    return tuple(names)


def check_columns(table: Table, wanted: Sequence[str]) -> None:
    """Raise unless the table has all these columns."""
    for name in wanted:
        if name not in table.names:
            more = f", ... ({len(table.names)})" if len(table.names) > _NAMES_SHOWN else ""
            known = ", ".join(table.names[:_NAMES_SHOWN]) + more
            raise DataError(f"{table.title} has no column {name!r}; its columns are {known}")
