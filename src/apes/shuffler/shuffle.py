"""The shuffler: takes reports of known senders, releases what no longer tells who sent what.

A collector gathers a round's reports, block after block and on several threads at once, and releases one batch: the
same whatever the order and the size of the blocks, and whoever gathered which of them.
"""

import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole
from apes.errors import ParameterError, ProtocolError
from apes.mathematics.arrays import F32, F64, I64, U8, U32, Bools
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Key, Purpose, SimulationSource, philox
from apes.messages import Batch, CountedBatch, PermutedBatch, Report, SummedBatch
from apes.shuffler.counts import LevelCounts

_FIXED_POINT = 2.0**32
_WORD = np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@dataclass(frozen=True, eq=False)
class Part:
    """What some of a round's users reported, gathered by another worker of the shuffler. Can be pickled."""

    values: NDArray[Any]  # counts, reports or sums, as the collector keeps them
    received: I64  # how many coordinates each user has reported
    budgets: F64  # of those who have


class Collector(ABC):
    """Gathers the reports of one round and releases one batch: every user reports every coordinate once, in order."""

    def __init__(self, users: int, dimensions: int, source: SimulationSource) -> None:
        self._received = np.zeros(whole("users", users, 1), dtype=np.int64)
        self._budgets = np.full(users, np.nan)
        self._dimensions, self._source = dimensions, source

    def add(self, report: Report) -> None:
        """Take the reports of a block of users."""
        senders, coordinates = self._places(report)
        self._take(report.values, senders, coordinates)
        self._received[senders] += report.values.shape[1]
        self._budgets[senders] = report.budgets

    def part(self) -> Part:
        """What was gathered so far, for another collector of the same round."""
        return Part(self._gathered(), self._received, self._budgets)

    def join(self, part: Part) -> None:
        """Take what another collector gathered from other users."""
        new = part.received > 0
        if new.shape != self._received.shape or (self._received[new] > 0).any():
            raise ProtocolError("a part of a round holds users who have reported already")
        self._received[new], self._budgets[new] = part.received[new], part.budgets[new]
        self._join(part.values, new)

    def release(self) -> Batch:
        """Hand over the batch, and the budgets in an order of their own, once everybody has reported everything."""
        if (self._received != self._dimensions).any():
            user = int(np.argmax(self._received != self._dimensions))
            raise ProtocolError(f"user {user} reported {self._received[user]} of {self._dimensions} coordinates")
        return self._batch(self._source.generator(Purpose.SHUFFLE).permutation(self._budgets))

    def _places(self, report: Report) -> tuple[slice, slice]:
        """Senders and coordinates of a report; refuses one that does not come next from its senders."""
        if report.values.ndim != 2 or report.values.size == 0:
            raise ProtocolError(f"a report is users x coordinates, got shape {report.values.shape}")
        users, width = report.values.shape
        senders = slice(report.first_user, report.first_user + users)
        coordinates = slice(report.first_coordinate, report.first_coordinate + width)
        if report.first_user < 0 or senders.stop > self._received.size:
            raise ProtocolError(f"report from users {senders.start}..{senders.stop - 1} of {self._received.size}")
        if report.budgets.shape != (users,) or not ((report.budgets > 0) & np.isfinite(report.budgets)).all():
            raise ProtocolError(f"report of {users} users whose budgets are not {users} numbers in (0, inf)")
        if coordinates.stop > self._dimensions or (self._received[senders] != report.first_coordinate).any():
            part = f"{coordinates.start}..{coordinates.stop - 1} of {self._dimensions}"
            raise ProtocolError(f"report on coordinates {part} is not what comes next from its users")
        return senders, coordinates

    @abstractmethod
    def _take(self, values: U8 | F32, senders: slice, coordinates: slice) -> None:
        """Take in a block, wholly or not at all."""

    @abstractmethod
    def _gathered(self) -> NDArray[Any]: ...

    @abstractmethod
    def _join(self, values: NDArray[Any], new: Bools) -> None: ...

    @abstractmethod
    def _batch(self, budgets: F64) -> Batch: ...


class LevelCounter(Collector):
    """Counts levels: says as much as the permuted reports, and no more, in memory that does not grow with the users."""

    def __init__(self, users: int, dimensions: int, levels: int, source: SimulationSource) -> None:
        super().__init__(users, dimensions, source)
        self._counts = LevelCounts(dimensions, levels)

    def _take(self, values: U8 | F32, senders: slice, coordinates: slice) -> None:
        if values.dtype != np.uint8:
            raise ProtocolError(f"coded reports are bytes, got {values.dtype}")
        self._counts.add(values.astype(np.uint8, copy=False), coordinates.start)

    def _gathered(self) -> I64:
        return self._counts.total()

    def _join(self, values: I64, new: Bools) -> None:
        if (values.sum(axis=1) != new.sum()).any():
            raise ProtocolError(f"counts of a part do not add up to the {new.sum()} users who reported it")
        self._counts.join(values)

    def _batch(self, budgets: F64) -> CountedBatch:
        return CountedBatch(self._counts.total(), budgets)


