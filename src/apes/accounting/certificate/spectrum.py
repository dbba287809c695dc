"""E[S_+ exp(-rate S)] of a sum of m copies of a lattice variable of mean 0, from its spectrum, with a bounded error.

sum_j law_j ramp_j = (1/n) sum_k F_k^m conj(V_k), F the transform of one copy and V that of ramp_j = j exp(-rate j) on
half of a window of n places: the law of the sum itself is not needed. For large m only some dozens of the lowest
frequencies matter; then F_k is summed directly, V_k has a closed form, and the cost does not grow with m.
"""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apes.accounting import Array, Whole
from apes.accounting.composition.lattice import POWER_ERROR, UNIT, transform_error, wrapped

Complex = NDArray[np.complex128]
# The frequencies that matter, the transforms F and V at them, and by how much each may be off.
_Band = tuple[Whole, Complex, Complex, float, Array]
# Powers |F_k|^m below exp(-60) are left out, and bounded by exp(-59).
_NOTHING = 60.0
_LEFT_OUT = math.exp(-59.0)
# Up to this length a whole transform is cheaper than looking for the frequencies that matter.
_SHORT = 1 << 13
# Frequencies at which the transform is probed, to see that it stays away from 1.
_PROBES = 1 << 13
_AT_ONCE = 1 << 18


