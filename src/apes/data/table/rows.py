"""Rows of a table, encoded by what is public; as many as there are, in the table's order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.data.table.cells import Place, quoted
from apes.data.table.chunk import Chunk, Progress, Table, check_columns
from apes.data.table.columns import Columns, Number, positions
from apes.data.table.opening import Source, open_table
from apes.data.table.reading import Bounds, Reading
from apes.data.table.schema import REGRESSION, Schema
from apes.errors import DataError
from apes.mathematics.arrays import F32, F64, I64

# Of more, Python may be told to make no number.
_MOST_DIGITS = 640


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
    first_row = None
    for chunk in table.chunks(numbers, [reading.user, *texts], progress):
        encoder.add(chunk)
        first_row = chunk.first_row if first_row is None else first_row
        for name in words.keys() & chunk.texts.keys():
            words[name] += chunk.texts[name]
        if reading.task == REGRESSION:
            labels.append(chunk.number(reading.label))
        if reading.budget is not None:
            budgets.append(row_budgets(chunk, reading, table.title))
    features, clipped = encoder.features(), encoder.clipped
    found: NDArray[Any]
    if reading.task == REGRESSION:
        schema = reading.schema(columns, ())
        found, outside = _targets(np.concatenate(labels), reading.number(reading.label))
        clipped |= {reading.label: outside}
    else:
        schema = reading.schema(columns, class_names(words[reading.label], reading.classes))
        place = Place(table.title, reading.label, first_row or 1)
        found = positions(words[reading.label], schema.classes, place, "classes")
    return Rows(features, found, words[reading.user], np.concatenate(budgets) if budgets else None, clipped, schema)


def with_bounds(table: Table, reading: Reading) -> Reading:
    """How a table is read, with bounds from the data where they are asked for; then all of it is looked at first."""
    if not reading.bounds_from_data:
        return reading
    names = reading.unbounded(table)
    if not names:
        return reading
    return reading.with_made_bounds(value_ranges(table.chunks(names, []), table.title))


def value_ranges(chunks: Iterable[Chunk], title: str) -> dict[str, Bounds]:
    """The least and the largest value of every column of numbers in these rows."""
    lows: F64 | None = None
    highs: F64 | None = None
    names: tuple[str, ...] = ()
    for chunk in chunks:
        names = chunk.names
        low, high = chunk.numbers.min(axis=0), chunk.numbers.max(axis=0)
        lows = low if lows is None else np.minimum(lows, low)
        highs = high if highs is None else np.maximum(highs, high)
    if lows is None or highs is None:
        raise DataError(f"{title} has no rows")
    return dict(zip(names, zip(lows.tolist(), highs.tolist(), strict=True), strict=True))


def encode_table(source: Source, schema: Schema, progress: Progress | None = None) -> F32:
    """Features of a table's rows, as a model of this schema takes them; other columns are not looked at.

    Raises:
        DataError: Where a cell is missing or cannot be read, in one line that names row and column.
    """
    table, columns = open_table(source), schema.columns
    encoder = _Encoder(columns, table.title)
    for chunk in _chunks(table, columns, progress=progress):
        encoder.add(chunk)
    return encoder.features()


def encode_examples(source: Source, schema: Schema, progress: Progress | None = None) -> tuple[F32, NDArray[Any]]:
    """Features and labels of a table's rows: whoever has the schema, a device say, encodes its own rows alike."""
    table, columns = open_table(source), schema.columns
    encoder = _Encoder(columns, table.title)
    labels: list[NDArray[Any]] = []
    for chunk in _chunks(table, columns, schema, progress):
        encoder.add(chunk)
        if schema.target is not None:
            labels.append(_targets(chunk.number(schema.label), schema.target)[0])
        else:
            place = Place(table.title, schema.label, chunk.first_row)
            labels.append(positions(chunk.texts[schema.label], schema.classes, place, "classes"))
    return encoder.features(), np.concatenate(labels)


def table_in_units(source: Source, schema: Schema) -> F64:
    """Features of a table's rows in their own units: numbers within their bounds, a 0 or 1 for every category."""
    table, columns = open_table(source), schema.columns
    return np.concatenate([columns.in_units(chunk, table.title) for chunk in _chunks(table, columns)])


def _chunks(
    table: Table, columns: Columns, labels: Schema | None = None, progress: Progress | None = None
) -> Iterator[Chunk]:
    """All rows of a table, with the columns that are learned from; and with the label of a schema, if one is given."""
    numbers, texts = columns.names
    if labels is not None:
        (texts if labels.target is None else numbers).append(labels.label)
    check_columns(table, [*numbers, *texts])
    chunks = table.chunks(numbers, texts, progress)
    first = next(chunks, None)
    if first is None:
        raise DataError(f"{table.title} has no rows")
    yield first
    yield from chunks


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


def row_budgets(chunk: Chunk, reading: Reading, title: str) -> F64:
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


def class_names(labels: Iterable[str], given: Sequence[str] | None) -> tuple[str, ...]:
    """The classes that were given, or those that are found: by number if all are whole numbers, else as texts."""
    if given is not None:
        return tuple(str(name) for name in given)
    found = set(labels)
    is_number = all(len(name) <= _MOST_DIGITS and name.removeprefix("-").isdecimal() for name in found)
    by: Callable[[str], Any] = int if is_number else str
    return tuple(sorted(found, key=lambda name: (by(name), name)))


def _targets(values: F64, bounds: Number) -> tuple[F32, int]:
    """Real-valued labels scaled from their bounds to [-1, 1], and how many lay outside."""
    within = np.clip(values, bounds.low, bounds.high)
    return ((within - bounds.middle) / bounds.half).astype(np.float32), int((within != values).sum())
