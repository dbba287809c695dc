"""One number per person: every curve is covered by that of a Gaussian shift, and shifts add up as squares.

g_c(t) = Phi(-t/c + c/2) - exp(t) Phi(-t/c - c/2) is the hockey-stick divergence of N(c, 1) from N(0, 1) at exp(t)
(Balle and Wang 2018; Dong, Roth, Su 2022). A curve h <= g_c + delta_0 may be used as often as one likes, and chosen as
one goes: as long as the squares of the shifts add up to mu^2 at most and the delta_0 to D, everything together is
below g_mu + D (docs/proofs.md, 12 and 13).
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from apes.accounting import Array
from apes.accounting.certificate.curve import PrivacyCurve
from apes.accounting.composition.lattice import UNIT
from apes.mathematics.search import bisect

# Cells in which a curve is compared with a Gaussian's: so many cost two thousandths of c.
_CELLS = 64
_STEPS = 60
# Logarithms of normal probabilities are off by less than so many units of themselves (tested against 40 digits).
_LOG_UNITS = 32
# Beyond it exp(t) leaves the range of floating point.
_LARGEST = 690.0
# What is certified here holds beyond it, where rounding would drown everything.
_FARTHEST = 1e12
# A curve that this shift does not cover, no shift does: g_c is 1 in floating point there.
_WIDEST = 1e3


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Upper bound of g_mu(epsilon), epsilon in nats and not negative."""
    if mu == 0 or not math.isfinite(mu):
        return float(mu != 0)
    # Far out of range what cannot be computed is not a number: nothing is known then.
    with np.errstate(over="ignore", invalid="ignore"):
        delta = float(_bounds(mu, np.array([min(epsilon, _FARTHEST)]))[1][0])
    return delta if delta <= 1 else 1.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon found with g_mu(epsilon) <= delta, the safe end; infinite if delta is not positive.

    >>> round(gaussian_epsilon(1.0, 1e-5), 3)
    4.377
    """
    if not ((delta > 0 or mu == delta == 0) and math.isfinite(mu)):
        return math.inf
    if mu == 0:
        return 0.0

    def is_safe(epsilon: float) -> bool:
        return gaussian_delta(mu, epsilon) <= delta

    if is_safe(0.0):
        return 0.0
    high = mu * mu / 2 + mu
    while not is_safe(high):
        high *= 2
        if not math.isfinite(high):
            return math.inf
    return bisect(is_safe, 0.0, high, steps=_STEPS, tolerance=1e-9)


def largest_mu(epsilon: float, delta: float) -> float:
    """Largest mu found with g_mu(epsilon) <= delta, the safe end: what a filter may spend, as sum of squares mu^2."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    return bisect(lambda mu: gaussian_delta(mu, epsilon) <= delta, high, low, steps=_STEPS, tolerance=1e-12)


def covering_shift(curve: PrivacyCurve, delta_0: float) -> float:
    """Smallest c found with h <= g_c + delta_0 everywhere, for a curve h that is its own mirror image.

    The true divergence is convex in x = exp(t), so it lies below the chord of h in every cell; g_c is convex too and
    lies above its tangent at the cell's middle. Two lines are compared at the two ends of the cell. Past the point
    where h is below delta_0 there is nothing to show, and for t < 0 both sides mirror (docs/proofs.md, 12).
    """
    last = curve.epsilon(delta_0, cells=32)
    if curve.delta(0.0) <= delta_0:
        return 0.0
    if not last < _LARGEST:
        return math.inf
    t = np.linspace(0, last, _CELLS + 1)
    falling = np.minimum.accumulate([curve.delta(float(point)) for point in t[:-1]] + [delta_0])
    excess = falling * (1 + 4 * UNIT) - delta_0

    def is_covered(c: float) -> bool:
        return bool((_tangents(c, t) >= excess[np.add.outer([0, 1], np.arange(_CELLS))]).all())

    high = max(float(excess[0]), 1e-9)
    while not is_covered(high):
        high *= 1.5
        if high > _WIDEST:
            return math.inf
    return bisect(is_covered, 0.0, high, steps=_STEPS, tolerance=1e-7)


def _tangents(c: float, t: Array) -> Array:
    """Lower bounds of the tangents of g_c at the middles of cells, at the cells' left and right ends."""
    middle = (t[:-1] + t[1:]) / 2
    value, slope = _bounds(c, middle)[0], ndtr(-middle / c - c / 2)
    shaky = _LOG_UNITS * UNIT * (1 + (middle / c + c) ** 2)
    # exp(t) - exp(m) = exp(m) expm1(t - m); the slope is negative, so to the right it is taken as steeper than it is.
    left, right = (np.exp(middle) * np.expm1(ends - middle) for ends in (t[:-1], t[1:]))
    return np.stack([value - slope * left * (1 - shaky), value - slope * right * (1 + shaky)])


def _bounds(c: float, t: Array) -> tuple[Array, Array]:
    """Lower and upper bounds of g_c(t): Phi(-a) (1 - exp(t + log Phi(-a - c) - log Phi(-a))), a = t/c - c/2."""
    a = t / c - c / 2
    near, far = log_ndtr(-a), log_ndtr(-a - c)
    # a is off by two units of itself and of t/c, and so is log Phi, times its slope, which is below 1 + |a|.
    shaky = (np.abs(t / c) + c) * (1 + np.abs(a) + c)
    slack = _LOG_UNITS * UNIT * (1 + t + np.abs(near) + np.abs(far) + shaky)
    exponent = t + far - near
    low, high = (
        np.exp(np.minimum(near + sign * slack, 0.0)) * -np.expm1(np.minimum(exponent - sign * slack, 0.0))
        for sign in (-1, 1)
    )
    return low, np.minimum(high + 1e-300, 1.0)
