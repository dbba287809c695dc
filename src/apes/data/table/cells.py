"""Cells of a table as numbers or texts; what cannot be read is named by table, row and column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.errors import DataError
from apes.mathematics.arrays import F64

# How people write that they do not know a number. Among texts only nothing at all is missing: "none" may be a class.
_NO_NUMBER = frozenset({"", "na", "n/a", "nan", "nil", "none", "null", "-", "?"})
_LONGEST_QUOTED = 40


@dataclass(frozen=True)
class Place:
    """Which cells are read, for messages: consecutive rows of a column.

    Attributes:
        table: What the table is called.
        column: Name of the column.
        first_row: Number of the first of the rows; rows count from 1, and the header is none.
    """

    table: str
    column: str
    first_row: int = 1

    def error(self, at: int, what: str) -> DataError:
        """What is wrong with cell ``at``, counted from 0."""
        return DataError(f"{self.table}, row {self.first_row + at}, column {self.column!r}: {what}")


def as_numbers(values: Sequence[Any] | NDArray[Any], place: Place) -> F64:
    """Return cells as finite float64 numbers; texts are read as numbers.

    Raises:
        DataError: At the first cell that is missing, is no number or is not finite.
    """
    _refuse_masked(values, place)
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            found = values.astype(np.float64)
        else:
            found = np.fromiter(map(float, values), dtype=np.float64, count=len(values))
    except (TypeError, ValueError, OverflowError):
        raise _not_a_number(values, place) from None
    bad = ~np.isfinite(found)
    if bad.any():
        at = int(np.argmax(bad))
        raise place.error(at, "is missing" if np.isnan(found[at]) else f"must be finite, got {quoted(values[at])}")
    return found


def as_texts(values: Sequence[Any] | NDArray[Any], place: Place) -> list[str]:
    """Return cells as texts without spaces around them; whole numbers as such, 7 for 7.0.

    Raises:
        DataError: At the first cell that is missing.
    """
    _refuse_masked(values, place)
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    texts = [_text(value) for value in plain]
    if "" in texts:
        raise place.error(texts.index(""), "is missing")
    return texts


def quoted(value: object) -> str:
    """A value for a message, not too long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}..."


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if _is_missing(value):
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").strip()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _is_missing(value: object) -> bool:
    """Whether a value stands for none: None, NaN, or what cannot say whether it equals itself (a frame's NA)."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _not_a_number(values: Sequence[Any] | NDArray[Any], place: Place) -> DataError:
    """The error of the first cell that is no number."""
    for at, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            if _is_missing(value) or (isinstance(value, str) and value.strip().lower() in _NO_NUMBER):
                return place.error(at, "is missing")
            remedy = "a column of texts needs the list of its values (categories), or is left out (ignore)"
            return place.error(at, f"must be a number, got {quoted(value)}; {remedy}")
    return place.error(0, "must be a number")


def _refuse_masked(values: object, place: Place) -> None:
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise place.error(int(np.argmax(np.ma.getmaskarray(values))), "is missing")
