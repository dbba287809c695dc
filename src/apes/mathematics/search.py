"""Where a condition begins to hold, or a cost meets a target: closed in on from both sides, answered on the safe one.

`bisect` halves, for conditions that are cheap; `first_below` and `Search` guess from the values, for curves and costs
that are not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

Condition = Callable[[float], bool]
Progress = Callable[[int, int], None]
# How closely `first_below` finds a crossing, relative to it, and how far, as a factor, a guess of it may be off.
_PRECISION, _NEAR = 1e-12, 1.001
_MOST_STEPS = 200
# So many steps leave 0.618^24 of the way: a hundred-thousandth.
_GOLDEN, _GOLDEN_STEPS = (math.sqrt(5) - 1) / 2, 24
# A guess keeps this share of the bracket away from its ends, so that every guess makes it smaller.
_MARGIN = 0.02
_LONGEST_STEP = 8
# Where the cost is 0 (delta covers all there is), it is taken as this share of the target on logarithmic scales.
_NOTHING = 1e-6


def bisect(
    is_safe: Condition, unsafe: float, safe: float, *, steps: int, tolerance: float = 0.0, from_zero: float = 0.5
) -> float:
    """Halve the way between two places and return the safe end: ``safe`` itself, or a place where the condition held.

    The condition must fail for NaN. Stops after so many steps, or where the distance is within the tolerance, relative
    to the safe place. As long as the unsafe place is 0, the next one is ``from_zero`` times the safe one.
    """
    for _ in range(steps):
        if abs(safe - unsafe) <= tolerance * abs(safe):
            break
        middle = (unsafe + safe) / 2 if unsafe != 0 else from_zero * safe
        unsafe, safe = (unsafe, middle) if is_safe(middle) else (middle, safe)
    return safe


def first_below(curve: Callable[[float], float], level: float, last: float, guess: float | None = None) -> float:
    """Return where a falling curve gets down to a level, in [0, last], up to some 1e-12 of it; ``last`` if nowhere.

    A guess that is right to a thousandth saves most of the evaluations; a wrong one only costs two.

    Guarantee:
        The curve was evaluated at the answer and found at most ``level``, unless it is ``last``; so the answer is on
        the safe side even if the curve does not fall.
    """
    low, high = 0.0, last
    if guess is not None and 0 < guess * _NEAR < last and curve(guess / _NEAR) > level > curve(guess * _NEAR):
        low, high = guess / _NEAR, guess * _NEAR
    elif curve(0.0) <= level:
        return 0.0
    elif not curve(last) < level:
        return last
    # A curve that falls by orders of magnitude is nearly straight in the logarithm.
    floor = level * 1e-6
    crossing = _root(lambda t: math.log(max(curve(t), floor) / level), low, high)
    step = _PRECISION * crossing
    while crossing + step < last:
        if curve(crossing + step) <= level:
            return crossing + step
        step *= 2
    return last


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls from low to high is 0, nearly: along chords, or halves where they do not help."""
    before, after = function(low), function(high)
    for step in range(_MOST_STEPS):
        if high - low <= _PRECISION * high:
            break
        chord = low + (high - low) * (before / (before - after)) if math.isfinite(before) else math.nan
        # Every third step halves, so that both ends move.
        place = chord if low < chord < high and step % 3 < 2 else (low + high) / 2
        value = function(place)
        if abs(value) <= _PRECISION:
            return place
        if value > 0:
            low, before = place, value
        else:
            high, after = place, value
    return high


