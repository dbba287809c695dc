"""Tables of blocks of users, kept: the same blocks come again every round."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from apes.mathematics.arrays import U64


class KeptTables:
    """Tables by what they are made of, ``megabytes`` of them at most: the longest unused go first.

    A larger population builds its tables anew every round, which costs a sixth of the time.
    """

    def __init__(self, megabytes: int = 64) -> None:
        self._limit, self._bytes = megabytes << 20, 0
        self._tables: OrderedDict[tuple[bytes, int], U64] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[bytes, int], make: Callable[[], U64]) -> U64:
        """The table of a key, made if it is not there; read-only."""
        with self._lock:
            if (kept := self._tables.get(key)) is not None:
                self._tables.move_to_end(key)
                return kept
        table = make()
        table.setflags(write=False)
        with self._lock:
            if key not in self._tables:
                self._tables[key] = table
                self._bytes += _size(key, table)
            while self._bytes > self._limit:
                self._bytes -= _size(*self._tables.popitem(last=False))
        return table


def _size(key: tuple[bytes, int], table: U64) -> int:
    return len(key[0]) + table.nbytes
