"""Opening a partitioned table: who there is, file by file, and by which pieces their rows are read."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.data.partitions.census import Census, take_census
from apes.data.partitions.files import Files, part_paths
from apes.data.partitions.piece_rows import Encoding, of_pieces
from apes.data.partitions.pieces import Piece
from apes.data.table.chunk import Progress
from apes.data.table.parquet_file import ParquetTable
from apes.data.table.people_rows import TableFacts, check_training, judging_limit
from apes.data.table.reading import Bounds, Reading
from apes.data.table.rows import class_names
from apes.data.table.schema import CLASSIFICATION
from apes.errors import DataError
from apes.mathematics.arrays import F64

TEST_BYTES = 1 << 28
"""Encoded rows of the test part, at most: of those who judge as many are asked as fit, by the same draw."""
_BYTES_OF_NUMBER = 4
# Budgets of people by their ids, where the files have none.
BudgetsOf = Callable[[NDArray[Any]], F64]


@dataclass(frozen=True, eq=False)
class Opened:
    """A partitioned table, without anybody's rows.

    Attributes:
        encoding: How pieces become rows.
        pieces: In order of the people: files by their first id, within a file by id.
        budgets: Of those who train, or None if they are by a law.
        facts: What was read.
        digest: SHA-256 of all files and of how they are read.
    """

    encoding: Encoding
    pieces: tuple[Piece, ...]
    budgets: F64 | None
    facts: TableFacts
    digest: str


def open_partitions(
    source: Files, reading: Reading, budgets_of: BudgetsOf | None = None, progress: Progress | None = None
) -> Opened:
    """Read who is in the files of a partitioned table.

    Takes about 100 bytes per person in all, and what a census of the largest file takes (`take_census`).

    Raises:
        DataError: If a file is missing, damaged, empty or of other columns than the first, or somebody is in two.
        ParameterError: If a choice does not fit the table.
    """
    paths = part_paths(source)
    total, seen, found = sum(path.stat().st_size for path in paths), 0, list[_Known]()
    for path in paths:
        size = path.stat().st_size
        within = None if progress is None else _share(progress, seen, size, total)
        census = take_census(path, reading, found[0].census if found else None, within)
        found.append(_Known.of(census, reading, budgets_of))
        seen += size
    _check_apart(found, reading)
    return _opened(sorted(found, key=lambda known: known.first), reading)


@dataclass(frozen=True, eq=False)
class _Known:
    """What stays of a census: no names but the first."""

    census: Census  # without people
    first: str
    keys: NDArray[np.uint64]
    judging: NDArray[np.uint64]  # (draw, rows) of those who judge
    budgets: F64 | None  # of those who train
    held: int
    users: int

    @classmethod
    def of(cls, census: Census, reading: Reading, budgets_of: BudgetsOf | None) -> "_Known":
        trains = census.trains
        judging = np.stack([census.draws[~trains], census.held[~trains].astype(np.uint64)], axis=1)
        budgets = None if census.budgets is None else census.budgets[trains]
        if budgets_of is not None:
            budgets = budgets_of(census.names[trains]) if trains.any() else np.empty(0)
        facts = int(census.held.sum()), int(trains.sum())
        return cls(census.without_people(), str(census.names[0]), census.keys, judging, budgets, *facts)


def _opened(found: list[_Known], reading: Reading) -> Opened:
    users, people = sum(known.users for known in found), sum(len(known.keys) for known in found)
    check_training(people, people - users, reading)
    names = class_names({label for known in found for label in known.census.labels}, reading.classes)
    reading = reading.with_made_bounds(_joined([known.census.ranges for known in found]))
    columns = reading.columns(ParquetTable(Path(found[0].census.file.path)))
    schema = reading.schema(columns, names if reading.task == CLASSIFICATION else ())
    # A row takes its numbers and a label.
    most = TEST_BYTES // (_BYTES_OF_NUMBER * (schema.columns.features + 1))
    asked = _asked(np.concatenate([known.judging for known in found]), int(judging_limit(reading)), most)
    encoding = Encoding(of_pieces(reading, schema.classes), schema, asked)
    held, rows = sum(known.held for known in found), sum(known.census.rows for known in found)
    facts = TableFacts(held, rows - held, users, people - users, None)
    pieces = tuple(piece for known in found for piece in known.census.pieces)
    parts = [known.budgets for known in found if known.budgets is not None]
    files = [known.census.file.sha256 for known in found]
    digest = hashlib.sha256(
        json.dumps(["apes partitions", encoding.digest, reading.budget, files]).encode()
    ).hexdigest()
    return Opened(encoding, pieces, np.concatenate(parts) if parts else None, facts, digest)


def _joined(ranges: list[dict[str, Bounds]]) -> dict[str, Bounds]:
    """The least and the largest value of columns over all files, of which each has the same columns."""
    return {name: (min(own[name][0] for own in ranges), max(own[name][1] for own in ranges)) for name in ranges[0]}


def _asked(judging: NDArray[np.uint64], limit: int, most_rows: int) -> int:
    """Below which draw judges are asked: all of them, or the first so many that their rows are within the most."""
    rows = judging[np.argsort(judging[:, 0])]
    fit = int(np.searchsorted(np.cumsum(rows[:, 1]), most_rows, side="right"))
    return limit if fit == len(rows) else int(rows[fit, 0])


def _check_apart(found: list[_Known], reading: Reading) -> None:
    """Raise if a person is in two files."""
    keys, file = (
        np.concatenate([known.keys for known in found]),
        np.repeat(np.arange(len(found)), [len(known.keys) for known in found]),
    )
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    twice = np.flatnonzero((keys[order[1:]] == keys[order[:-1]]).all(axis=1))
    if twice.size:
        # Names were let go of: of this one file they are read again.
        one, other = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
        path = found[file[other]].census.file.path
        name = take_census(Path(path), reading).names[other - int(np.argmax(file == file[other]))]
        also = found[file[one]].census.file.path
        raise DataError(f"{path}: user {name!r} is in {also} as well; a file must hold all that its people have")


def _share(progress: Progress, seen: int, size: int, total: int) -> Progress:
    """Progress in a file, as progress in all of them, in bytes."""
    return lambda done, rows: progress(seen + size * done // max(rows, 1), total)
