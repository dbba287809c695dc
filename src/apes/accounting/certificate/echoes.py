"""How many echoes hide the victim: the law of M, bounded from below.

f decreases in M, so any law that is stochastically smaller gives an upper bound of E f(M + 1). Probabilities gamma_i
are rounded down to a few hundred values; the sum of the binomials that result has an exact law by Fourier transform, at
a cost that does not grow with n. The law is then gathered into blocks, each at its lower end.
"""

import math

import numpy as np

from apes.accounting import Array, Whole
from apes.accounting.composition.lattice import UNIT

_VALUES = 256
# Blocks of the law's central part; below it a few wide ones, below those Chernoff bounds.
_BLOCKS = 80
_WINDOW = 14.0
_LOWEST = 12.0
# Standard deviations below the mean at which Chernoff bounds are taken: down to probabilities of 10^-300.
_FAR = (40.0, 30.0, 22.0, 16.0)


def echo_law(probabilities: Array, counts: Whole | None = None) -> tuple[Whole, Array]:
    """Numbers of echoes m_0 < m_1 < ... and masses adding to at least 1: a law stochastically below that of M.

    Of the honest users that took part, without the victim, with these gamma_i; ``counts`` (1) of them with each.
    """
    if probabilities.size == 0:
        return np.zeros(1, dtype=np.int64), np.ones(1)
    users = np.ones(probabilities.size, dtype=np.int64) if counts is None else counts
    values, counts = _rounded_down(np.clip(probabilities, 0, 1), users)
    mean = float(counts @ values)
    deviation = math.sqrt(float(counts @ (values * (1 - values))))
    start = max(0, math.floor(mean - _WINDOW * deviation - 8))
    width = math.ceil(2 * _WINDOW * deviation + 16)
    n = 1 << math.ceil(math.log2(min(width, int(users.sum()) + 1) + 2))
    law = np.maximum(_law_of_sum(values, counts, start, n), 0)
    steps = np.concatenate([np.linspace(-_LOWEST, -5, 15), np.linspace(-5, 5, _BLOCKS)[1:]])
    # A few whole numbers further down: where M hardly varies, standard deviations say little.
    edges = np.append(mean + deviation * steps, mean - _LOWEST * deviation - 7)
    ends = np.unique(np.clip(np.floor(edges) - start, 0, n - 1)).astype(int)
    # What was wrapped into the window from above counts as less than it is, which is safe. Rounding is added to each
    # block, so that the masses add up to a little more than 1.
    # An entry is off by logarithms and phases that add up to some times the mean, and by the transform: NumPy adds rows
    # of up to 256 terms in blocks, off by 20 units of what the terms' sizes add up to: pi times the mean.
    off = (4 * values.size + 80 * mean + 8 * math.log2(n) + 8) * UNIT
    masses = np.add.reduceat(law, ends) + np.diff(np.append(ends, n)) * off
    masses[0] += law[: ends[0]].sum()
    # P(M < k) counts in full at the next lower place.
    far = np.unique(np.clip(np.floor(mean - deviation * np.array(_FAR)), 0, start + int(ends[0]))).astype(int)
    places = np.unique(np.concatenate([[0], far, start + ends]))
    below = [_chernoff(values, counts, int(place)) for place in places[1 : places.size - ends.size + 1]]
    return places.astype(np.int64), np.concatenate([below, masses])


def _chernoff(values: Array, counts: Whole, low: int) -> float:
    """Bound of P(M < low): min over l of exp(l low) E exp(-l M)."""
    if low == 0:
        return 0.0
    rates = np.geomspace(1e-3, 40, 80)
    logs = [float(rate * low + counts @ np.log(1 - values + values * math.exp(-rate))) for rate in rates.tolist()]
    # A logarithm is off by a unit or two per user.
    return 1e-300 + math.exp(min(0.0, min(logs) + 4 * UNIT * float(counts.sum())))


def _rounded_down(probabilities: Array, users: Whole) -> tuple[Array, Whole]:
    """At most a few hundred different values, none above the original."""
    values, place = np.unique(probabilities, return_inverse=True)
    counts = np.bincount(place, weights=users, minlength=values.size).astype(np.int64)
    if values.size <= _VALUES:
        return values, counts
    edges = values[np.linspace(0, values.size - 1, _VALUES).astype(int)]
    place = np.searchsorted(edges, values, side="right") - 1
    return edges, np.bincount(place, weights=counts, minlength=edges.size).astype(np.int64)


def _law_of_sum(values: Array, counts: Whole, start: int, n: int) -> Array:
    """P(M = start + i) for i in 0 .. n - 1; what lies outside the window is wrapped into it."""
    angles = 2 * np.pi * np.arange(n // 2 + 1) / n
    # The modulus is at most exp(-2 Var sin(a / 2)^2), since log(1 - x) <= -x: the rest is below exp(-60), and left out.
    variance = float(counts @ (values * (1 - values)))
    angles = angles[2 * variance * np.sin(angles / 2) ** 2 <= 60]
    column = angles[:, None]
    with np.errstate(divide="ignore"):
        # log(1 - g + g exp(-i a)) in parts: its modulus without forming 1 + something small.
        sizes = counts * 0.5 * np.log1p(np.maximum(-4 * values * (1 - values) * np.sin(column / 2) ** 2, -1))
    phases = -counts * np.arctan2(values * np.sin(column), 1 - values + values * np.cos(column))
    transform = np.zeros(n // 2 + 1, dtype=np.complex128)
    transform[: angles.size] = np.exp(sizes.sum(axis=1)) * np.exp(1j * (angles * start + phases.sum(axis=1)))
    return np.fft.irfft(transform, n)
