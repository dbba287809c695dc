"""Parts of a round: what some of its users reported, gathered by one worker, on the way to the others.

A part holds as few bytes as will do: whose reports it is made of goes as spans of numbers, and counts are as narrow as
the number of users allows. Two parts make one, in any order, anywhere.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apes.errors import ProtocolError
from apes.mathematics.arrays import Bools

Spans = tuple[range, ...]


class Part(Protocol):
    """What the users of some spans reported, each of them everything. Can be pickled."""

    @property
    def values(self) -> NDArray[Any]:
        """Counts, sums or reports, as the collector keeps them."""

    @property
    def spans(self) -> Spans:
        """Numbers of the users, in order."""

    def plus(self, other: Any) -> Any:
        """Both parts as one."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts per level of so many users: whole numbers, as narrow as they may be."""

    values: NDArray[Any]
    spans: Spans

    @classmethod
    def narrow(cls, values: NDArray[Any], spans: Spans) -> "Counts":
        """The same counts in as few bytes as hold the number of users, which none exceeds."""
        return cls(values.astype(np.min_scalar_type(users_in(spans))), spans)

    def plus(self, other: "Counts") -> "Counts":
        """Counts of both."""
        spans = joined(self.spans, other.spans)
        total = np.add(self.values, other.values, dtype=np.min_scalar_type(users_in(spans)))
        return Counts(total, spans)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums in fixed point, which add up to the same in any order."""

    values: NDArray[Any]
    spans: Spans

    def plus(self, other: "Sums") -> "Sums":
        """Sums of both."""
        return Sums(self.values + other.values, joined(self.spans, other.spans))


@dataclass(frozen=True, eq=False)
class Reports:
    """Reports themselves, (coordinates, users): they stand side by side, in the order of the spans."""

    values: NDArray[Any]
    spans: Spans

    def plus(self, other: "Reports") -> "Reports":
        """Reports of both."""
        together = [*self._by_span(), *other._by_span()]
        together.sort(key=lambda each: each[0].start)
        spans = joined(self.spans, other.spans)
        return Reports(np.concatenate([values for _, values in together], axis=1), spans)

    def _by_span(self) -> list[tuple[range, NDArray[Any]]]:
        ends = np.cumsum([len(span) for span in self.spans]).tolist()
        return [(span, self.values[:, end - len(span) : end]) for span, end in zip(self.spans, ends, strict=True)]


def users_in(spans: Spans) -> int:
    """How many users they are."""
    return sum(len(span) for span in spans)


def spans_of(users: Bools, first: int) -> Spans:
    """Spans of those who are marked; the first place is user number ``first``."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], users, [False]]).astype(np.int8))).tolist()
    return tuple(range(first + start, first + stop) for start, stop in zip(edges[::2], edges[1::2], strict=True))


def joined(one: Spans, other: Spans) -> Spans:
    """Spans of both, in order, neighbours as one."""
    out: list[range] = []
    for span in sorted((*one, *other), key=lambda each: each.start):
        if out and span.start < out[-1].stop:
            raise ProtocolError("a part of a round holds users who have reported already")
        if out and span.start == out[-1].stop:
            out[-1] = range(out[-1].start, span.stop)
        else:
            out.append(span)
    return tuple(out)
