"""From one coordinate of one round to a user, and to many rounds.

Each coordinate is shuffled with its own permutation and perturbed independently, so the d coordinates of a round are a
product, and rounds compose adaptively. The curve of one coordinate becomes a pessimistic privacy-loss distribution by
connecting its dots (Doroshenko et al. 2022, arXiv:2207.04380), composed by `dp_accounting`.
"""

import math

import numpy as np
from dp_accounting.pld import pld_pmf
from numpy.typing import NDArray

from apes.accounting.certificate import HidingCurve
from apes.errors import RegimeError
from apes.parameters import whole

Array = NDArray[np.float64]
_POINTS = 121
# Mass that the tails of the composed law may lose; it is counted as a breach.
_TRUNCATED = 1e-4
# The composed law is found by a transform whose rounding is not bounded: below this delta its figures are not certain.
SMALLEST_DELTA = 1e-11


class Composer:
    """Certified epsilon of many independent uses of one curve, for any number of uses up to a largest one.

    Args:
        curve: Divergence of one coordinate of one round.
        delta: In [1e-11, 1); below, the rounding of the composition is not under control.
        largest: Most uses that will be asked for, at least 1.

    Raises:
        RegimeError: If delta is too small for the composition to be certain.
    """

    def __init__(self, curve: HidingCurve, delta: float, largest: int) -> None:
        if delta < SMALLEST_DELTA:
            raise RegimeError(f"composition is certain for delta of at least {SMALLEST_DELTA:g}, got {delta:g}")
        self._curve, self._delta, self._largest = curve, delta, whole("largest", largest, 1)
        self._pmf = _loss_distribution(curve, delta, largest)

    def epsilon(self, count: int) -> float:
        """Epsilon of ``count`` uses, in [1, largest]; never more than the local budgets add up to."""
        count = whole("count", count, 1, self._largest)
        composed = self._pmf.self_compose(count, tail_mass_truncation=self._delta * _TRUNCATED)
        epsilon = float(composed.get_epsilon_for_delta(self._delta * (1 - 2 * _TRUNCATED)))
        while composed.get_delta_for_epsilon(epsilon) > self._delta:
            epsilon = math.nextafter(epsilon, math.inf) * (1 + 1e-9)
        return min(epsilon, count * self._curve.budget)


def composed_epsilon(curve: HidingCurve, delta: float, count: int) -> float:
    """Certified epsilon of ``count`` independent uses of a curve at ``delta``."""
    return curve.epsilon(delta) if count == 1 else Composer(curve, delta, count).epsilon(count)


def _loss_distribution(curve: HidingCurve, delta: float, count: int) -> pld_pmf.PLDPmf:
    """Pessimistic privacy-loss distribution of one use."""
    # Beyond the last point all mass counts as a breach: it must be far below delta in total.
    last = max(curve.epsilon(delta / count / 1e4, cells=32), 1e-6 * curve.budget)
    half = (_POINTS - 1) // 2
    step = last / half
    points = np.arange(-half, half + 1)
    positive = np.array([curve.delta(step * k) for k in range(half + 1)])
    grid = step * points
    deltas = np.concatenate([(-np.expm1(grid) + np.exp(grid) * positive[np.abs(points)])[:half], positive])
    deltas = _convex_minorant(np.exp(grid), np.minimum.accumulate(np.minimum(deltas, 1.0)))
    return pld_pmf.create_pmf_pessimistic_connect_dots(step, points, deltas)


def _convex_minorant(x: Array, y: Array) -> Array:
    """Greatest convex function below the points, among them (0, 1): a divergence is convex in exp(t)."""
    xs, ys = np.concatenate([[0.0], x]), np.concatenate([[1.0], y])
    hull: list[int] = []
    for i in range(xs.size):
        while len(hull) >= 2:
            a, b = hull[-2], hull[-1]
            if (ys[b] - ys[a]) * (xs[i] - xs[a]) < (ys[i] - ys[a]) * (xs[b] - xs[a]):
                break
            hull.pop()
        hull.append(i)
    return np.asarray(np.interp(x, xs[hull], ys[hull]))
