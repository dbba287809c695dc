"""Counts per level: how a batch of coded reports is held, in memory that does not grow with the users."""

import threading
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from apes.errors import ProtocolError
from apes.mathematics.arrays import I64, U8, U16
from apes.mathematics.compiled import compiled

_TALLY_LIMIT, _LARGEST_CODE = 2**16 - 1, 2**8 - 1
# A tile of 128 coordinates x 256 levels x 1 byte stays in a first-level cache while users run through it, and then is
# added in order: counts themselves, of which every line is fetched at random, take twice as long, but for a few users.
_COORDINATES_AT_ONCE, _WORTH_A_TILE = 128, 32
# First coordinate of a report, and how many there are.
Span = tuple[int, int]


class LevelCounts:
    """Counts levels from several threads: 16-bit tallies per thread, added up before they can overflow.

    Of two levels the ones alone are kept, one integer per coordinate; the zeros are what is left of those who reported.
    """

    def __init__(self, dimensions: int, levels: int) -> None:
        self._levels = levels
        self._counts = np.zeros(dimensions if levels == 2 else (dimensions, levels), dtype=np.int64)
        self._reported: Counter[Span] = Counter()
        self._own = threading.local()
        self._tallies: list[_Tally] = []
        self._lock = threading.Lock()

    def add(self, codes: U8, first_coordinate: int = 0) -> None:
        """Count a block (users x coordinates); nothing of it is counted if it holds what is not a level."""
        users, width = codes.shape
        if users > _TALLY_LIMIT:
            raise ProtocolError(f"a report holds at most {_TALLY_LIMIT} users, got {users}")
        tally = self._tally()
        if tally.rows + users > _TALLY_LIMIT:
            self._flush(tally)
        count = count_bits if self._levels == 2 else count_levels
        if not count(codes, tally.counts[first_coordinate : first_coordinate + width]):
            raise ProtocolError(f"a report holds a level past {self._levels - 1}")
        tally.rows += users
        tally.reported[first_coordinate, width] += users

    def join(self, counts: I64) -> None:
        """Add what was counted elsewhere, (coordinates, levels), of users who reported all coordinates."""
        users = counts.sum(axis=1)
        if (users != users[0]).any():
            raise ProtocolError("counts of a part are not of the same users in every coordinate")
        with self._lock:
            self._counts += counts[:, 1] if self._levels == 2 else counts
            self._reported[0, users.size] += int(users[0])

    def total(self) -> I64:
        """Everything counted so far, (coordinates, levels); no thread may be adding meanwhile."""
        for tally in self._tallies:
            self._flush(tally)
        if self._levels > 2:
            return self._counts
        both = np.zeros((self._counts.size, 2), dtype=np.int64)
        for (first, width), users in self._reported.items():
            both[first : first + width, 0] += users
        both[:, 0] -= self._counts
        both[:, 1] = self._counts
        return both

    def _tally(self) -> "_Tally":
        tally: _Tally | None = getattr(self._own, "tally", None)
        if tally is None:
            tally = self._own.tally = _Tally(np.zeros(self._counts.shape, dtype=np.uint16))
            with self._lock:
                self._tallies.append(tally)
        return tally

    def _flush(self, tally: "_Tally") -> None:
        with self._lock:
            _add_tally(self._counts.reshape(-1), tally.counts.reshape(-1))
            self._reported += tally.reported
        tally.reported.clear()
        tally.rows = 0


@dataclass
class _Tally:
    """One thread's counts since its last flush."""

    counts: U16
    # Bounds every entry: each call adds at most its number of users to one coordinate.
    rows: int = 0
    # How many users reported which coordinates.
    reported: Counter[Span] = field(default_factory=Counter)


@compiled
def _add_tally(counts: I64, tally: U16) -> None:
    """Add a thread's counts, and set them to zero; NumPy would convert them first, in several times the time."""
    for i in range(np.uint64(counts.size)):
        counts[i] += np.int64(tally[i])
        tally[i] = np.uint16(0)


@compiled
def count_levels(codes: U8, counts: U16) -> bool:
    """Add a block (users x coordinates) to counts (coordinates x levels).

    Returns False, having counted nothing, if a code is not a level.
    """
    users, width = codes.shape
    if counts.shape[1] <= _LARGEST_CODE:
        for u in range(users):
            if codes[u].max() >= counts.shape[1]:
                return False
    tile = np.zeros((_COORDINATES_AT_ONCE, _LARGEST_CODE + 1), dtype=np.uint8)
    for start in range(0, width, _COORDINATES_AT_ONCE):
        stop = min(start + _COORDINATES_AT_ONCE, width)
        if users < _WORTH_A_TILE:
            _count_one_by_one(codes[:, start:stop], counts[start:stop])
            continue
        for first in range(0, users, _LARGEST_CODE):
            _count_one_by_one(codes[first : first + _LARGEST_CODE, start:stop], tile)
            _move_counts(tile, counts[start:stop])
    return True


@compiled
def _count_one_by_one(codes: U8, counts: U8 | U16) -> None:
    """Add one where every code says; no count may be at its largest number."""
    for u in range(codes.shape[0]):
        row = codes[u]
        for c in range(np.uint64(row.size)):
            counts[c, row[c]] += 1


@compiled
def _move_counts(tile: U8, counts: U16) -> None:
    """Add a tile to counts, and set it to zero."""
    for c in range(counts.shape[0]):
        own, counted = counts[c], tile[c]
        for level in range(own.size):
            own[level] += np.uint16(counted[level])
            counted[level] = np.uint8(0)


@compiled
def count_bits(codes: U8, counts: U16) -> bool:
    """The same for two levels, of which only the ones are counted: columns are added up, many at a time."""
    users, width = codes.shape
    ones = np.zeros(width, dtype=np.uint16)
    seen = np.uint8(0)
    for u in range(users):
        row = codes[u]
        for c in range(np.uint64(width)):
            ones[c] += np.uint16(row[c])
            seen |= row[c]
    if seen > 1:
        return False
    for c in range(np.uint64(width)):
        counts[c] += ones[c]
    return True
