"""The exact divergence of one report among m - 1 draws from the blanket, computed from above.

f(m, t) = E[max(0, (L_1 + ... + L_m) / m)], L_k independent copies of L = (first - exp(t) second) / blanket under the
blanket. L is moved onto a lattice by mean-preserving spreads, which can only increase f; the law of the sum comes from
a fast Fourier transform, tilted so that its mean is 0, which keeps tiny values accurate.
Everything that rounding and wrapping around could hide is bounded and added.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from apes.accounting.blanket import HiddenPair

Array = NDArray[np.float64]
_UNIT = 2.0**-53
# Masses and exponents are off by at most a few units for each of m <= 10^7 factors.
_SAFETY = 1 + 1e-9
# Half width of the window in standard deviations of the (tilted) sum; what lies beyond is bounded and added.
_WINDOW = 9.0
# Powers below exp(-60) are left out, and bounded.
_NOTHING = 60.0
_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class _Lattice:
    """A law on the points step * (lowest + i): masses that sum to 1."""

    step: float
    lowest: int
    masses: Array

    @property
    def points(self) -> Array:
        return np.asarray(self.step * (self.lowest + np.arange(self.masses.size)), dtype=np.float64)


def excess(pair: HiddenPair, t: float, sizes: NDArray[np.int64], cells: int) -> Array:
    """Upper bounds of f(m, t) for several m.

    Args:
        pair: The victim's laws and the blanket.
        t: Where the divergence is taken, in nats.
        sizes: Numbers of hidden reports m, each at least 1.
        cells: Cells of the lattice across the range of L; more are tighter and slower.
    """
    lattice = _spread(pair, t, cells)
    theta = _tilt(lattice)
    points = lattice.points
    top = float(theta * points.max())
    weights = lattice.masses * np.exp(theta * points - top)
    log_moment = top + math.log(weights.sum())
    weights /= weights.sum()
    n = _length(lattice, weights, int(sizes.max()))
    half = n // 2
    positive = lattice.step * np.arange(half)
    value = np.zeros(n)
    value[:half] = positive * np.exp(-theta * positive)
    # sum_j law_j value_j = (1/n) sum_k F_k^m conj(V_k): the law itself is not needed, and F_k^m is nothing for most k.
    transform, dual = np.fft.rfft(_wrapped(lattice, weights, n)), np.fft.rfft(value)
    totals = _paired(transform, dual, sizes, n, float(value.sum()))
    # The bound of what lies beyond the window grows with m, so that of the largest serves all.
    totals += _beyond(points, weights, int(sizes.max()), lattice.step * (half - 1))
    if theta > 0:
        # A proved fallback: max(0, s) <= exp(theta s) / (e theta).
        totals = np.minimum(totals, 1 / (math.e * theta))
    # L is a difference, off by up to `shift`. Were every L larger by it, E[(S + m shift)_+] would be at most
    # M^m exp(theta m shift) (E~[S_+ exp(-theta S)] + m shift).
    shift = 8 * _UNIT * float((pair.highest + math.exp(t) * pair.reverse_highest).max())
    grown = np.exp(np.minimum(sizes * (log_moment + theta * shift), 700.0))
    bounds = grown * (totals / sizes + shift) * _SAFETY
    # f decreases in m (Jensen), so f(1) bounds all of them.
    return np.asarray(np.minimum(bounds, float(lattice.masses @ np.maximum(points, 0)) * _SAFETY + shift))


def _length(lattice: _Lattice, weights: Array, largest: int) -> int:
    """Length of the transform: a window of the sum's width, no wider than its range, no narrower than a summand's."""
    points = lattice.points
    deviation = math.sqrt(float(weights @ points**2) - float(weights @ points) ** 2)
    width = 2 * _WINDOW * deviation * math.sqrt(largest) / lattice.step
    width = max(min(width, largest * 2 * float(np.abs(points).max()) / lattice.step), 2.0 * lattice.masses.size)
    return 1 << math.ceil(math.log2(width + 8))


def _paired(
    transform: NDArray[np.complex128], dual: NDArray[np.complex128], sizes: NDArray[np.int64], n: int, mass: float
) -> Array:
    """Upper bounds of (1/n) sum_k F_k^m conj(V_k) over all n frequencies, for each m.

    An entry of a transform of numbers that add to s carries an error below 8 log2(n) s units. So F_k^m is off by
    m |F_k|^(m-1) times that, plus m + 1 times 8 units of itself for the power; V_k by 8 log2(n) mass.
    """
    modulus, strength = np.abs(transform), np.abs(dual)
    decay = np.log(np.maximum(modulus, 1e-300))
    twice = np.full(transform.size, 2.0)
    twice[0] = twice[-1] = 1.0
    noise = 8 * math.log2(n) * _UNIT
    dropped = 2 * math.exp(-_NOTHING) * float(strength.sum())
    totals = np.empty(sizes.size)
    # A smaller m keeps more frequencies: find them once for each power of two.
    for scale in np.unique(np.floor(np.log2(sizes))).tolist():
        group = np.flatnonzero(np.floor(np.log2(sizes)) == scale)
        kept = np.flatnonzero(2**scale * decay > -_NOTHING)
        for part in np.array_split(group, 1 + group.size * kept.size // _AT_ONCE):
            m = sizes[part][:, None]
            power = transform[kept] ** m
            size = np.abs(power)
            total = (power * np.conj(dual[kept])).real @ twice[kept]
            off = m * modulus[kept] ** (m - 1) * noise + (m + 1) * 8 * _UNIT * size
            error = 2 * (off @ strength[kept]) + 2 * size.sum(axis=1) * noise * mass
            totals[part] = (total + error + dropped) / n
    return totals


def _spread(pair: HiddenPair, t: float, cells: int) -> _Lattice:
    """The law of L on a lattice: each cell's mass at lattice points around its range, its mean kept."""
    growth = math.exp(t)
    low = pair.lowest - growth * pair.reverse_highest
    high = pair.highest - growth * pair.reverse_lowest
    mean = (pair.first - growth * pair.second) / pair.blanket
    step = float(high.max() - low.min()) / cells
    below, above = np.floor(low / step), np.ceil(high / step)
    above = np.where(above == below, below + 1, above)
    share = np.clip((mean / step - below) / (above - below), 0, 1)
    first = int(below.min())
    masses = np.zeros(int(above.max()) - first + 1)
    np.add.at(masses, (below - first).astype(int), pair.blanket * (1 - share))
    np.add.at(masses, (above - first).astype(int), pair.blanket * share)
    return _Lattice(step, first, masses / masses.sum())


