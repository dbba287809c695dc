"""The shuffler: takes reports of known senders, releases what no longer tells who sent what.

A collector gathers a round's reports, block after block and on several threads at once, and releases one batch: the
same whatever the order and the size of the blocks, and whoever gathered which of them.
"""

import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from apes.checks import whole
from apes.errors import ParameterError, ProtocolError
from apes.mathematics.arrays import F32, F64, I64, U8, U32, Bools
from apes.mathematics.chacha import GROUP_WORDS, fill_words
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Key, Purpose, SimulationSource, check_addresses
from apes.messages import Batch, CountedBatch, PermutedBatch, Report, SummedBatch
from apes.shuffler.counts import LevelCounts
from apes.shuffler.parts import Counts, Part, Reports, Spans, Sums, spans_of, users_in

_FIXED_POINT = 2.0**32
_WORD, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_GROUP_NUMBERS = GROUP_WORDS // 2
_GROUPS_AT_ONCE = 16


class Collector(ABC):
    """Gathers the reports of one round and releases one batch: every user reports every coordinate once, in order.

    Args:
        users: How many take part in the round.
        dimensions: Coordinates of a report.
        source: The round's randomness.
        span: Numbers of those whose reports are gathered here, for another collector; by default everybody's.
    """

    def __init__(self, users: int, dimensions: int, source: SimulationSource, span: range | None = None) -> None:
        self._span = range(whole("users", users, 1)) if span is None else span
        if not 0 <= self._span.start < self._span.stop <= users:
            raise ParameterError(f"span must be in order within [0, {users}], got {self._span}")
        check_addresses("users", 0, users)
        check_addresses("dimensions", 0, dimensions)
        self._received = np.zeros(len(self._span), dtype=np.int64)
        self._budgets = np.full(len(self._span), np.nan)
        self._dimensions, self._source = dimensions, source

    def add(self, report: Report) -> None:
        """Take the reports of a block of users."""
        senders, coordinates = self._places(report)
        self._take(report.values, senders, coordinates)
        self._received[senders] += report.values.shape[1]
        self._budgets[senders] = report.budgets

    def part(self) -> Part:
        """What was gathered so far, for another collector of the same round; of users who reported everything."""
        done = self._received == self._dimensions
        self._check_complete(done | (self._received == 0))
        return self._gathered(done, spans_of(done, self._span.start))

    def join(self, part: Part, budgets: F64) -> None:
        """Take what another collector gathered from other users; ``budgets`` are those of all users of the round."""
        for span in part.spans:
            senders = slice(span.start - self._span.start, span.stop - self._span.start)
            if senders.start < 0 or senders.stop > self._received.size or self._received[senders].any():
                raise ProtocolError("a part of a round holds users who have reported already")
            self._received[senders], self._budgets[senders] = self._dimensions, budgets[span.start : span.stop]
        self._join(part)

    def release(self) -> Batch:
        """Hand over the batch, and the budgets in an order of their own, once everybody has reported everything."""
        self._check_complete(self._received == self._dimensions)
        budgets = self._budgets.copy()
        permute_rows(budgets.reshape(1, -1), 0, self._source.stream(Purpose.BUDGET_ORDER), self._source.key)
        return self._batch(budgets)

    def _check_complete(self, complete: Bools) -> None:
        if not complete.all():
            user = int(np.argmin(complete))
            reported = f"{self._received[user]} of {self._dimensions} coordinates"
            raise ProtocolError(f"user {user + self._span.start} reported {reported}")

    def _places(self, report: Report) -> tuple[slice, slice]:
        """Places of senders and coordinates of a report; refuses one that does not come next from its senders."""
        if report.values.ndim != 2 or report.values.size == 0:
            raise ProtocolError(f"a report is users x coordinates, got shape {report.values.shape}")
        users, width = report.values.shape
        first, last = report.first_user, report.first_user + users
        coordinates = slice(report.first_coordinate, report.first_coordinate + width)
        if first < self._span.start or last > self._span.stop:
            raise ProtocolError(f"report from users {first}..{last - 1} of {self._received.size}")
        if report.budgets.shape != (users,) or not ((report.budgets > 0) & np.isfinite(report.budgets)).all():
            raise ProtocolError(f"report of {users} users whose budgets are not {users} numbers in (0, inf)")
        senders = slice(first - self._span.start, last - self._span.start)
        if coordinates.stop > self._dimensions or (self._received[senders] != report.first_coordinate).any():
            part = f"{coordinates.start}..{coordinates.stop - 1} of {self._dimensions}"
            raise ProtocolError(f"report on coordinates {part} is not what comes next from its users")
        return senders, coordinates

    @abstractmethod
    def _take(self, values: U8 | F32, senders: slice, coordinates: slice) -> None:
        """Take in a block, wholly or not at all."""

    @abstractmethod
    def _gathered(self, done: Bools, spans: Spans) -> Part: ...

    @abstractmethod
    def _join(self, part: Part) -> None: ...

    @abstractmethod
    def _batch(self, budgets: F64) -> Batch: ...


