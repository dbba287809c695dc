"""Laws on a lattice, tilted: sums of many copies stay accurate where they are tiny.

With masses p_i at points x_i and any theta, E[g(S)] = M^m E~[exp(-theta S) g(S)] for the sum S of m copies, where
M = sum_i p_i exp(theta x_i) and the tilted law has weights p_i exp(theta x_i) / M. A theta that puts the tilted mean
where g matters leaves nothing to cancel. Weights are positive, so that relative errors of each carry over to the whole.
"""

import math
from dataclasses import dataclass

import numpy as np

from apes.accounting import Array, Whole

UNIT = 2.0**-53
# A mean of less than this share of the variance, as squares, is taken as 0.
_CENTRED = 1e-12
# z^m = exp(m log|z|) (cos, sin)(m arg z), |z| <= 1 and not tiny, is off relatively by at most m + 1 times this: log|z|
# and arg z are off by 4 units of at most 4; multiplying, exp and cos add less.
POWER_ERROR = 16 * UNIT


@dataclass(frozen=True, eq=False)
class Lattice:
    """Masses, not negative, at the points step * (lowest + i)."""

    step: float
    lowest: int
    masses: Array

    @property
    def places(self) -> Whole:
        """The points, in steps."""
        return self.lowest + np.arange(self.masses.size)

    @property
    def points(self) -> Array:
        """Where the masses are."""
        return np.asarray(self.step * self.places, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Tilted:
    """A lattice law after tilting: weights add up to 1, up to rounding.

    Masses are exp(log_moment - theta x) times weights, log_moment that of M, each up to a relative error below `error`.
    """

    lattice: Lattice
    theta: float
    log_moment: float
    weights: Array
    error: float

    @property
    def mean(self) -> float:
        """Mean of the tilted law."""
        return float(self.weights @ self.lattice.points)


def tilt(lattice: Lattice, theta: float) -> Tilted:
    """Tilt a law."""
    exponents = theta * lattice.points
    top = float(exponents.max())
    weights = lattice.masses * np.exp(exponents - top)
    total = float(weights.sum())
    # Points and exponents are off by two units of themselves each, exp, product and quotient by one, the sum by as many
    # as it has terms, the logarithm of M by one of itself.
    log_moment = top + math.log(total)
    error = (8 * float(np.abs(exponents).max()) + 2 * abs(log_moment) + lattice.masses.size + 16) * UNIT
    return Tilted(lattice, theta, log_moment, weights / total, error)


def centring_tilt(lattice: Lattice) -> float:
    """Theta >= 0 under which the law has mean 0, nearly, or 0 if it has more; any theta is valid, this is best."""
    points, masses = lattice.points, lattice.masses
    top = float(points[masses > 0].max())
    theta, low, high = 0.0, 0.0, math.inf if top > 0 else 0.0
    while theta < high:
        weights = masses * np.exp(np.minimum(theta * (points - top), 0))
        mean, square = float(weights @ points) / (total := float(weights.sum())), float(weights @ points**2) / total
        if (mean >= 0 and theta == 0) or mean * mean <= _CENTRED * square:
            break
        low, high = (theta, high) if mean < 0 else (low, theta)
        # Newton's step: the mean grows like the variance. Where it leads astray, halves, or twice as much.
        newton = theta - mean / max(square - mean * mean, 1e-300)
        theta = newton if low < newton < high else min(2 * theta + 1 / top, (low + high) / 2)
    return theta


def wrapped(places: Whole, weights: Array, n: int) -> Array:
    """Weights at their places modulo n."""
    return np.asarray(np.bincount(places % n, weights, minlength=n), dtype=np.float64)


def transform_error(n: int) -> float:
    """Bound of the error of an entry of a fast Fourier transform of length n, a power of two, of numbers that add to 1.

    Each entry is a sum over all inputs, each multiplied by at most log2(n) factors of modulus 1 on its way: a product
    of complex numbers is off by less than 3 units, its factor by 1, an addition by 1 in each part.
    """
    return 8 * math.log2(n) * UNIT


def law_of_sum(tilts: list[tuple[Tilted, int]], n: int) -> tuple[Array, float]:
    """Law of the sum modulo n places, and a bound of the error of each entry."""
    noise = transform_error(n)
    size, highest, turn, wrong = np.zeros((4, n // 2 + 1))
    for tilted, count in tilts:
        one = np.fft.rfft(wrapped(tilted.lattice.places, tilted.weights, n))
        modulus = np.abs(one)
        size += count * np.log(np.maximum(modulus, 1e-300))
        highest += count * np.log(modulus + noise)
        turn += count * np.angle(one)
        # A factor that is off by `noise` changes the product by at most that times the others.
        wrong += count * noise / (modulus + noise) + POWER_ERROR * (count + 1)
    power = np.exp(size + 1j * turn)
    both = np.full(n // 2 + 1, 2.0)
    both[0] = both[-1] = 1.0
    off = float(both @ (wrong * np.exp(highest))) + noise * float(both @ np.abs(power))
    return np.fft.irfft(power, n), off / n * (1 + 1e-9)


def tail_bound(parts: list[tuple[Array, Array, int]], window: float) -> float:
    """Smallest found of exp(-l W) E exp(l S), l >= 1 / W, W > 0 the window, for a sum S of independent variables.

    Parts are points, weights and how many copies, of each kind of summand.
    """
    parts = [(points[weights > 0], weights[weights > 0], count) for points, weights, count in parts]
    if sum(count * float(points.max()) for points, _, count in parts) < window:
        return 0.0
    variance = sum(count * float(weights @ points**2) for points, weights, count in parts)
    best = math.inf
    for factor in (0.5, 1.0, 2.0):
        rate = max(factor * window / variance, 1 / window)
        exponent = -rate * window
        for points, weights, count in parts:
            top = rate * float(points.max())
            exponent += count * (top + math.log(float(weights @ np.exp(rate * points - top))))
        best = min(best, exponent)
    # The exponent is off by some 100 units per copy: far below a thousandth, for 10^9 copies too.
    return 1.001 * math.exp(min(best, 700.0))
