"""Columns that are learned from, and how their cells become features: by what is public, never by the data.

Where one would expect a scaler that is fitted to the data there is none: its means and deviations would be statistics
of people's data, released without noise. Numbers are scaled by bounds that are known beforehand, and what lies outside
is clipped to them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from apes.checks import plain_text, positive
from apes.data.scale import ROW_NORM
from apes.data.table.cells import Place, quoted
from apes.data.table.chunk import Chunk
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64

_MOST_VALUES = 65536
# Closer together than that, scaling by them would divide by 0.
_NARROWEST = 1e-300
_VALUES_SHOWN = 10


@dataclass(frozen=True)
class Number:
    """A column of numbers, and the bounds that everybody knows: low < high."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        plain_text("the name of a column", self.name)
        said = f"got {self.low!r} and {self.high!r}"
        if not (self.low < self.high and np.isfinite([self.low, self.high, self.high - self.low]).all()):
            raise ParameterError(f"bounds of column {self.name!r} must be two numbers LOW < HIGH, {said}")
        if not self.high - self.low >= _NARROWEST:
            raise ParameterError(f"bounds of column {self.name!r} must be at least {_NARROWEST:g} apart, {said}")

    @property
    def middle(self) -> float:
        """Half way between the bounds: becomes 0."""
        return self.low + self.half

    @property
    def half(self) -> float:
        """From the middle to a bound: becomes 1."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Category:
    """A column of texts, and the list of values that everybody knows."""

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        plain_text("the name of a column", self.name)
        check_values(f"categories of column {self.name!r}", self.values, 1)


@dataclass(frozen=True)
class Columns:
    """The columns that are learned from.

    Features are the numbers, each scaled from its bounds to [-1, 1], then a 0 or 1 for every value of every category,
    all multiplied by row_norm / sqrt(columns): no row is longer than row_norm.

    Attributes:
        numbers, categories: In the table's order; at least one in all.
        row_norm: Bound of a row's L2 norm, in (0, inf).
    """

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...] = ()
    row_norm: float = ROW_NORM

    def __post_init__(self) -> None:
        positive("row_norm", self.row_norm)
        if not self.numbers and not self.categories:
            raise ParameterError("a table must have a column beside user, label and budget to learn from, got none")

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Names of the columns of numbers and of those of texts."""
        return [column.name for column in self.numbers], [column.name for column in self.categories]

    @property
    def features(self) -> int:
        """Numbers of an encoded row."""
        return len(self.feature_names)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Name of every feature: the column, or column=value."""
        texts = (f"{column.name}={value}" for column in self.categories for value in column.values)
        return (*(column.name for column in self.numbers), *texts)

    @cached_property
    def scales(self) -> tuple[F64, F64]:
        """Middle and unit of every feature: encoded = (in its own unit - middle) / unit."""
        factor = self.row_norm / np.sqrt(len(self.numbers) + len(self.categories))
        others = self.features - len(self.numbers)
        middle = np.array([column.middle for column in self.numbers] + [0.0] * others)
        half = np.array([column.half for column in self.numbers] + [1.0] * others)
        return middle, half / factor

    def encode(self, chunk: Chunk, title: str) -> tuple[F32, I64]:
        """Features of some rows, and how many cells of each column of numbers lay outside its bounds.

        The chunk's first numbers are those of the schema, and its texts have the schema's categories.
        """
        units = self.in_units(chunk, title)
        count = len(self.numbers)
        given = chunk.numbers[:, :count]
        clipped = (given != units[:, :count]).sum(axis=0)
        middle, unit = self.scales
        return np.ascontiguousarray((units - middle) / unit, dtype=np.float32), clipped.astype(np.int64)

    def in_units(self, chunk: Chunk, title: str) -> F64:
        """Features of some rows in their own units: numbers within their bounds, a 0 or 1 for every category."""
        lows, highs = ([getattr(column, name) for column in self.numbers] for name in ("low", "high"))
        parts = [np.clip(chunk.numbers[:, : len(self.numbers)], lows, highs)]
        for column in self.categories:
            place = Place(title, column.name, chunk.first_row)
            found = positions(chunk.texts[column.name], column.values, place, "categories")
            parts.append(np.zeros((chunk.rows, len(column.values))))
            parts[-1][np.arange(chunk.rows), found] = 1
        return np.concatenate(parts, axis=1)


def positions(texts: list[str], values: tuple[str, ...], place: Place, option: str) -> I64:
    """Where each text stands among the values that are known."""
    order = {value: at for at, value in enumerate(values)}
    try:
        return np.fromiter((order[text] for text in texts), dtype=np.int64, count=len(texts))
    except KeyError as error:
        at = texts.index(error.args[0])
        known = ", ".join(values[:_VALUES_SHOWN]) + (", ..." if len(values) > _VALUES_SHOWN else "")
        raise place.error(at, f"must be one of {option} {known}; got {quoted(texts[at])}") from None


def check_values(name: str, values: tuple[str, ...], fewest: int) -> None:
    """Raise unless these are as many different names as there must be."""
    if not fewest <= len(values) <= _MOST_VALUES:
        raise ParameterError(f"{name} must be {fewest} to {_MOST_VALUES} names, got {len(values)}")
    seen: set[str] = set()
    for value in values:
        if not isinstance(value, str) or not value or value != value.strip() or value in seen:
            raise ParameterError(f"{name} must be names that differ, none empty or with spaces around, got {value!r}")
        seen.add(plain_text(name, value))
