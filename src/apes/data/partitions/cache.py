"""Encoded pieces that a process keeps, within so many bytes; what does not fit is read again when it is asked for."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count

from apes.data.partitions.piece_rows import PieceRows

# A block may lie across two.
_AT_HAND = 2


class PieceCache:
    """Keeps pieces for all threads of a process, and reads one at a time.

    Rounds ask for all pieces in the same order, again and again. To let go of what was used longest ago would then be
    to let go of what is needed next, and nothing would ever be found; so a piece takes another's place only if that one
    was not used since this piece was last read. What finds no place stays with the threads that use it: the last two
    pieces of each.
    """

    def __init__(self) -> None:
        self._kept: dict[str, PieceRows] = {}  # by last use
        self._used: dict[str, int] = {}
        self._last_read: dict[str, int] = {}
        self._alive: weakref.WeakValueDictionary[str, PieceRows] = weakref.WeakValueDictionary()
        self._lock, self._one_at_a_time = threading.RLock(), threading.Lock()
        self._own, self._clock = threading.local(), count(1)

    def get(self, key: str, limit: int, read: Callable[[], PieceRows]) -> PieceRows:
        """The piece of this name; read, if nobody has it. Of all pieces at most ``limit`` bytes are kept."""
        found = self._find(key)
        if found is None:
            with self._one_at_a_time:
                found = self._find(key)
                if found is None:
                    found = read()
                    self.keep(key, limit, found)
        self._take_in_hand(found)
        return found

    def keep(self, key: str, limit: int, piece: PieceRows) -> None:
        """Keep a piece that was read just now, if there is room for it, or can be made."""
        with self._lock:
            before, now = self._last_read.get(key, 0), next(self._clock)
            self._last_read[key], self._alive[key] = now, piece
            size = sum(other.size for other in self._kept.values())
            for oldest in list(self._kept):
                if size + piece.size <= limit or self._used[oldest] >= before:
                    break
                size -= self._kept.pop(oldest).size
            if size + piece.size <= limit:
                self._kept[key], self._used[key] = piece, now

    def _find(self, key: str) -> PieceRows | None:
        with self._lock:
            if key in self._kept:
                self._kept[key] = self._kept.pop(key)
                self._used[key] = next(self._clock)
            return self._alive.get(key)

    def _take_in_hand(self, piece: PieceRows) -> None:
        hand: deque[PieceRows] | None = getattr(self._own, "hand", None)
        if hand is None:
            hand = self._own.hand = deque(maxlen=_AT_HAND)
        if not any(piece is own for own in hand):
            hand.append(piece)


PIECES = PieceCache()
"""Of this process; pieces are known by content and encoding, so that all populations may share it."""