def _tilt(lattice: _Lattice) -> float:
    """Theta >= 0 with mean 0 under masses times exp(theta x); 0 if the mean is not negative."""
    points, masses = lattice.points, lattice.masses

    def mean(theta: float) -> float:
        weights = masses * np.exp(theta * (points - points.max()))
        return float(weights @ points / weights.sum())

    if mean(0.0) >= 0 or points.max() <= 0:
        return 0.0
    high = 1 / lattice.step / lattice.masses.size
    while mean(high) < 0:
        high *= 2
    return float(brentq(mean, 0.0, high, rtol=1e-10))


def _wrapped(lattice: _Lattice, weights: Array, n: int) -> Array:
    placed = np.zeros(n)
    np.add.at(placed, (lattice.lowest + np.arange(weights.size)) % n, weights)
    return placed


def _beyond(points: Array, weights: Array, m: int, window: float) -> float:
    """Bound of E[S exp(-theta S); S >= window], S the tilted sum: W exp(-l W) M(l)^m for any l >= 1 / W."""
    if m * points.max() < window:
        return 0.0
    points, weights = points[weights > 0], weights[weights > 0]
    variance = float(weights @ points**2)
    best = math.inf
    for factor in (0.5, 1.0, 2.0):
        rate = max(factor * window / (m * variance), 1 / window)
        top = rate * points.max()
        log_moment = top + math.log(float(weights @ np.exp(rate * points - top)))
        best = min(best, math.log(window) - rate * window + m * log_moment)
    return math.exp(min(best, 700.0))