class LevelCounter(Collector):
    """Counts levels: says as much as the permuted reports, and no more, in memory that does not grow with the users."""

    # parameters: those of every collector, and how many levels there are.
    def __init__(
        self, users: int, dimensions: int, levels: int, source: SimulationSource, span: range | None = None
    ) -> None:
        super().__init__(users, dimensions, source, span)
        self._counts = LevelCounts(dimensions, levels)

    def _take(self, values: U8 | F32, senders: slice, coordinates: slice) -> None:
        if values.dtype != np.uint8:
            raise ProtocolError(f"coded reports are bytes, got {values.dtype}")
        self._counts.add(values.astype(np.uint8, copy=False), coordinates.start)

    def _gathered(self, done: Bools, spans: Spans) -> Counts:
        return Counts.narrow(self._counts.total(), spans)

    def _join(self, part: Part) -> None:
        if (part.values.sum(axis=1, dtype=np.int64) != users_in(part.spans)).any():
            raise ProtocolError(f"counts of a part do not add up to the {users_in(part.spans)} users who reported it")
        self._counts.join(part.values.astype(np.int64))

    def _batch(self, budgets: F64) -> CountedBatch:
        return CountedBatch(self._counts.total(), budgets)


class Permuter(Collector):
    """Holds a round's reports and releases every coordinate in an independent random order."""

    # parameters: those of every collector, what it holds, and how it is permuted.
    def __init__(
        self,
        users: int,
        dimensions: int,
        source: SimulationSource,
        dtype: type = np.float32,
        threads: int = 1,
        span: range | None = None,
    ) -> None:
        super().__init__(users, dimensions, source, span)
        self._threads = threads
        self._values: F32 | U8 = np.empty((dimensions, len(self._span)), dtype=dtype)

    def _take(self, values: U8 | F32, senders: slice, coordinates: slice) -> None:
        if values.dtype != self._values.dtype:
            raise ProtocolError(f"this round's reports are {self._values.dtype}, got {values.dtype}")
        self._values[coordinates, senders] = values.T

    def _gathered(self, done: Bools, spans: Spans) -> Reports:
        return Reports(self._values if done.all() else self._values[:, done], spans)

    def _join(self, part: Part) -> None:
        end = 0
        for span in part.spans:
            begin, end = end, end + len(span)
            self._values[:, span.start - self._span.start : span.stop - self._span.start] = part.values[:, begin:end]

    def _batch(self, budgets: F64) -> PermutedBatch:
        stream, key = self._source.stream(Purpose.SHUFFLE), self._source.key
        edges = [self._dimensions * part // self._threads for part in range(self._threads + 1)]
        with ThreadPoolExecutor(self._threads) as pool:
            rows = pairwise(edges)
            list(pool.map(lambda ends: permute_rows(self._values[slice(*ends)], ends[0], stream, key), rows))
        return PermutedBatch(self._values, budgets)


class Adder(Collector):
    """For the frameworks without a shuffler: the sum, in fixed point, so that the order of blocks does not matter."""

    def __init__(self, users: int, dimensions: int, source: SimulationSource, span: range | None = None) -> None:
        super().__init__(users, dimensions, source, span)
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

    def _gathered(self, done: Bools, spans: Spans) -> Sums:
        return Sums(self._sums, spans)

    def _join(self, part: Part) -> None:
        self._sums += part.values

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
def permute_rows(values: F32 | F64 | U8, first: int, stream: np.uint64, key: Key) -> None:
    """Give every row of ``values`` an independent uniform permutation (Fisher-Yates), in place.

    Row r has the words of "user" ``first + r``, place i of it words 2 i and 2 i + 1 of stage 0. A row has fewer than
    2^32 places; unsigned indices spare a test for negative ones.
    """
    rows, n = values.shape
    partners = np.empty(n, dtype=np.uint32)
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

    A number of 64 bits times i + 1, of which the upper half is kept: each place has its probability to 2^-64, so all of
    them together are within (i + 1) / 2^64 of uniform in total variation, and the order of n within n (n + 1) / 2^65.
    """
    words = np.empty(_GROUPS_AT_ONCE * GROUP_WORDS, dtype=np.uint32)
    numbers = words.view(np.uint64)
    for start in range(0, partners.size, numbers.size):
        fill_words(np.uint64(start // _GROUP_NUMBERS), np.uint64(0), row, stream, key, words)
        for m in range(min(numbers.size, partners.size - start)):
            upper, lower = numbers[m] >> _WORD, numbers[m] & _LOW
            bound = np.uint64(start + m + 1)
            partners[start + m] = np.uint32((upper * bound + ((lower * bound) >> _WORD)) >> _WORD)
