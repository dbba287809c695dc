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
# The composed law comes from a transform of at most 2^22 entries, each off by 8 log2 of that in units of 2^-53, raised
# to the power of the count. In L2, and so in L1 over a window of 20 standard deviations, the law is off by at most
# 8 times count times that: this much delta is set aside. It is an argument about how such transforms round, not a proof
# about dp_accounting's; errors seen against exact compositions stay hundreds of times below it.
_ROUNDING_A_USE = 8 * 8 * 22 * 2.0**-53
SMALLEST_DELTA = 1e-9


class Composer:
    """Certified epsilon of many independent uses of one curve, for any number of uses up to a largest one.

    Args:
        curve: Divergence of one coordinate of one round.
        delta: At least 1e-9 and twice what rounding may hide (1e-7 for 320,000 uses).
        largest: Most uses that will be asked for, at least 1.

    Raises:
        RegimeError: If delta is too small for the composition to be certain.
    """

    def __init__(self, curve: HidingCurve, delta: float, largest: int) -> None:
        smallest = max(SMALLEST_DELTA, 2 * _ROUNDING_A_USE * whole("largest", largest, 1))
        if not delta >= smallest:
            raise RegimeError(f"composing {largest:,} uses is certain for delta >= {smallest:.2g}, got {delta:g}")
        self._curve, self._delta, self._largest = curve, delta, largest
        self._pmf = _loss_distribution(curve, delta, largest)

    def epsilon(self, count: int) -> float:
        """Epsilon of ``count`` uses, in [1, largest]; never more than the local budgets add up to."""
        count = whole("count", count, 1, self._largest)
        available = self._delta * (1 - 2 * _TRUNCATED) - count * _ROUNDING_A_USE
        composed = self._pmf.self_compose(count, tail_mass_truncation=self._delta * _TRUNCATED)
        epsilon = float(composed.get_epsilon_for_delta(available))
        while composed.get_delta_for_epsilon(epsilon) > available * (1 + 1e-9):
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
