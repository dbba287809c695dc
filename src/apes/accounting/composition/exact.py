"""From one coordinate of one round to a user, and to many rounds.

Each coordinate is shuffled with its own permutation and perturbed independently, so the d coordinates of a round are a
product, and rounds compose adaptively. Curves become pessimistic privacy-loss distributions on one lattice (`losses`);
delta of all of them together is E[(1 - exp(epsilon - S))_+], S the sum of the losses, plus what counts as a breach. The
sum is tilted to where that matters (`lattice`), so that a tiny delta is as accurate as a large one; its law comes
from a fast Fourier transform whose error is bounded and added.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from apes.accounting.certificate.curve import LARGEST_BUDGET, PrivacyCurve
from apes.accounting.composition.lattice import UNIT, Lattice, law_of_sum, tail_bound, tilt
from apes.accounting.composition.losses import CurvePoints, curve_points, losses
from apes.checks import whole
from apes.errors import RegimeError
from apes.mathematics.search import bisect, lowest

Use = tuple[PrivacyCurve, int]
"""A curve and how many times it is used."""

SMALLEST_DELTA = 1e-100
"""Below it, what is left over by a single use among many would leave the range of floating point."""

# Share of delta that all uses together may leave beyond the last points of their curves.
_BREACH = 1e-4
_WINDOW = 9.0
# Points closer to one another than this would differ by rounding only.
_FINEST = 1e-9
_LONGEST = 1 << 20
_STEPS = 200
# theta times the largest sum of losses stays below this, so that exponents are accurate.
_STEEPEST = 1e5
_ROUNDING = 1 + 1e-9


def composed_epsilon(uses: Sequence[Use], delta: float, expected: int | None = None) -> float:
    """Certified epsilon of all uses together at ``delta``; never more than the local budgets add up to.

    Of more than one, delta is in [1e-100, 1). Curves are evaluated as far as about so many uses as expected need (by
    default those that there are); any number is answered soundly.
    """
    counts: Counter[PrivacyCurve] = Counter()
    for curve, count in uses:
        counts[curve] += whole("count", count, 1)
    if counts.total() == 1:
        return uses[0][0].epsilon(delta)
    if not SMALLEST_DELTA <= delta < 1:
        raise RegimeError(f"delta must be in [{SMALLEST_DELTA:g}, 1) where uses are composed, got {delta!r}")
    if math.fsum(curve.delta(0.0) * count for curve, count in counts.items()) * _ROUNDING <= delta:
        return 0.0
    local = math.fsum(curve.budget * count for curve, count in counts.items()) * (1 + 4 * UNIT)
    if any(curve.budget > LARGEST_BUDGET for curve in counts):
        return local
    breach = delta * _BREACH / (counts.total() if expected is None else expected)
    points = [(_points(curve, breach), count) for curve, count in counts.items()]
    if any(part.step < _FINEST for part, _ in points):
        return local
    return min(local, _epsilon_of_sum(points, delta))


# A run asks again after every round.
@lru_cache(maxsize=64)
def _points(curve: PrivacyCurve, breach: float) -> CurvePoints:
    return curve_points([curve], breach)[0]


def _epsilon_of_sum(uses: list[tuple[CurvePoints, int]], delta: float) -> float:
    """Smallest epsilon found for the sum of all losses, on the safe side of a bisection."""
    # The finest lattice that a curve asks for, as long as the window of the sum stays short.
    alone = [(losses(curve, curve.step)[0], count) for curve, count in uses]
    deviation = math.sqrt(sum(count * float(lattice.masses @ lattice.points**2) for lattice, count in alone))
    step = max(min(curve.step for curve, _ in uses), 2 * _WINDOW * deviation / _LONGEST)
    parts: list[tuple[Lattice, int]] = []
    breaches = growth = 0.0
    for curve, count in uses:
        lattice, breach = losses(curve, step)
        parts.append((lattice, count))
        breaches += count * breach
        growth += count * math.log1p(max(float(lattice.masses.sum()) + breach - 1, 0.0))
    # A breach in one use counts in full, whatever the others: their masses add up to a little more than 1.
    available = delta - (breaches * math.exp(growth) * _ROUNDING if growth < 1 else math.inf)
    if available <= 0:
        return math.inf
    theta, high = _steepness(parts, available)
    law = _TiltedLaw(parts, theta)

    def is_safe(epsilon: float) -> bool:
        return law.delta(epsilon) <= available

    # Below its window the law would count too little.
    low = max(0.0, law.start)
    if is_safe(low):
        return low
    high = max(high, low)
    while not is_safe(high):
        high = 2 * high + step
        if not math.isfinite(high):
            return math.inf
    return bisect(is_safe, low, high, steps=_STEPS, tolerance=1e-7)


def _steepness(parts: list[tuple[Lattice, int]], delta: float) -> tuple[float, float]:
    """Theta that gives the smallest epsilon by (1 - exp(epsilon - S))_+ <= c exp(theta (S - epsilon)), and it."""
    reach = sum(count * float(lattice.points[-1]) for lattice, count in parts)

    def epsilon(log_theta: float) -> float:
        theta = math.exp(log_theta)
        moment = sum(count * tilt(lattice, theta).log_moment for lattice, count in parts)
        return (moment + _log_peak(theta) - math.log(delta)) / theta

    found = lowest(epsilon, math.log(1e-3 / reach), math.log(_STEEPEST / reach))
    return math.exp(found), max(epsilon(found), 0.0)


class _TiltedLaw:
    """Law of the sum of losses under a tilt, on a window around its mean, with a bound of its error."""

    def __init__(self, parts: list[tuple[Lattice, int]], theta: float) -> None:
        tilts = [(tilt(lattice, theta), count) for lattice, count in parts]
        self._theta, step = theta, parts[0][0].step
        self._log_moment = sum(count * (tilted.log_moment + tilted.error) for tilted, count in tilts)
        mean = sum(count * tilted.mean for tilted, count in tilts)
        centred = [(tilted.lattice.points - tilted.mean, tilted.weights, count) for tilted, count in tilts]
        deviation = math.sqrt(sum(count * float(weights @ points**2) for points, weights, count in centred))
        longest = max(lattice.masses.size for lattice, _ in parts)
        n = 1 << math.ceil(math.log2(max(2 * _WINDOW * deviation / step, 2.0 * longest) + 8))
        start = round(mean / step) - n // 2
        self._points = step * (start + np.arange(n))
        # The smallest epsilon that may be asked for: what is less likely than the window holds wraps around it.
        self.start = float(self._points[0])
        law, self._off = law_of_sum(tilts, n)
        self._law = np.maximum(np.roll(law, -start), 0)
        window = float(self._points[-1]) - mean
        self._tail = tail_bound(centred, window)

    def delta(self, epsilon: float) -> float:
        """Upper bound of E[(1 - exp(epsilon - S))_+], epsilon not below `start`."""
        # A hair less, so that rounding of the points cannot matter.
        nearly = epsilon - 1e-12 * (1 + abs(epsilon))
        above = np.searchsorted(self._points, nearly)
        distance = self._points[above:] - nearly
        value = np.exp(-self._theta * distance) * -np.expm1(-distance)
        inside = float((self._law[above:] * value).sum()) + self._off * float(value.sum()) + self._tail
        exponent = self._log_moment - self._theta * nearly
        if exponent > 300 or inside == 0:
            # Far from where the tilt is good: values may have been too small for floating point.
            inside = math.exp(_log_peak(self._theta))
        return math.exp(min(math.log(inside) + exponent, _log_peak(self._theta) + exponent, 0.0)) * _ROUNDING


def _log_peak(theta: float) -> float:
    """Log of the largest value of exp(-theta x) (1 - exp(-x))."""
    return theta * math.log(theta) - (1 + theta) * math.log1p(theta)
