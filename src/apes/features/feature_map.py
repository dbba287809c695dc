"""Feature maps: fixed and public, the same for everybody, so that training on features costs no privacy."""

from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apes.checks import finite
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64
from apes.population import Examples, Population, UserBlock, part_of

MOST_BYTES = 2 << 30
"""Most bytes of features that are kept in memory per process."""
_FEWEST_USERS = 64


class FeatureMap(Protocol):
    """A map from a block of raw rows to rows of features.

    Contract:
        A row's features depend on that row alone, and not on anybody's data otherwise: a map that was fitted to the
        users' data is not public. It gives the same features whenever and on whichever thread it is asked.
    """

    @property
    def digest(self) -> str:
        """Text that tells this map from any other: part of the terms."""

    def __call__(self, rows: F32) -> F32:
        """Features of some rows, one float32 row per row."""


def mapped(people: Population, test: Examples | None, features: FeatureMap) -> tuple[Population, Examples | None]:
    """The same people and examples, seen through a feature map."""
    if not isinstance(features.digest, str) or not features.digest:
        raise ParameterError(f"{type(features).__name__}.digest must be a text that tells the map from others")
    return _MappedPopulation(people, features), None if test is None else seen_through(features, test)


def seen_through(features: FeatureMap | None, examples: Examples) -> Examples:
    """The same examples, seen through a feature map, if there is one."""
    return examples if features is None else Examples(_checked(features, examples.features), examples.labels)


class _MappedPopulation:
    """Users whose rows are features.

    Features are computed for segments of consecutive users, which do not depend on who takes part in a round, and kept
    while there is room. A block within one segment is not copied.
    """

    def __init__(self, people: Population, features: FeatureMap, users: range | None = None) -> None:
        self._people, self._features = people, features
        self._users = range(people.budgets.size) if users is None else users
        self._kept = _Segments()

    @property
    def budgets(self) -> F64:
        return self._people.budgets

    @property
    def targets(self) -> F64 | None:
        return getattr(self._people, "targets", None)

    @property
    def digest(self) -> str:
        return self._people.digest

    def block(self, start: int, stop: int) -> UserBlock:
        block = self._people.block(start, stop)
        size = self._kept.size_for(stop - start)
        found = []
        at = start
        while at < stop:
            first = at - (at - self._users.start) % size
            last = min(first + size, self._users.stop)
            until = min(stop, last)
            if self._kept.find(first) is None and self._kept.is_full:
                # A whole segment would be computed for a few of its users, again and again.
                rows = slice(block.offsets[at - start], block.offsets[until - start])
                found.append(_checked(self._features, block.features[rows]))
            else:
                found.append(self._segment(first, last).rows_of(at, until))
            at = until
        return replace(block, features=found[0] if len(found) == 1 else np.concatenate(found))

    def _segment(self, first: int, last: int) -> "_Segment":
        kept = self._kept.find(first)
        if kept is None:
            block = self._people.block(first, last)
            kept = _Segment(first, np.asarray(block.offsets), _checked(self._features, block.features))
            self._kept.keep(kept)
        return kept

    def part(self, start: int, stop: int) -> "_MappedPopulation":
        people = part_of(self._people, start, stop)
        return self if people is self._people else _MappedPopulation(people, self._features, range(start, stop))

    def __getstate__(self) -> dict[str, Any]:
        # Whoever gets it computes what it needs.
        return vars(self) | {"_kept": _Segments()}


@dataclass(frozen=True, eq=False)
class _Segment:
    """Features of consecutive users."""

    first_user: int
    offsets: I64
    features: F32

    def rows_of(self, start: int, stop: int) -> F32:
        """Features of users start .. stop - 1, which are all in it."""
        rows = slice(self.offsets[start - self.first_user], self.offsets[stop - self.first_user])
        return self.features[rows]


class _Segments:
    """Segments that are kept, up to `MOST_BYTES`; what comes later is computed again when it is asked for.

    Nothing is dropped for something newer: rounds go through everybody in order, and would drop all of it each time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._segments: dict[int, _Segment] = {}
        self._bytes = 0
        self._size = 0
        self.is_full = False

    def __reduce__(self) -> tuple[type["_Segments"], tuple[()]]:
        return _Segments, ()

    def size_for(self, users: int) -> int:
        """Users in a segment: as many as in the first block that was asked for, so that whole blocks are not cut."""
        with self._lock:
            if self._size == 0:
                self._size = max(users, _FEWEST_USERS)
            return self._size

    def find(self, first_user: int) -> _Segment | None:
        """The segment that begins with this user, if it is kept."""
        return self._segments.get(first_user)

    def keep(self, segment: _Segment) -> None:
        """Keep a segment if there is room."""
        with self._lock:
            size = segment.features.nbytes
            if segment.first_user in self._segments:
                return
            self.is_full = self._bytes + size > MOST_BYTES
            if not self.is_full:
                self._segments[segment.first_user] = segment
                self._bytes += size


def _checked(features: FeatureMap, rows: NDArray[Any]) -> F32:
    # Read-only: a map that works in place would change the users' own rows.
    given = rows.view()
    given.flags.writeable = False
    out, name = features(given), type(features).__name__
    if not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.ndim < 2 or len(out) != len(rows):
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ParameterError(f"{name} must return {len(rows)} float32 rows, got {got}")
    finite(name, out)
    return np.ascontiguousarray(out)
