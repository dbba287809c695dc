"""The laws of one report: Clip-Laplace on a bounded interval, and the classic Laplace law.

Both speak scipy's words and broadcast over location and epsilon; every method returns a float64
array (zero-dimensional for scalars). Letters inside: C clip, A bound, g location, lam = 2 C / epsilon
the scale, l = (A + g) / lam and r = (A - g) / lam the ways from the location to the two ends, and
W = L + R = (1 - exp(-l)) + (1 - exp(-r)) the mass of exp(-|z - g| / lam), both in units of lam.

The textbook forms subtract nearly equal numbers when epsilon is small. Here each quantity is a sum
of terms of one sign, or a difference that is shown to lose only a small factor.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc

from apes.errors import ParameterError
from apes.parameters import positive

# Below this budget the law is uniform, and its mean linear in epsilon, to the last digit of float64.
# The moments are taken here instead, where the cube of epsilon does not underflow.
_UNIFORM_BELOW = 1e-30
# sinh(h)/h - 1 up to h^16 / 17!: for h <= 1 the next term is 5e-17 of the sum.
_SERIES_TERMS = 8


@dataclass(frozen=True, eq=False)  # arrays have no single truth value: identity is the only ==
class _Law:
    """What the laws share: checked parameters, and a density proportional to exp(-|z - g| / lam)."""

    location: float | NDArray[np.float64]
    epsilon: float | NDArray[np.float64]
    clip: float

    def __post_init__(self) -> None:
        clip = positive("clip", self.clip)
        location = _numbers("location", self.location, -clip, clip)
        epsilon = _numbers("epsilon", self.epsilon, 0.0, np.inf, is_open=True)
        if not _broadcasts(location.shape, epsilon.shape):
            shapes = f"{location.shape} and {epsilon.shape}"
            raise ParameterError(f"location and epsilon must have shapes that broadcast, got {shapes}")
        for name, value in (("location", location), ("epsilon", epsilon), ("clip", clip)):
            object.__setattr__(self, name, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Broadcast shape of location and epsilon."""
        return np.broadcast_shapes(np.shape(self.location), np.shape(self.epsilon))

    @property
    def scale(self) -> NDArray[np.float64]:
        """Scale lam = 2 clip / epsilon, in the units of clip (2 clip is the sensitivity)."""
        return np.asarray(2 * self.clip / self.epsilon)

    def support(self) -> tuple[float, float]:
        """Return the two ends of the support, in the units of clip."""
        return -np.inf, np.inf

    def pdf(self, z: ArrayLike) -> NDArray[np.float64]:
        """Evaluate the density at z, any number but NaN, per unit of clip; 0 outside the support."""
        z = self._argument("z", z, -np.inf, np.inf)
        density = np.exp(-np.abs(z - self.location) / self.scale) / self._mass()
        return np.where(self._is_inside(z), density, 0.0)

    def logpdf(self, z: ArrayLike) -> NDArray[np.float64]:
        """Evaluate the log-density at z, any number but NaN, in nats; -inf outside the support."""
        z = self._argument("z", z, -np.inf, np.inf)
        log_density = -np.abs(z - self.location) / self.scale - np.log(self._mass())
        return np.where(self._is_inside(z), log_density, -np.inf)

    def _mass(self) -> NDArray[np.float64]:
        """Integrate exp(-|z - g| / lam) over the support."""
        return 2 * self.scale

    def _is_inside(self, z: NDArray[np.float64]) -> NDArray[np.bool_]:
        low, high = self.support()
        return (low <= z) & (z <= high)

    def _argument(self, name: str, values: ArrayLike, low: float, high: float) -> NDArray[np.float64]:
        array = _numbers(name, values, low, high)
        if not _broadcasts(self.shape, array.shape):
            raise ParameterError(f"{name} must have a shape that broadcasts with {self.shape}, got {array.shape}")
        return array

    def _sample_shape(
        self, size: int | tuple[int, ...] | None, rng: np.random.Generator
    ) -> tuple[int, ...]:
        """Check the arguments of rvs and return the shape of the sample."""
        if not isinstance(rng, np.random.Generator):
            raise ParameterError(f"rng must be a numpy.random.Generator, got {rng!r}")
        shape = self.shape if size is None else (size,) if not isinstance(size, tuple) else size
        if not _broadcasts(self.shape, shape) or np.broadcast_shapes(self.shape, shape) != shape:
            raise ParameterError(f"size must be a shape that {self.shape} broadcasts to, got {size!r}")
        return shape