class RampSpectrum:
    """Spectra of a variable of mean 0, or nearly, and of the ramp of a rate >= 0 per place.

    On a window of places from -n/2 to n/2 - 1, n a power of two; the variable's places follow one another.
    """

    def __init__(self, places: Whole, weights: Array, rate: float, n: int) -> None:
        self._places, self._weights, self._rate, self._n = places, weights, rate, n
        total, off = ramp_transform(rate, np.zeros(1), n // 2)
        self._mass = float(total.real[0] + off[0])

    def expectations(self, sizes: Whole) -> Array:
        """Upper bounds of E[S_+ exp(-rate S); S < n/2] for each m >= 2; what wraps around is added, which is safe."""
        totals = np.empty(sizes.size)
        scales = np.floor(np.log2(sizes) / 2)
        # A smaller m needs more frequencies: find them once for each power of four.
        for scale in np.unique(scales).tolist():
            group = np.flatnonzero(scales == scale)
            smallest = int(sizes[group].min())
            last = self._last_frequency(smallest)
            band = self._low(last) if last else self._all(smallest)
            for part in np.array_split(group, 1 + group.size * band[0].size // _AT_ONCE):
                totals[part] = self._paired(sizes[part][:, None], band)
        return totals

    def _paired(self, m: Whole, band: _Band) -> Array:
        """(1/n) sum_k F_k^m conj(V_k) over all frequencies, and all that could be missing from it."""
        kept, transform, dual, noise, off = band
        modulus, strength = np.abs(transform), np.abs(dual)
        both = np.where((kept == 0) | (kept == self._n // 2), 1.0, 2.0)
        size = np.exp(m * np.log(np.maximum(modulus, 1e-300)))
        turn = np.cos(m * np.angle(transform) - np.angle(dual))
        total = (size * turn) @ (strength * both)
        # |F_k + noise|^m differs from |F_k|^m by at most m (|F_k| + noise)^(m-1) noise.
        wrong = m * np.exp((m - 1) * np.log(modulus + noise)) * noise + (POWER_ERROR * (m + 1) + 8 * UNIT) * size
        error = wrong @ ((strength + off) * both) + size @ (off * both)
        return np.asarray((total + error) / self._n + _LEFT_OUT * self._mass)

    @cached_property
    def _whole(self) -> tuple[Complex, Complex]:
        half = np.arange(self._n // 2, dtype=np.float64)
        ramp = np.fft.rfft(half * np.exp(-self._rate * half), self._n)
        return np.fft.rfft(wrapped(self._places, self._weights, self._n)), ramp

    @cached_property
    def _probes(self) -> Array:
        return np.abs(np.fft.rfft(wrapped(self._places, self._weights, _PROBES)))

    def _all(self, smallest: int) -> _Band:
        """All frequencies that matter for m >= smallest, by fast Fourier transforms."""
        (transform, dual), noise = self._whole, transform_error(self._n)
        kept = np.flatnonzero(smallest * np.log(np.abs(transform) + noise) > -_NOTHING)
        return kept, transform[kept], dual[kept], noise, np.full(kept.size, noise * self._mass)

    def _low(self, last: int) -> _Band:
        """The frequencies up to ``last``, one by one."""
        kept = np.arange(last + 1)
        angles = np.asarray(2 * np.pi / self._n * kept, dtype=np.float64)
        # Places follow one another; in rows of equal length, a place's turn is its row's and its column's.
        size = self._places.size
        width = math.isqrt(size) + 1
        rows = np.pad(self._weights, (0, -size % width)).reshape(-1, width)
        starts = self._places[0] + width * np.arange(rows.shape[0])
        along, down = (np.exp(-1j * np.outer(angles, places)) for places in (np.arange(width), starts))
        transform = (along @ rows.T * down).sum(axis=1)
        noise = (size + 24 + 16 * float(angles[-1] * np.abs(self._places).max())) * UNIT
        dual, off = ramp_transform(self._rate, angles, self._n // 2)
        return kept, transform, dual, noise, off

    def _last_frequency(self, m: int) -> int:
        """Last frequency k with |F_k|^m of more than exp(-60), proved; 0 if unknown, or not worth knowing.

        |F(w)|^2 = E cos(w (X - X')) <= 1 - w^2 Var + w^4 E(X - X')^4 / 24, which decreases up to w^2 = 12 Var /
        E(X - X')^4; beyond, |F| is probed, and changes between probes by at most the standard deviation times w.
        """
        if self._n <= _SHORT or self._places.size > _PROBES // 2:
            return 0
        centred = self._places - float(self._weights @ self._places)
        variance = float(self._weights @ centred**2)
        fourth = 2 * float(self._weights @ centred**4) + 6 * variance**2
        # Moments are off by far less than a millionth.
        variance, fourth = variance * (1 - 1e-6), fourth * (1 + 1e-6)
        fall = -math.expm1(-2 * _NOTHING / m)
        if variance**2 <= fourth * fall / 6:
            return 0
        lowest, turning = 12 / fourth * (variance - math.sqrt(variance**2 - fourth * fall / 6)), 12 * variance / fourth
        spacing = 2 * math.pi / _PROBES
        beyond = self._probes[max(0, math.floor(math.sqrt(turning) / spacing)) :]
        highest = float(beyond.max(initial=0.0)) + math.sqrt(variance) * (1 + 1e-6) * spacing
        if m * math.log(highest) > -_NOTHING:
            return 0
        return math.ceil(math.sqrt(lowest) * self._n / (2 * math.pi))


def ramp_transform(rate: float, angles: Array, length: int) -> tuple[Complex, Array]:
    """V(a) = sum_{j < length} j z^j, z = exp(-rate - i a), and bounds of its error.

    V = z (1 - length z^(length-1) + (length-1) z^length) / (1 - z)^2, with 1 - z free of cancellation.
    """
    a = rate + 1j * angles
    # 1 - z, written so that nothing cancels.
    gap = -np.expm1(-rate) + 2 * np.exp(-rate) * np.sin(angles / 2) ** 2 + 1j * np.exp(-rate) * np.sin(angles)
    flat = np.abs(a) * length < 1e-3
    gap = np.where(flat, 1.0, gap)
    value = (np.exp(-a) - np.exp(-length * a) * (length * gap + np.exp(-a))) / gap**2
    # The power is off by a few units of its exponent, the rest by a few of itself; |z|, |z^length| <= 1.
    off = (32 + 8 * np.abs(a) * length) * UNIT * (2 + length * np.abs(gap)) / np.abs(gap) ** 2
    # Where the exponents are below a thousandth, three terms of the series; what is left is below 10^-9 of the first.
    first = 0.5 * length * (length - 1)
    series = first - a * first * (2 * length - 1) / 3 + a**2 / 2 * first**2
    return np.where(flat, series, value), np.where(flat, 1e-9 * first, off)
