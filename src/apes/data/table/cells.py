"""Cells of a table as numbers or texts; what cannot be read is named by table, row and column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import shown
from apes.errors import DataError, ParameterError
from apes.mathematics.arrays import F64

# How people write that they do not know a number. Among texts only nothing at all is missing: "none" may be a class.
_NO_NUMBER = frozenset({"", "na", "n/a", "nan", "nil", "none", "null", "-", "?"})
_LONGEST_QUOTED = 40
# Whole numbers that float64 has are all there is up to here.
_EXACT = 2**53


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
    _refuse_complex(values, place)
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
    try:
        texts = [_text(value) for value in plain]
    except ValueError:
        raise _not_a_text(plain, place) from None
    if "" in texts:
        raise place.error(texts.index(""), "is missing")
    return texts


def by_text(option: str, values: Any) -> dict[str, float]:
    """Return what a mapping gives by name, the names as the texts that cells become: 7 for 7.0.

    Raises:
        ParameterError: If it is no mapping, a name is missing, or two are the same text.
    """
    if not isinstance(values, Mapping):
        raise ParameterError(f"{option} of a table must be by name (a mapping) or by a law, got {quoted(values)}")
    found: dict[str, float] = {}
    for name, value in values.items():
        try:
            text = _text(name)
        except ValueError:
            text = ""
        if not text or text in found:
            why = "two that are the same text" if text else "one that is none"
            raise ParameterError(f"{option} must have names that differ as texts, got {why}: {quoted(name)}")
        found[text] = value
    return found


def as_they_are(values: Any) -> NDArray[Any]:
    """Return a list as an array in which every entry is what it was.

    NumPy would make a text of a number among texts, NaN too, and round a large whole number among fractions.
    """
    if isinstance(values, np.ndarray):
        return values
    array = np.asarray(values)
    is_rounded = array.dtype.kind == "f" and isinstance(values, list | tuple) and any(map(_is_large, values))
    return np.asarray(values, dtype=object) if array.dtype.kind in "SU" or is_rounded else array


def quoted(value: object) -> str:
    """A value for a message, not too long."""
    text = shown(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}..."


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if is_missing(value):
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").strip()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def is_missing(value: object) -> bool:
    """Whether a value stands for none: None, NaN, or what cannot say whether it equals itself (a frame's NA)."""
    try:
        return value is None or value is np.ma.masked or bool(value != value)
    except (TypeError, ValueError):
        return True


def _not_a_number(values: Sequence[Any] | NDArray[Any], place: Place) -> DataError:
    """The error of the first cell that is no number."""
    for at, value in enumerate(values):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            if is_missing(value) or (isinstance(value, str) and value.strip().lower() in _NO_NUMBER):
                return place.error(at, "is missing")
            remedy = (
                "a column of texts needs the list of its values (categories), or is left out (ignore); "
                "one of budgets that have names needs the budget of every name (budget_levels)"
            )
            return place.error(at, f"must be a number, got {quoted(value)}; {remedy}")
    return place.error(0, "must be a number")


def _not_a_text(values: Sequence[Any], place: Place) -> DataError:
    """The error of the first cell that cannot be spelled out."""
    for at, value in enumerate(values):
        try:
            _text(value)
        except ValueError:
            return place.error(at, f"must be shorter, got {quoted(value)}")
    return place.error(0, "must be a text or a number")


def _refuse_complex(values: object, place: Place) -> None:
    """NumPy would drop the imaginary part."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "cO":
        for at, value in enumerate(values):
            if isinstance(value, complex | np.complexfloating):
                raise place.error(at, f"must be a real number, got {quoted(value)}")


def _is_large(value: object) -> bool:
    return isinstance(value, int) and abs(value) > _EXACT


def _refuse_masked(values: object, place: Place) -> None:
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise place.error(int(np.argmax(np.ma.getmaskarray(values))), "is missing")