@dataclass(frozen=True, eq=False)
class ClipLaplace(_Law):
    """Laplace law cut to [-bound, bound] and renormalised (the paper's Definition 4, def:clip-lap).

    pdf(z) = exp(-|z - g| / lam) / (2 lam S) on [-A, A], with lam = 2 C / epsilon and
    S = 1 - exp((-A + g) / lam) / 2 - exp((-A - g) / lam) / 2.

    Guarantee: a report is epsilon-LDP in real arithmetic, when any location in [-clip, clip] may be
    replaced by any other (Theorem 1): pdf ratios are at most exp(epsilon), and reach it between the
    two end locations. Samples are float64 from a generator that is not cryptographic: their low-order
    bits can tell more (Mironov 2012), so this is a law to simulate and to account with.

    | case                    | what happens                                             |
    |-------------------------|----------------------------------------------------------|
    | epsilon -> 0            | uniform on [-bound, bound]                               |
    | location at -/+ bound   | one-sided, the mode is the end itself                    |
    | z outside the support   | pdf 0, logpdf -inf, cdf 0 or 1 (z may be infinite)       |
    | ppf(0), ppf(1)          | -bound and bound exactly                                 |

    Args:
        location: The value to hide, g, in [-clip, clip]; scalar or array.
        epsilon: Local budget per coordinate, nats, in (0, inf); scalar or array.
        clip: Largest absolute location, C, in (0, inf); the sensitivity is 2 clip.
        bound: Largest absolute report, A, in [clip, inf); clip if None.

    Raises:
        ParameterError: If a parameter is out of range, or the shapes do not broadcast.

    >>> law = ClipLaplace(location=[-0.1, 0.0, 0.1], epsilon=1.0, clip=0.1)
    >>> law.mean().round(4).tolist()
    [-0.0164, 0.0, 0.0164]
    >>> float((law.pdf(-0.1)[0] / law.pdf(-0.1)[2]).round(6))  # exp(epsilon)
    2.718282
    >>> law.rvs(None, np.random.default_rng(1)).shape
    (3,)
    """

    bound: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        bound = self.clip if self.bound is None else positive("bound", self.bound)
        if not bound >= self.clip:
            raise ParameterError(f"bound must be in [clip, inf) = [{self.clip!r}, inf), got {bound!r}")
        object.__setattr__(self, "bound", bound)

    def support(self) -> tuple[float, float]:
        """Return -bound and bound."""
        bound = self.clip if self.bound is None else self.bound
        return -bound, bound

    def cdf(self, z: ArrayLike) -> NDArray[np.float64]:
        """Return P(report <= z) for z, any number but NaN; relatively accurate down to 0."""
        low, high = self.support()
        z = np.clip(self._argument("z", z, -np.inf, np.inf), low, high)
        left, right = self._side_masses()
        steps = np.abs(z - self.location) / self.scale
        # Up to g:  int = exp(-|u|) - exp(-l) = exp(-|u|) (1 - exp(-(z + A) / lam)), a product.
        # Beyond g: int = L + (1 - exp(-u)), a sum of positive terms.
        below = -np.expm1(-(z - low) / self.scale) * np.exp(-steps)
        beyond = left - np.expm1(-steps)
        return np.minimum(np.where(z <= self.location, below, beyond) / (left + right), 1.0)

    def ppf(self, q: ArrayLike) -> NDArray[np.float64]:
        """Return the z with cdf(z) = q, for q in [0, 1]; accurate to a few roundings of bound."""
        q = self._argument("q", q, 0.0, 1.0)
        low, high = self.support()
        left, right = self._side_masses()
        mass = left + right
        # With t = (z + A) / lam and z <= g: exp(-l) (exp(t) - 1) = q W, so t = log(1 + exp(l + log(q W))).
        # Beyond g the same holds from the upper end, with r and 1 - q. A mass of 0 gives log 0, t = 0.
        with np.errstate(divide="ignore"):
            from_low = self.scale * np.logaddexp(0.0, self._reach(low) + np.log(q * mass))
            from_high = self.scale * np.logaddexp(0.0, self._reach(high) + np.log((1 - q) * mass))
        # g separates the branches, so that rounding cannot make them cross; q = 1 is the upper end
        # even if nothing lies beyond g.
        is_below = (q * mass <= left) & (q < 1)
        below = np.minimum(low + from_low, self.location)
        return np.where(is_below, below, np.maximum(high - from_high, self.location))

    def rvs(self, size: int | tuple[int, ...] | None, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw reports by inversion; size None draws one per parameter. Not cryptographic."""
        return self.ppf(rng.random(self._sample_shape(size, rng)))

    def mean(self) -> NDArray[np.float64]:
        """Return the mean report: odd in the location, and 0 at 0 exactly.

        With a = A / lam and h = |g| / lam, the calibration formula of the paper reads
        mean = g (1 - (1 + a) exp(-a) sinh(h)/h) / (W/2). With P(a) = 1 - (1 + a) exp(-a), the
        incomplete gamma function, the bracket is P(a) - (1 + a) exp(-a) (sinh(h)/h - 1): both terms
        are computed without cancellation, and the second is at most 0.6 of the first as h <= a.
        """
        epsilon = np.maximum(self.epsilon, _UNIFORM_BELOW)
        law = ClipLaplace(self.location, epsilon, self.clip, self.bound)
        a = law.support()[1] / law.scale
        excess = (1 + a) * _sinhc_excess(np.abs(law.location) / law.scale, a)
        slope = (gammainc(2, a) - excess) / (sum(law._side_masses()) / 2)
        return np.asarray(self.location * slope * (self.epsilon / epsilon))

    def var(self) -> NDArray[np.float64]:
        """Return the variance, in squared units of clip.

        With u = (z - g) / lam: E[u^2] W = 2 (P3(l) + P3(r)) and E[u] W = P2(r) - P2(l), Pk the
        incomplete gamma function. The law has one mode, at u = 0, so E[u]^2 <= 3 var (Johnson and
        Rogers 1951): E[u^2] - E[u]^2 loses a factor of 4 at most.
        """
        law = ClipLaplace(self.location, np.maximum(self.epsilon, _UNIFORM_BELOW), self.clip, self.bound)
        l, r = (law._reach(end) for end in law.support())
        mass = sum(law._side_masses())
        second = 2 * (gammainc(3, l) + gammainc(3, r)) / mass
        first = (gammainc(2, r) - gammainc(2, l)) / mass
        return np.asarray(law.scale**2 * (second - first**2))

    def _reach(self, end: float) -> NDArray[np.float64]:
        """Measure the way from the location to an end of the support, in scales."""
        return np.asarray(np.abs(end - self.location) / self.scale)

    def _side_masses(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return L and R."""
        low, high = self.support()
        return -np.expm1(-self._reach(low)), -np.expm1(-self._reach(high))

    def _mass(self) -> NDArray[np.float64]:
        return self.scale * sum(self._side_masses())
