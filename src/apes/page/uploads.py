"""Budgets out of a CSV file that was dropped on the page: read, checked, and kept for the questions that follow."""

import csv
import hashlib
import io
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np

from apes.checks import positive_array
from apes.errors import DataError
from apes.mathematics.arrays import F64

MOST_BYTES = 32 * 2**20
"""Of a file."""
_MOST_ROWS = 1_000_000
_MOST_COLUMNS = 64
_BARS = 24
_LONGEST_TEXT = 40
# Whoever has the page open in several tabs has several files.
_KEPT = 4


@dataclass(frozen=True)
class Upload:
    """Budgets of a file, one per person, in order of size.

    Attributes:
        digest: SHA-256 of the budgets, by which later questions name them.
        place: ``FILE`` or ``FILE:COLUMN``, for ``--budgets file:...``.
        columns: Names of all columns, if the file has a header.
        budgets: Sorted, in (0, inf).
    """

    digest: str
    place: str
    columns: tuple[str, ...] = field(compare=False, repr=False)
    budgets: F64 = field(compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """What the page shows of it: size, and a histogram with at most two dozen bars."""
        different, counts = np.unique(self.budgets, return_counts=True)
        if different.size > _BARS:
            counts, edges = np.histogram(self.budgets, bins=_BARS)
            bars = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        else:
            bars = zip(different.tolist(), different.tolist(), counts.tolist(), strict=True)
        size = {"users": int(self.budgets.size), "columns": list(self.columns)}
        return {"upload": self.digest, "place": self.place, **size, "bars": [list(bar) for bar in bars]}


class Uploads:
    """The files that were dropped last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Upload] = OrderedDict()
        self._lock = Lock()

    def keep(self, upload: Upload) -> Upload:
        """Keep one, in place of the one that was used least lately."""
        with self._lock:
            self._kept[upload.digest] = upload
            self._kept.move_to_end(upload.digest)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return upload

    def named(self, digest: Any) -> Upload:
        """The one of this digest."""
        with self._lock:
            if digest not in self._kept:
                raise DataError("the file is not here any more: drop it again")
            self._kept.move_to_end(digest)
            return self._kept[digest]


def read_upload(content: bytes, name: str, column: str | None) -> Upload:
    """Read a file as ``--budgets file:NAME`` or ``file:NAME:COLUMN`` would; DataError if that is not possible."""
    try:
        rows = _rows(content, name)
        first = next(rows, None)
        if first is None:
            raise DataError(f"{name} holds no budgets: expected one row per user")
        header = first if column is not None or not _is_number(first[0]) else None
        place = 0 if column is None else _place(name, column, first)
        texts = _texts(chain([] if header else [first], rows), place, name)
        budgets = positive_array("budgets", texts)
    except (ValueError, csv.Error) as error:
        # What a check says is a ValueError too, and says enough.
        raise DataError(f"in {name}: {error}") from None
    budgets.sort()
    budgets.flags.writeable = False
    told = name if column is None else f"{name}:{column}"
    digest = hashlib.sha256(told.encode() + b"\0" + budgets.tobytes()).hexdigest()
    return Upload(digest, told, tuple(header or ())[:_MOST_COLUMNS], budgets)


def _rows(content: bytes, name: str) -> Iterator[list[str]]:
    """Row after row that is not empty: a file of many columns is never held as lists."""
    try:
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
        yield from (row for row in csv.reader(text) if row)
    except UnicodeDecodeError:
        raise DataError(f"{name} is no CSV file: it is not text in UTF-8") from None


def _place(name: str, column: str, header: list[str]) -> int:
    if column not in header:
        raise DataError(f"{name} has no column {column!r}; its columns are {', '.join(header[:_MOST_COLUMNS])}")
    return header.index(column)


def _texts(rows: Iterator[list[str]], place: int, name: str) -> list[float]:
    """The numbers of one column."""
    found: list[float] = []
    for row in rows:
        if len(row) <= place:
            raise DataError(f"{name}: the entry of person {len(found) + 1} is missing")
        if len(found) == _MOST_ROWS:
            raise DataError(f"{name} holds more than {_MOST_ROWS:,} budgets, the most that this page takes")
        try:
            found.append(float(row[place]))
        except ValueError:
            must = f"{name}: the budget of person {len(found) + 1} must be a number"
            raise DataError(f"{must}, got {row[place][:_LONGEST_TEXT]!r}") from None
    if not found:
        raise DataError(f"{name} holds no budgets: expected one row per user")
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
