"""The laws of one report: Clip-Laplace on a bounded interval, and the classic Laplace law.

Both speak scipy's words and broadcast over location and epsilon; every method returns a float64 array (zero-dimensional
for scalars). Letters inside: C clip, A bound, g location, lam = 2 C / epsilon the scale, l = (A + g) / lam and
r = (A - g) / lam the ways from the location to the two ends, and W = L + R = (1 - exp(-l)) + (1 - exp(-r)) the mass of
exp(-|z - g| / lam), in units of lam. The textbook forms subtract nearly equal numbers when epsilon is small: here each
quantity is a sum of terms of one sign, or a difference that is shown to lose only a small factor.
"""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

from apes.checks import positive, within
from apes.errors import ParameterError
from apes.mathematics.arrays import F64

Shape = tuple[int, ...]
# Below this budget the law is uniform, and its mean linear in epsilon, to the last digit of float64. The moments are
# taken here instead, where the cube of epsilon does not underflow.
_UNIFORM_BELOW = 1e-30
# A uniform draw of 0, once in 2^53, would be -inf under Laplace: it becomes half the next draw.
_SMALLEST_DRAW = 2.0**-54


@dataclass(frozen=True, eq=False)  # arrays have no single truth value: identity is the only ==
class _Law(ABC):
    """What the laws share: checked parameters, and a density proportional to exp(-|z - g| / lam)."""

    location: float | F64
    epsilon: float | F64
    clip: float

    def __post_init__(self) -> None:
        clip = positive("clip", self.clip)
        location = _numbers("location", self.location, -clip, clip)
        epsilon = _numbers("epsilon", self.epsilon, 0.0, np.inf, location.shape, is_open=True)
        for name, value in (("location", location), ("epsilon", epsilon), ("clip", clip)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> Shape:
        """Broadcast shape of location and epsilon."""
        return np.broadcast_shapes(np.shape(self.location), np.shape(self.epsilon))

    @property
    def scale(self) -> F64:
        """Scale lam = 2 clip / epsilon, in the units of clip (2 clip is the sensitivity)."""
        return np.asarray(2 * self.clip / self.epsilon)

    def support(self) -> tuple[float, float]:
        """Return the two ends of the support, in the units of clip."""
        return -np.inf, np.inf

    def pdf(self, z: ArrayLike) -> F64:
        """Return the density at z (any number but NaN) per unit of clip; 0 outside the support."""
        return np.asarray(np.exp(self.logpdf(z)))

    def logpdf(self, z: ArrayLike) -> F64:
        """Return the log-density at z (any number but NaN); -inf outside the support."""
        z = _numbers("z", z, -np.inf, np.inf, self.shape)
        low, high = self.support()
        log_density = -np.abs(z - self.location) / self.scale - np.log(self._mass() * self.scale)
        return np.where((low <= z) & (z <= high), log_density, -np.inf)

    @abstractmethod
    def ppf(self, q: ArrayLike) -> F64:
        """Return the quantile of q in [0, 1]."""

    def rvs(self, size: int | Shape | None, rng: np.random.Generator) -> F64:
        """Draw finite reports by inversion; size None draws one per parameter. Not cryptographic."""
        if not isinstance(rng, np.random.Generator):
            raise ParameterError(f"rng must be a numpy.random.Generator, got {rng!r}")
        shape = self.shape if size is None else size if isinstance(size, tuple) else (size,)
        if _broadcast("size", shape, self.shape) != shape:
            raise ParameterError(f"size must be a shape that {self.shape} broadcasts to, got {size!r}")
        return self.ppf(np.maximum(rng.random(shape), _SMALLEST_DRAW))

    def _mass(self) -> float | F64:
        return 2.0  # W


@dataclass(frozen=True, eq=False)
class ClipLaplace(_Law):
    """Laplace law cut to [-bound, bound] and renormalised (the paper's Definition 4).

    ``pdf(z) = exp(-|z - g| / lam) / (lam W)`` on [-A, A], ``W = 2 - exp((-A + g) / lam) - exp((-A - g) / lam)``.
    Outside, pdf is 0 and cdf 0 or 1 (z may be infinite); ppf(0) and ppf(1) are -A and A exactly. It is uniform as
    epsilon -> 0.

    Guarantee: in real arithmetic a report is epsilon-LDP when any location in [-clip, clip] may be replaced by any
    other (Theorem 1): pdf ratios are at most exp(epsilon), and reach it between the two end locations. Samples are
    float64 numbers, whose low-order bits can tell more (Mironov 2012).

    Args:
        location: The value to hide, g, in [-clip, clip]; scalar or array.
        epsilon: Local budget per coordinate, nats, in (0, inf); scalar or array.
        clip: Largest absolute location, C, in (0, inf); the sensitivity is 2 clip.
        bound: Largest absolute report, A, in [clip, inf); clip if None.

    >>> law = ClipLaplace(np.array([-0.1, 0.0, 0.1]), epsilon=1.0, clip=0.1)
    >>> law.mean().round(4).tolist()
    [-0.0164, 0.0, 0.0164]
    >>> float((law.pdf(-0.1)[0] / law.pdf(-0.1)[2]).round(6))  # exp(epsilon)
    2.718282
    """

    bound: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        bound = self.clip if self.bound is None else within("bound", self.bound, self.clip, sys.float_info.max)
        object.__setattr__(self, "bound", bound)

    def support(self) -> tuple[float, float]:
        """Return -bound and bound."""
        bound = self.clip if self.bound is None else self.bound
        return -bound, bound

    def cdf(self, z: ArrayLike) -> F64:
        """Return P(report <= z) for z (any number but NaN); relatively accurate down to 0."""
        low, high = self.support()
        z = np.clip(_numbers("z", z, -np.inf, np.inf, self.shape), low, high)
        steps = np.abs(z - self.location) / self.scale
        # The integral is exp(-|u|) (1 - exp(-(z + A) / lam)) up to g, a product, and L + (1 - exp(-u)) beyond, a sum.
        below = -np.expm1(-(z - low) / self.scale) * np.exp(-steps)
        beyond = -np.expm1(-self._ways()[0]) - np.expm1(-steps)
        return np.minimum(np.where(z <= self.location, below, beyond) / self._mass(), 1.0)

    def ppf(self, q: ArrayLike) -> F64:
        """Return the z with cdf(z) = q, for q in [0, 1]: z + bound accurate to rounding of bound."""
        q = _numbers("q", q, 0.0, 1.0, self.shape)
        (low, high), (way_low, way_high) = self.support(), self._ways()
        left, mass = -np.expm1(-way_low), self._mass()
        # With t = (z + A) / lam and z <= g: exp(-l) (exp(t) - 1) = q W, so t = log(1 + exp(l + log(q W))).
        # Beyond g the same holds from the upper end, with r and 1 - q; a mass of 0 gives log 0, t = 0.
        with np.errstate(divide="ignore"):
            from_low = self.scale * np.logaddexp(0.0, way_low + np.log(q * mass))
            from_high = self.scale * np.logaddexp(0.0, way_high + np.log((1 - q) * mass))
        # If g is near -A, 1 - q would round away the lower tail: while q <= 1/2, start from g instead, with
        # 1 - exp(-u) = q W - L, which is <= 1/2 there.
        from_g = -self.scale * np.log1p(np.maximum(left - q * mass, -0.5))
        # g bounds the branches, lest rounding leave the support; q = 1 gives A even where g = A.
        return np.select(
            [(q * mass <= left) & (q < 1), q <= 0.5],
            [np.minimum(low + from_low, self.location), self.location + from_g],
            np.maximum(high - from_high, self.location),
        )

    def mean(self) -> F64:
        """Return the mean report: odd in the location, and 0 at 0 exactly.

        The paper's formula is g (1 - (1 + a) exp(-a) sinh(h)/h) / (W/2), a = A / lam, ``h = |g| / lam``. With the
        incomplete gamma function P2(a) = 1 - (1 + a) exp(-a) its bracket is P2(a) - (1 + a) exp(-a) (sinh(h)/h - 1):
        both terms come without cancellation, and the second is at most 0.6 of the first because h <= a.
        """
        law = replace(self, epsilon=np.maximum(self.epsilon, _UNIFORM_BELOW))
        a = law.support()[1] / law.scale
        excess = (1 + a) * _sinhc_excess(np.abs(law.location) / law.scale, a)
        slope = (gammainc(2, a) - excess) / (law._mass() / 2)
        return np.asarray(self.location * slope * (self.epsilon / law.epsilon))

    def var(self) -> F64:
        """Return the variance, in squared units of clip.

        With u = (z - g) / lam: E[u^2] W = 2 (P3(l) + P3(r)) and E[u] W = P2(r) - P2(l), Pk the incomplete gamma
        function. The law has its one mode at u = 0, so E[u]^2 <= 3 var (Johnson and Rogers 1951): E[u^2] - E[u]^2 loses
        a factor of 4 at most.
        """
        law = replace(self, epsilon=np.maximum(self.epsilon, _UNIFORM_BELOW))
        low, high = law._ways()
        second = 2 * (gammainc(3, low) + gammainc(3, high)) / law._mass()
        first = (gammainc(2, high) - gammainc(2, low)) / law._mass()
        return np.asarray(law.scale**2 * (second - first**2))

    def _ways(self) -> tuple[F64, F64]:
        """Return l and r."""
        low, high = self.support()
        return (self.location - low) / self.scale, (high - self.location) / self.scale

    def _mass(self) -> F64:
        low, high = self._ways()
        return -np.expm1(-low) - np.expm1(-high)


class Laplace(_Law):
    """Classic Laplace mechanism: location plus noise of scale lam = 2 clip / epsilon, on all reals.

    ``pdf(z) = exp(-|z - g| / lam) / (2 lam)``: the paper's Definition 3 with sensitivity 2 clip. Guarantee, arguments
    and ranges are those of ClipLaplace, without a bound.
    """

    def cdf(self, z: ArrayLike) -> F64:
        """Return P(report <= z) for z (any number but NaN); relatively accurate down to 0."""
        steps = (_numbers("z", z, -np.inf, np.inf, self.shape) - self.location) / self.scale
        tail = np.exp(-np.abs(steps)) / 2
        return np.where(steps <= 0, tail, 1 - tail)

    def ppf(self, q: ArrayLike) -> F64:
        """Return the z with cdf(z) = q, for q in [0, 1]; infinite at 0 and 1."""
        q = _numbers("q", q, 0.0, 1.0, self.shape)
        with np.errstate(divide="ignore"):  # the ends are infinite on purpose
            steps = np.log(2 * np.minimum(q, 1 - q))
        return np.asarray(self.location + np.where(q <= 0.5, steps, -steps) * self.scale)

    def mean(self) -> F64:
        """Return the mean report: the location itself, in the shape of the law."""
        return np.broadcast_to(self.location, self.shape).copy()

    def var(self) -> F64:
        """Return the variance 2 lam^2, in squared units of clip, in the shape of the law."""
        return np.broadcast_to(2 * self.scale**2, self.shape).copy()


def _sinhc_excess(h: F64, a: F64) -> F64:
    """Return exp(-a) (sinh(h)/h - 1) for 0 <= h <= a, by its series where the difference cancels."""
    series = np.zeros_like(h)
    for k in range(8, 0, -1):  # up to h^16 / 17!: for h <= 1 the next term is 5e-17 of the sum
        series = np.minimum(h, 1.0) ** 2 / (2 * k * (2 * k + 1)) * (1 + series)
    # exp(-a) goes into sinh before it can overflow; h is kept off 0 where the series is taken.
    big = np.maximum(h, 1.0)
    direct = np.exp(big - a) * -np.expm1(-2 * big) / (2 * big) - np.exp(-a)
    return np.where(h < 1, np.exp(-a) * series, direct)


def _numbers(name: str, values: ArrayLike, low: float, high: float, shape: Shape = (), *, is_open: bool = False) -> F64:
    """Return a read-only float64 copy of values that fit the shape, in [low, high] or, if open, in (low, high)."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be numbers in [{low:g}, {high:g}], got {values!r}") from None
    is_valid = (low < array) & (array < high) if is_open else (low <= array) & (array <= high)
    if not is_valid.all():
        interval = f"({low:g}, {high:g})" if is_open else f"[{low:g}, {high:g}]"
        raise ParameterError(f"{name} must be in {interval}, got {float(array[~is_valid][0])!r}")
    _broadcast(name, array.shape, shape)
    array.flags.writeable = False
    return array


def _broadcast(name: str, shape: Shape, other: Shape) -> Shape:
    try:
        return np.broadcast_shapes(shape, other)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must have a shape that broadcasts with {other}, got {shape}") from None
