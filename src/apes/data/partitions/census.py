"""Who is in a file: all that is read of it before anybody's rows are asked for."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.data.partitions.files import PartFile
from apes.data.partitions.pieces import FEWEST_ROWS, Piece, Spans, cut
from apes.data.table.cells import Place
from apes.data.table.chunk import Progress
from apes.data.table.parquet_file import ParquetTable
from apes.data.table.people_rows import judging_draws, judging_limit, own_budgets, persons_of
from apes.data.table.reading import Bounds, MissingBounds, Reading
from apes.data.table.rows import row_budgets, value_ranges
from apes.data.table.schema import CLASSIFICATION
from apes.errors import DataError
from apes.mathematics.arrays import F64, I64, U64, Bools


@dataclass(frozen=True, eq=False)
class Census:
    """The people of a file, in order of their ids. Names are let go of once the next file is read.

    Attributes:
        file: The file.
        kinds: Its columns, and what their cells are.
        ranges: The least and the largest value of every column that gets its bounds from the data.
        names: Ids.
        draws: What decides who judges (`judging_draws`).
        trains: Who trains.
        held: How many rows count, of each.
        budgets: Local budgets, or None if the file has none.
        labels: The different labels, if classes are to be found.
        pieces: What it is read by.
        rows: How many it has.
    """

    file: PartFile
    kinds: dict[str, str]
    ranges: dict[str, Bounds]
    names: NDArray[Any]
    draws: U64
    trains: Bools
    held: I64
    budgets: F64 | None
    labels: frozenset[str]
    pieces: list[Piece]
    rows: int

    @property
    def keys(self) -> NDArray[np.uint64]:
        """128 bits of a hash of each id, (people, 2): tells people of different files apart without their names."""
        ids = (name.encode(errors="surrogatepass") for name in self.names)
        joined = b"".join(hashlib.blake2b(own, digest_size=16, person=b"apes person").digest() for own in ids)
        return np.frombuffer(joined, dtype=np.uint64).reshape(-1, 2)

    def without_people(self) -> "Census":
        """What is of the file itself."""
        none, draws = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
        return replace(self, names=none, draws=draws, trains=none.astype(bool), held=none, budgets=None)


def take_census(path: Path, reading: Reading, like: Census | None = None, progress: Progress | None = None) -> Census:
    """Read whose rows there are, their budgets, and which labels, of one file, with columns like those of another.

    Takes about 200 bytes per person and 50 per row of this file while it runs.

    Raises:
        DataError: If the file cannot be read, has no rows or other columns, or a cell is missing or cannot be read.
        MissingBounds: If a column of numbers has no bounds, and is not to get them from the data.
    """
    file, table = PartFile.of(path), ParquetTable(path)
    if like is not None:
        _check_alike(like, path, table.kinds)
    unbounded = reading.unbounded(table)
    if unbounded and not reading.bounds_from_data:
        raise MissingBounds(unbounded)
    found = _Found(reading, table.title)
    numbers = [reading.budget] if reading.budget is not None and not reading.levels else []
    texts = [reading.user, *([reading.budget] if reading.budget is not None and reading.levels else [])]
    texts += [reading.label] if found.seeks_classes else []
    for chunk in table.chunks(numbers, texts, progress):
        found.users += map(found.same.setdefault, chunk.texts[reading.user], chunk.texts[reading.user])
        if reading.budget is not None:
            found.budgets.append(row_budgets(chunk, reading, table.title))
        if found.seeks_classes:
            found.labels.update(chunk.texts[reading.label])
    if not found.users:
        raise DataError(f"{table.title} has no rows")
    ranges = value_ranges(table.chunks(unbounded, []), table.title) if unbounded else {}
    file.check()
    return replace(_census(found, file, table.group_ends), kinds=table.kinds, ranges=ranges)


def _check_alike(first: Census, path: Path, kinds: dict[str, str]) -> None:
    """Raise unless a file has the same columns as the first, of the same kinds."""
    if list(first.kinds) != list(kinds):
        odd = sorted(set(first.kinds) ^ set(kinds))
        what = f"column {odd[0]!r} is in one of them only" if odd else "they are in another order"
        raise DataError(f"{path} must have the columns of {first.file.path}: {what}")
    for name, kind in first.kinds.items():
        if kinds[name] != kind:
            raise DataError(f"{path}, column {name!r}: must be {kind}, as in {first.file.path}, got {kinds[name]}")


class _Found:
    """What was read of a file so far."""

    def __init__(self, reading: Reading, title: str) -> None:
        self.reading, self.title = reading, title
        # One text per person, however many rows the person has.
        self.same: dict[str, str] = {}
        self.users: list[str] = []
        self.budgets: list[F64] = []
        self.labels: set[str] = set()
        self.seeks_classes = reading.task == CLASSIFICATION and reading.classes is None


def _census(found: _Found, file: PartFile, group_ends: list[int]) -> Census:
    reading = found.reading
    names, person = persons_of(found.users)
    budgets = None
    if found.budgets:
        budgets = own_budgets(np.concatenate(found.budgets), names, person, Place(found.title, reading.budget or ""))
    draws = judging_draws(names, reading.seed)
    first = np.unique(person, return_index=True)[1]
    last = person.size - 1 - np.unique(person[::-1], return_index=True)[1]
    trains, held = draws >= judging_limit(reading), np.minimum(np.bincount(person), reading.max_rows)
    pieces = cut(file, Spans(first, last, trains, held), group_ends, FEWEST_ROWS)
    return Census(file, {}, {}, names, draws, trains, held, budgets, frozenset(found.labels), pieces, person.size)
