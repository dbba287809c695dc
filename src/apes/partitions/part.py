"""Some of the people of a partitioned table: small, can be sent anywhere, and reads rows where it is asked for them."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.data.partitions.cache import PIECES
from apes.data.partitions.piece_rows import Encoding, PieceRows, read_piece
from apes.data.partitions.pieces import Piece
from apes.errors import ParameterError
from apes.mathematics.arrays import F64, I64
from apes.population import UserBlock

CACHE_MB = 1024
"""Encoded rows that a process keeps by default, in MB of 2^20 bytes."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the people of a partitioned table, under their own numbers: what a worker is sent. No rows are in it.

    Attributes:
        start, stop: Numbers of these people, in the whole.
        budgets: Their local budgets.
        digest: Of the whole, and of who they are.
        pieces: What their rows are read by.
        first: Number of the first person of each piece.
        encoding: How pieces become rows.
        cache_mb: Encoded rows that a process keeps, in MB.
    """

    start: int
    stop: int
    budgets: F64 = field(repr=False)
    digest: str
    pieces: tuple[Piece, ...] = field(repr=False)
    first: I64 = field(repr=False)
    encoding: Encoding = field(repr=False)
    cache_mb: int = CACHE_MB

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1 of the whole; their rows are read if this process does not have them."""
        low, high = self._reach(start, stop)
        found = [self._within(at, start, stop) for at in range(low, high) if self.pieces[at].users]
        features, labels, sizes = (
            parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in zip(*found, strict=True)
        )
        budgets = self.budgets[start - self.start : stop - self.start]
        return UserBlock(start, budgets, features, labels, np.concatenate([[0], np.cumsum(sizes)]))

    def _within(self, at: int, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], I64]:
        """Features, labels and numbers of rows of those of users start .. stop - 1 who are in a piece."""
        piece, first = self.pieces[at], int(self.first[at])
        rows = PIECES.get(self.encoding.key(piece), self.cache_mb << 20, partial(_training, piece, self.encoding))
        offsets = rows.offsets[max(start - first, 0) : min(stop - first, piece.users) + 1]
        own = slice(offsets[0], offsets[-1])
        return rows.features[own], rows.labels[own], np.diff(offsets)

    def _reach(self, start: int, stop: int) -> tuple[int, int]:
        """From which piece to before which users start .. stop - 1 are."""
        if not self.start <= start < stop <= self.stop:
            must = f"start and stop must be in order within [{self.start}, {self.stop}]"
            raise ParameterError(f"{must}, got {start}, {stop}")
        return int(np.searchsorted(self.first, start, side="right")) - 1, int(np.searchsorted(self.first, stop))

    def part(self, start: int, stop: int) -> "Part":
        """Users start .. stop - 1 of the whole, who must be among these."""
        low, high = self._reach(start, stop)
        budgets = self.budgets[start - self.start : stop - self.start].copy()
        digest = f"{self.digest.split()[0]} {start} {stop}"
        reach = self.pieces[low:high], self.first[low:high].copy()
        return Part(start, stop, budgets, digest, *reach, self.encoding, self.cache_mb)


def _training(piece: Piece, encoding: Encoding) -> PieceRows:
    return read_piece(piece, encoding)[0]