class Permuter(Collector):
    """Holds a round's reports and releases every coordinate in an independent random order."""

    def __init__(
        self, users: int, dimensions: int, source: SimulationSource, dtype: type = np.float32, threads: int = 1
    ) -> None:
        super().__init__(users, dimensions, source)
        self._threads = threads
        self._values: F32 | U8 = np.empty((dimensions, users), dtype=dtype)

    def _take(self, values: U8 | F32, senders: slice, coordinates: slice) -> None:
        if values.dtype != self._values.dtype:
            raise ProtocolError(f"this round's reports are {self._values.dtype}, got {values.dtype}")
        self._values[coordinates, senders] = values.T

    def _gathered(self) -> F32 | U8:
        return self._values

    def _join(self, values: F32 | U8, new: Bools) -> None:
        self._values[:, new] = values[:, new]

    def _batch(self, budgets: F64) -> PermutedBatch:
        stream, key = self._source.stream(Purpose.SHUFFLE), self._source.key
        edges = [self._dimensions * part // self._threads for part in range(self._threads + 1)]
        with ThreadPoolExecutor(self._threads) as pool:
            rows = pairwise(edges)
            list(pool.map(lambda ends: permute_rows(self._values[slice(*ends)], ends[0], stream, key), rows))
        return PermutedBatch(self._values, budgets)


class Adder(Collector):
    """For the frameworks without a shuffler: the sum, in fixed point, so that the order of blocks does not matter."""

    def __init__(self, users: int, dimensions: int, source: SimulationSource) -> None:
        super().__init__(users, dimensions, source)
        self._sums = np.zeros(dimensions, dtype=np.int64)
        # 2^62 / 2^32 / users: below it no sum can overflow.
        self._largest = 2.0**62 / _FIXED_POINT / users
        self._lock = threading.Lock()

    def _take(self, values: U8 | F32, senders: slice, coordinates: slice) -> None:
        sums = np.zeros(values.shape[1], dtype=np.int64)
        if not _add_fixed(values.astype(np.float32, copy=False), self._largest, sums):
            raise ParameterError(f"updates must be finite and within +-{self._largest:.3g} to be added up")
        with self._lock:
            self._sums[coordinates] += sums

    def _gathered(self) -> I64:
        return self._sums

    def _join(self, values: I64, new: Bools) -> None:
        self._sums += values

    def _batch(self, budgets: F64) -> SummedBatch:
        return SummedBatch(self._sums / _FIXED_POINT / budgets.size, budgets)


@compiled
def _add_fixed(values: F32, largest: float, sums: I64) -> bool:
    for u in range(values.shape[0]):
        row = values[u]
        valid = True
        for c in range(row.size):
            valid &= bool(abs(np.float64(row[c])) <= largest)
        if not valid:
            return False
        for c in range(row.size):
            sums[c] += np.int64(np.rint(np.float64(row[c]) * 4294967296.0))
    return True


@compiled
def permute_rows(values: F32 | U8, first: int, stream: np.uint64, key: Key) -> None:
    """Give every row of ``values`` an independent uniform permutation (Fisher-Yates), in place.

    A row has fewer than 2^32 places; unsigned indices spare a test for negative ones.
    """
    rows, n = values.shape
    partners = np.empty(2 * (n // 2 + 1), dtype=np.uint32)
    for r in range(rows):
        row = values[r]
        _partners(np.uint64(first + r), stream, key, partners)
        for k in range(_ONE, np.uint64(n)):
            i = np.uint64(n) - k
            j = np.uint64(partners[i])
            row[i], row[j] = row[j], row[i]


@compiled
def _partners(row: np.uint64, stream: np.uint64, key: Key, partners: U32) -> None:
    """For every place i of a row a uniform place in 0 .. i.

    A 64-bit fraction times i + 1: no place is off by more than 2^-32 of its probability for n < 2^32.
    """
    for m in range(np.uint64(partners.size // 2)):
        a, b, c, d = philox(np.uint64(m), np.uint64(0), row, stream, key[0], key[1])
        bound = _TWO * m + _ONE
        partners[_TWO * m] = np.uint32((a * bound + ((b * bound) >> _WORD)) >> _WORD)
        bound = _TWO * m + _TWO
        partners[_TWO * m + _ONE] = np.uint32((c * bound + ((d * bound) >> _WORD)) >> _WORD)
