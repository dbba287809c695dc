"""From a curve delta(epsilon) to the epsilon at a given delta, on the safe side."""

import math
from collections.abc import Callable

from scipy.optimize import brentq

# How closely the crossing is found, relative to it; the answer is then a step of that size on the safe side.
_PRECISION = 1e-12
# How far, as a factor, a guess may be off.
_NEAR = 1.001


def smallest_epsilon(
    delta_at: Callable[[float], float], delta: float, epsilon0: float, guess: float | None = None
) -> float:
    """Return an epsilon in [0, epsilon0] with delta_at(epsilon) <= delta, the smallest up to some 1e-12 of itself.

    A guess that is right to a thousandth saves most of the evaluations; a wrong one only costs two.

    The answer was evaluated and found below delta, except epsilon0, which needs no theorem: reports of epsilon0-LDP
    are (epsilon0, 0)-DP. So it is on the safe side even if the curve does not fall.
    """
    low, high = _around(delta_at, delta, epsilon0, guess)
    if low == high:
        return low
    # A curve that falls by orders of magnitude is nearly straight in the logarithm.
    floor = delta * 1e-6
    crossing = brentq(_logarithm(delta_at, floor, delta), low, high, xtol=1e-300, rtol=_PRECISION)
    step = _PRECISION * crossing
    while crossing + step < epsilon0:
        if delta_at(crossing + step) <= delta:
            return float(crossing + step)
        step *= 2
    return epsilon0


def _around(
    delta_at: Callable[[float], float], delta: float, epsilon0: float, guess: float | None
) -> tuple[float, float]:
    """Two places on either side of the crossing, or twice the answer."""
    if guess is not None and 0 < guess * _NEAR < epsilon0 and delta_at(guess / _NEAR) > delta > delta_at(guess * _NEAR):
        return guess / _NEAR, guess * _NEAR
    if delta_at(0.0) <= delta:
        return 0.0, 0.0
    if delta_at(epsilon0) >= delta:
        return epsilon0, epsilon0
    return 0.0, epsilon0


def _logarithm(delta_at: Callable[[float], float], floor: float, delta: float) -> Callable[[float], float]:
    """log(delta_at / delta), not below that of the floor."""

    def difference(t: float) -> float:
        return math.log(max(delta_at(t), floor) / delta)

    return difference
