"""The shuffler: takes reports of known senders, releases what no longer tells who sent what.

A collector gathers a round's reports, block after block and on several threads at once, and releases one batch:

* `LevelCounter`: coded reports as counts per level (memory does not grow with the users);
* `Permuter`: every coordinate's reports in an independent random order;
* `Adder`: for the frameworks without a shuffler, the plain sum.

Each gives the same batch whatever the order and the size of the blocks, and whoever gathered which of them.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole
from apes.errors import ParameterError, ProtocolError
from apes.mathematics.arrays import F32, F64, I64, U8, Bools
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Purpose, SimulationSource
from apes.messages import Batch, CountedBatch, PermutedBatch, Report, SummedBatch
from apes.shuffler.counts import LevelCounts
from apes.shuffler.tally import permute_rows

_FIXED_POINT = 2.0**32


@dataclass(frozen=True, eq=False)
class Part:
    """What some of a round's users reported, gathered by another worker of the shuffler. Can be pickled.

    Attributes:
        values: Counts, reports or sums, as the collector keeps them.
        received: Coordinates that each user has reported.
        budgets: Budgets of those who have.
    """

    values: NDArray[Any]
    received: I64
    budgets: F64


class Collector(Protocol):
    """Gathers the reports of one round and releases one batch."""

    def add(self, report: Report) -> None:
        """Take the reports of a block of users."""
        ...

    def part(self) -> Part:
        """What was gathered so far, for another collector of the same round."""
        ...

    def join(self, part: Part) -> None:
        """Take what another collector gathered from other users."""
        ...

    def release(self) -> Batch:
        """Hand over the batch."""
        ...


class _Attendance:
    """Who has reported what: every user reports every coordinate exactly once, parts in order."""

    def __init__(self, users: int, dimensions: int) -> None:
        self._received = np.zeros(whole("users", users, 1), dtype=np.int64)
        self._budgets = np.full(users, np.nan)
        self._dimensions = dimensions

    def check(self, report: Report) -> slice:
        """Refuse a report that does not come next from its senders; return who they are."""
        if report.values.ndim != 2 or report.values.size == 0:
            raise ProtocolError(f"a report is users x coordinates, got shape {report.values.shape}")
        users, width = report.values.shape
        senders = slice(report.first_user, report.first_user + users)
        stop = report.first_coordinate + width
        if report.first_user < 0 or senders.stop > self._received.size:
            raise ProtocolError(f"report from users {senders.start}..{senders.stop - 1} of {self._received.size}")
        if report.budgets.shape != (users,) or not ((report.budgets > 0) & np.isfinite(report.budgets)).all():
            raise ProtocolError(f"report of {users} users whose budgets are not {users} numbers in (0, inf)")
        if stop > self._dimensions or (self._received[senders] != report.first_coordinate).any():
            part = f"{report.first_coordinate}..{stop - 1} of {self._dimensions}"
            raise ProtocolError(f"report on coordinates {part} is not what comes next from its users")
        return senders

    def note(self, report: Report) -> None:
        """Record a report that was taken in."""
        users, width = report.values.shape
        senders = slice(report.first_user, report.first_user + users)
        self._received[senders] += width
        self._budgets[senders] = report.budgets

    def part(self, values: NDArray[Any]) -> Part:
        """What was gathered, with who reported it."""
        return Part(values, self._received, self._budgets)

    def join(self, part: Part) -> Bools:
        """Record who reported elsewhere; return who they are."""
        new = part.received > 0
        if new.shape != self._received.shape or (self._received[new] > 0).any():
            raise ProtocolError("a part of a round holds users who have reported already")
        self._received[new], self._budgets[new] = part.received[new], part.budgets[new]
        return new

    def budgets(self, source: SimulationSource) -> F64:
        """The budgets in an order of their own, once everybody has reported everything."""
        if (self._received != self._dimensions).any():
            user = int(np.argmax(self._received != self._dimensions))
            raise ProtocolError(f"user {user} reported {self._received[user]} of {self._dimensions} coordinates")
        return source.generator(Purpose.SHUFFLE).permutation(self._budgets)


class LevelCounter:
    """Counts levels: says as much as the permuted reports, and no more."""

    def __init__(self, users: int, dimensions: int, levels: int, source: SimulationSource) -> None:
        self._attendance = _Attendance(users, dimensions)
        self._source = source
        self._counts = LevelCounts(dimensions, levels)

    def add(self, report: Report) -> None:
        """Count the levels of a block of users."""
        codes = _as_codes(report.values)
        self._attendance.check(report)
        self._counts.add(codes, report.first_coordinate)
        self._attendance.note(report)

    def part(self) -> Part:
        """Counts so far."""
        return self._attendance.part(self._counts.total())

    def join(self, part: Part) -> None:
        """Add another collector's counts."""
        self._attendance.join(part)
        self._counts.join(part.values)

    def release(self) -> CountedBatch:
        """Hand over the counts, and the budgets shuffled apart."""
        budgets = self._attendance.budgets(self._source)
        return CountedBatch(self._counts.total(), budgets)


