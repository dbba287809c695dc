"""Rows of a piece, encoded: the same as those of one table with everybody in it."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.data.partitions.pieces import Piece
from apes.data.table.parquet_file import ParquetTable
from apes.data.table.people_rows import first_rows, judging_draws, judging_limit, persons_of
from apes.data.table.reading import Reading
from apes.data.table.rows import read_rows
from apes.data.table.schema import Schema
from apes.errors import DataError
from apes.mathematics.arrays import F32, I64

_BYTES_OF_CLASSES = 256


@dataclass(frozen=True)
class Encoding:
    """How pieces become rows. Small, and nothing in it is of anybody's data.

    Attributes:
        reading: Which column is what; with all classes named.
        schema: What is public about the table.
        asked: Whose draw (`judging_draws`) is below it has rows in the test part; at most the limit of who judges.
    """

    reading: Reading
    schema: Schema
    asked: int

    @cached_property
    def digest(self) -> str:
        """Tells rows encoded in this way from any others."""
        own = self.reading
        parts = [self.schema.digest, own.user, own.max_rows, float(own.test_share), own.seed, self.asked]
        return sha256(json.dumps(parts).encode()).hexdigest()

    def key(self, piece: Piece) -> str:
        """Name of a piece's rows encoded in this way, by what is in them and not by where they are."""
        return f"{piece.file.sha256} {piece.start} {piece.stop} {self.digest}"


@dataclass(frozen=True, eq=False)
class PieceRows:
    """Rows of those who train, person after person in order of their ids.

    Attributes:
        features, labels: Encoded by the schema.
        offsets: Person u of the piece holds rows offsets[u] to offsets[u + 1].
    """

    features: F32
    labels: NDArray[Any]
    offsets: I64

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.features.nbytes + self.labels.nbytes + self.offsets.nbytes


@dataclass(frozen=True, eq=False)
class PieceTest:
    """What a piece adds to the test part, and to what is said of the table.

    Attributes:
        features, labels: Rows of those who judge and are asked.
        clipped: How many cells of all rows lay outside the bounds, by column.
    """

    features: F32
    labels: NDArray[Any]
    clipped: dict[str, int]


def read_piece(piece: Piece, encoding: Encoding) -> tuple[PieceRows, PieceTest]:
    """Read and encode the rows of a piece; takes about three times their encoded size and 250 bytes per row meanwhile.

    Raises:
        DataError: If the file is not what it was, or a cell cannot be read, in one line that names the file.
    """
    reading, schema = encoding.reading, encoding.schema
    piece.file.check()
    table = ParquetTable(Path(piece.file.path), range(piece.start, piece.stop))
    rows = read_rows(table, reading)
    names, person = persons_of(rows.users)
    order, counts = first_rows(person, reading.max_rows)
    draws = judging_draws(names, reading.seed)
    trains, asked = draws >= judging_limit(reading), draws < np.uint64(encoding.asked)
    of_train, of_test = order[np.repeat(trains, counts)], order[np.repeat(asked, counts)]
    # Also after reading: what was written to meanwhile may be half of each.
    piece.file.check()
    if (int(trains.sum()), of_train.size, rows.schema.columns) != (piece.users, piece.held, schema.columns):
        raise DataError(f"{piece.file.path} has changed since it was opened")
    labels = _small(rows.labels, schema)
    offsets = np.concatenate([[0], np.cumsum(counts[trains])])
    judging = PieceTest(rows.features[of_test], labels[of_test], rows.clipped)
    return PieceRows(rows.features[of_train], labels[of_train], offsets), judging


def of_pieces(reading: Reading, classes: tuple[str, ...]) -> Reading:
    """How pieces are to be read: classes are known, and budgets were read before."""
    ignored = () if reading.budget is None else (reading.budget,)
    known = classes if classes else reading.classes
    return replace(reading, budget=None, levels={}, ignore=(*reading.ignore, *ignored), classes=known)


def _small(labels: NDArray[Any], schema: Schema) -> NDArray[Any]:
    """Classes as the smallest unsigned integers that hold all of them, so that pieces have them alike."""
    if not schema.classes:
        return labels
    return labels.astype(np.uint8 if len(schema.classes) <= _BYTES_OF_CLASSES else np.uint16)