def lowest(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls first and rises then is lowest, nearly (golden section)."""
    left, right = (low + share * (high - low) for share in (1 - _GOLDEN, _GOLDEN))
    at_left, at_right = function(left), function(right)
    for _ in range(_GOLDEN_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return left if at_left < at_right else right


@dataclass(frozen=True)
class Point:
    """A place and the cost there."""

    place: float
    cost: float


@dataclass(frozen=True, eq=False)
class Search:
    """How to look for the place in (0, inf) where a cost, monotone or nearly, crosses a target."""

    cost: Callable[[float], float]
    target: float  # the largest cost that is allowed, in (0, inf)
    precision: float | None  # relative width at which to stop; None for whole numbers, which are told apart exactly
    progress: Progress  # called with (percent done, 100)

    def at(self, place: float) -> Point:
        """Evaluate the cost."""
        return Point(place, self.cost(place))

    def is_safe(self, point: Point) -> bool:
        """Whether a point keeps to the target; NaN does not."""
        return point.cost <= self.target

    def bracket(self, start: Point, limit: int) -> tuple[Point, Point | None]:
        """Go from a whole number towards another until the cost has crossed the target.

        Epsilon changes at least like the square root of rounds or users, so a little beyond where that would cross is
        far enough, or nearly; no step is longer than a factor of 8. Returns the last point on the start's side, and
        the first one on the other; None if there is none up to the limit.
        """
        before = start
        while before.place != limit:
            point = self.at(self._next(before, limit))
            self._tell(50 * (1 - self._distance(point.cost) / max(self._distance(start.cost), 1e-9)))
            if self.is_safe(point) != self.is_safe(start):
                return before, point
            before = point
        return before, None

    def _next(self, point: Point, limit: int) -> int:
        factor = math.exp(min(2.1 * self._distance(point.cost), math.log(_LONGEST_STEP)))
        if limit > point.place:
            return min(max(math.ceil(point.place * factor), int(point.place) + 1), limit)
        return max(min(math.floor(point.place / factor), int(point.place) - 1), limit)

    def close_in(self, safe: Point, unsafe: Point) -> Point:
        """Shrink a bracket to the precision asked for; return its safe side.

        On logarithmic scales the cost is nearly a straight line, so each guess is where that would cross, moved a
        little to the side that is farther away; after two guesses that did not halve the bracket, its middle.

        Guarantee:
            The target is kept at the place returned, and exceeded at another one: the next whole number, or one
            within the precision.
        """
        first, slow = self._width(safe, unsafe), 0
        while (width := self._width(safe, unsafe)) > 1:
            point = self.at(self._guess(safe, unsafe, is_slow=slow >= 2))
            safe, unsafe = (point, unsafe) if self.is_safe(point) else (safe, point)
            slow = slow + 1 if self._width(safe, unsafe) > width / 2 else 0
            self._tell(50 + 50 * (1 - math.log(max(self._width(safe, unsafe), 1)) / math.log(first)))
        self._tell(100)
        return safe

    def _width(self, safe: Point, unsafe: Point) -> float:
        """Width of a bracket in units of the precision; at most 1 if there is nothing left to find."""
        if self.precision is None:
            return abs(unsafe.place - safe.place)
        return abs(math.log(unsafe.place / safe.place)) / self.precision

    def _guess(self, safe: Point, unsafe: Point, *, is_slow: bool) -> float:
        span = math.log(unsafe.place / safe.place)
        floor = math.log(max(safe.cost, _NOTHING * self.target))
        share = (math.log(self.target) - floor) / (math.log(unsafe.cost) - floor)
        # Just past the crossing, to move the far end; then just before it.
        nudge = 0.3 / self._width(safe, unsafe)
        share = 0.5 if is_slow else min(max(share + (nudge if share < 0.5 else -nudge), _MARGIN), 1 - _MARGIN)
        place = safe.place * math.exp(span * share)
        if self.precision is not None:
            return place
        low, high = sorted((safe.place, unsafe.place))
        return min(max(round(place), low + 1), high - 1)

    def _distance(self, cost: float) -> float:
        """How far a cost is from the target, on a logarithmic scale."""
        return abs(math.log(max(cost, _NOTHING * self.target) / self.target))

    def _tell(self, percent: float) -> None:
        # NaN, from costs without end, counts as nothing done.
        self.progress(int(min(max(0.0, percent), 100.0)), 100)