class Permuter:
    """Holds a round's reports and releases every coordinate in an independent random order."""

    def __init__(
        self, users: int, dimensions: int, source: SimulationSource, dtype: type = np.float32, threads: int = 1
    ) -> None:
        self._attendance = _Attendance(users, dimensions)
        self._source = source
        self._threads = threads
        self._values: F32 | U8 = np.empty((dimensions, users), dtype=dtype)

    def add(self, report: Report) -> None:
        """Keep the reports of a block of users."""
        if report.values.dtype != self._values.dtype:
            raise ProtocolError(f"this round's reports are {self._values.dtype}, got {report.values.dtype}")
        senders = self._attendance.check(report)
        first = report.first_coordinate
        self._values[first : first + report.values.shape[1], senders] = report.values.T
        self._attendance.note(report)

    def part(self) -> Part:
        """Reports so far."""
        return self._attendance.part(self._values)

    def join(self, part: Part) -> None:
        """Keep another collector's reports."""
        new = self._attendance.join(part)
        self._values[:, new] = part.values[:, new]

    def release(self) -> PermutedBatch:
        """Permute every coordinate on its own, and the budgets apart from them."""
        budgets = self._attendance.budgets(self._source)
        stream, key = self._source.stream(Purpose.SHUFFLE), self._source.key
        rows = self._values.shape[0]
        edges = np.linspace(0, rows, self._threads + 1).astype(int)

        def permute(part: int) -> None:
            start, stop = int(edges[part]), int(edges[part + 1])
            permute_rows(self._values[start:stop], start, stream, key)

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(permute, range(self._threads)))
        return PermutedBatch(self._values, budgets)


class Adder:
    """Sums reports in fixed point, so that the sum does not depend on the order of the blocks."""

    def __init__(self, users: int, dimensions: int, source: SimulationSource) -> None:
        self._attendance = _Attendance(users, dimensions)
        self._source = source
        self._sums = np.zeros(dimensions, dtype=np.int64)
        # 2^62 / 2^32 / users: below it no sum can overflow.
        self._largest = 2.0**62 / _FIXED_POINT / users
        self._lock = threading.Lock()

    def add(self, report: Report) -> None:
        """Add the reports of a block of users."""
        self._attendance.check(report)
        sums = np.zeros(report.values.shape[1], dtype=np.int64)
        if not _add_fixed(report.values.astype(np.float32, copy=False), self._largest, sums):
            raise ParameterError(f"updates must be finite and within +-{self._largest:.3g} to be added up")
        first = report.first_coordinate
        with self._lock:
            self._sums[first : first + sums.size] += sums
        self._attendance.note(report)

    def part(self) -> Part:
        """Sums so far."""
        return self._attendance.part(self._sums)

    def join(self, part: Part) -> None:
        """Add another collector's sums."""
        self._attendance.join(part)
        self._sums += part.values

    def release(self) -> SummedBatch:
        """Hand over the mean of the reports."""
        budgets = self._attendance.budgets(self._source)
        return SummedBatch(self._sums / _FIXED_POINT / budgets.size, budgets)


def _as_codes(values: U8 | F32) -> U8:
    if values.dtype != np.uint8:
        raise ProtocolError(f"coded reports are bytes, got {values.dtype}")
    return values.astype(np.uint8, copy=False)


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
