"""Rows of a table, encoded by what is public; as many as there are, in the table's order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.data.table.cells import Place, quoted
from apes.data.table.chunk import Chunk, Progress, Table, check_columns
from apes.data.table.columns import Columns, Number, positions
from apes.data.table.opening import Source, open_table
from apes.data.table.reading import Reading
from apes.data.table.schema import REGRESSION, Schema
from apes.errors import DataError
from apes.mathematics.arrays import F32, F64, I64


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of a table of people.

    Attributes:
        features: Encoded by the schema's columns.
        labels: Classes from 0, or targets in [-1, 1].
        users: Whose each is.
        budgets: The local budget in each, or None if the table has none.
        clipped: How many cells lay outside the bounds, by column.
        schema: What is public about the table.
    """

    features: F32
    labels: NDArray[Any]
    users: list[str]
    budgets: F64 | None
    clipped: dict[str, int]
    schema: Schema


def read_rows(table: Table, reading: Reading, progress: Progress | None = None) -> Rows:
    """Read all of a table of people."""
    columns = reading.columns(table)
    numbers, texts = columns.names
    (numbers if reading.task == REGRESSION else texts).append(reading.label)
    if reading.budget is not None:
        (texts if reading.levels else numbers).append(reading.budget)
    encoder, budgets, labels = _Encoder(columns, table.title), [], []
    words: dict[str, list[str]] = {reading.user: [], reading.label: []}
    for chunk in table.chunks(numbers, [reading.user, *texts], progress):
        encoder.add(chunk)
        for name in words.keys() & chunk.texts.keys():
            words[name] += chunk.texts[name]
        if reading.task == REGRESSION:
            labels.append(chunk.number(reading.label))
        if reading.budget is not None:
            budgets.append(_budgets(chunk, reading, table.title))
    features, clipped = encoder.features(), encoder.clipped
    found: NDArray[Any]
    if reading.task == REGRESSION:
        schema = reading.schema(columns, ())
        found, outside = _targets(np.concatenate(labels), schema)
        clipped |= {reading.label: outside}
    else:
        schema = reading.schema(columns, _classes(words[reading.label], reading.classes))
        found = positions(words[reading.label], schema.classes, Place(table.title, reading.label), "classes")
    return Rows(features, found, words[reading.user], np.concatenate(budgets) if budgets else None, clipped, schema)


def encode_table(source: Source, schema: Schema, progress: Progress | None = None) -> F32:
    """Features of a table's rows, as a model of this schema takes them; other columns are not looked at.

    Raises:
        DataError: Where a cell is missing or cannot be read, in one line that names row and column.
    """
    table, columns = open_table(source), schema.columns
    numbers, texts = columns.names
    check_columns(table, [*numbers, *texts])
    encoder = _Encoder(columns, table.title)
    for chunk in table.chunks(numbers, texts, progress):
        encoder.add(chunk)
    return encoder.features()


class _Encoder:
    """Encodes chunk after chunk."""

    def __init__(self, columns: Columns, title: str) -> None:
        self._columns, self._title = columns, title
        self._parts: list[F32] = []
        self._clipped: I64 = np.zeros(len(columns.numbers), dtype=np.int64)

    def add(self, chunk: Chunk) -> None:
        encoded, clipped = self._columns.encode(chunk, self._title)
        self._parts.append(encoded)
        self._clipped += clipped

    def features(self) -> F32:
        if not self._parts:
            raise DataError(f"{self._title} has no rows")
        return np.concatenate(self._parts)

    @property
    def clipped(self) -> dict[str, int]:
        return dict(zip(self._columns.names[0], self._clipped.tolist(), strict=True))


def _budgets(chunk: Chunk, reading: Reading, title: str) -> F64:
    """Local budgets of some rows, in (0, inf)."""
    name = reading.budget or ""
    place = Place(title, name, chunk.first_row)
    if reading.levels:
        at = positions(chunk.texts[name], tuple(reading.levels), place, "budget levels")
        return np.array(list(reading.levels.values()), dtype=np.float64)[at]
    budgets = chunk.number(name)
    if not (budgets > 0).all():
        at_row = int(np.argmin(budgets > 0))
        raise place.error(at_row, f"a budget must be in (0, inf), got {quoted(budgets[at_row])}")
    return budgets


def _classes(labels: Sequence[str], given: Sequence[str] | None) -> tuple[str, ...]:
    """The classes that were given, or those that are found: by number if all are whole numbers, else as texts."""
    if given is not None:
        return tuple(str(name) for name in given)
    found = set(labels)
    by: Callable[[str], Any] = int if all(name.removeprefix("-").isdecimal() for name in found) else str
    return tuple(sorted(found, key=lambda name: (by(name), name)))


def _targets(values: F64, schema: Schema) -> tuple[F32, int]:
    """Real-valued labels scaled from their bounds to [-1, 1], and how many lay outside."""
    bounds: Number | None = schema.target
    if bounds is None:
        raise DataError("the schema has no bounds of the label")
    within = np.clip(values, bounds.low, bounds.high)
    return ((within - bounds.middle) / bounds.half).astype(np.float32), int((within != values).sum())
