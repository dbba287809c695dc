"""The blanket: what every report has in common, and the pair of laws that hides under it.

Every other user's report contains, with probability gamma_i, a draw from one public law w that does not depend on the
user's data. The adversary is told which reports do, and is handed the others; what is left is the victim's report
hidden among M draws from w, M a sum of independent Bernoulli(gamma_i).

w is proportional to exp(-b |v - 1/2|) on [0, 1], or on K levels to exp(-b c_k), c_k = |k - (K-1)/2| / (K-1), with
0 <= b <= the victim's budget; b = 0 is the uniform blanket (docs/proofs.md).

The divergence f decreases in M, so any law that is stochastically smaller than that of M gives an upper bound of
E f(M + 1). Probabilities gamma_i are rounded down to a few hundred values; the sum of the binomials that result has an
exact law by Fourier transform, at a cost that does not grow with n. It is gathered into blocks, each at its lower end.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from apes.accounting import Array, Whole
from apes.accounting.composition.lattice import UNIT

# The integers of the coded mechanism agree with its real-valued law to a relative 2^-64 exp(e)
# (apes.mathematics.thresholds).
_TABLE_ERROR = 2.0**-64
# Cells into which [0, 1] is cut for continuous reports; each is treated pessimistically.
_CELLS = 4096
# Different values of gamma_i.
_VALUES = 256
# Blocks of the law's central part; below it a few wide ones, below those Chernoff bounds.
_BLOCKS = 80
_WINDOW = 14.0
_LOWEST = 12.0
# Standard deviations below the mean at which Chernoff bounds are taken: down to probabilities of 10^-300.
_FAR = (40.0, 30.0, 22.0, 16.0)
# Rates of those bounds: the best of these is nearly the best of all.
_RATES = np.geomspace(1e-3, 40, 40).tolist()


@dataclass(frozen=True, eq=False)
class HiddenPair:
    """The blanket and the victim's two laws, data at one end and at the other: their mass in each cell.

    For each cell the highest and lowest values of (first density) / (blanket density), equal where a cell is a single
    level; reverse: the same for the second law.
    """

    blanket: Array
    first: Array
    second: Array
    highest: Array
    lowest: Array
    reverse_highest: Array
    reverse_lowest: Array


def echo_probabilities(budgets: Array, shape: float, levels: int | None) -> Array:
    """Probability gamma_i that another user's report is a draw from the blanket of shape b >= 0, rounded down."""
    e, b = budgets, shape
    if levels is None:
        # (2 / b) kappa(e) min(exp(b/2) - 1, exp(e/2) (1 - exp(-b/2))), kappa(e) = e / (exp(e) - 1)
        gamma = e * np.exp(-e) / -np.expm1(-e)
        if b > 0:
            gamma *= 2 / b * np.minimum(np.expm1(b / 2), np.exp(np.minimum(e, 700) / 2) * -np.expm1(-b / 2))
        return np.asarray(gamma * (1 - 1e-12))
    centre = np.abs(np.arange(levels) - (levels - 1) / 2) / (levels - 1)
    norm = np.exp(-b * centre).sum()
    # min_j p(k | j) = exp(-e (1/2 + c_k)) / Z_0, at the end farther from k; the ratio to w_k is monotone in c_k.
    # Z_0 = sum_s exp(-e s / (K-1)) is a geometric series.
    z0 = np.expm1(-e / (levels - 1) * levels) / np.expm1(-e / (levels - 1))
    ends, middle = float(centre.max()), float(centre.min())
    gamma = norm / z0 * np.exp(-e / 2) * np.minimum(np.exp((b - e) * ends), np.exp((b - e) * middle))
    slack = 1 + np.exp(np.minimum(e, 300)) * _TABLE_ERROR
    return np.asarray(gamma / slack**2 * (1 - 1e-12))


def table_error(budget: float) -> float:
    """By how much, relatively, a realised probability of the coded mechanism may exceed the ideal one."""
    return math.exp(min(budget, 300.0)) * _TABLE_ERROR


def hidden_pair(budget: float, shape: float, levels: int | None) -> HiddenPair:
    """The victim's laws at the two ends, and the blanket of that shape, at most the budget."""
    first = _end_law(budget, levels)
    return _under(_centred_law(shape, levels), first, _CellLaw(first.masses[::-1].copy(), first.densities[::-1]))


def half_pairs(budget: float, levels: int | None) -> tuple[HiddenPair, HiddenPair]:
    """The victim's laws at an end and at the centre under the uniform blanket: end against centre, and the reverse."""
    end, centre, uniform = _end_law(budget, levels), _centred_law(budget, levels), _centred_law(0.0, levels)
    return _under(uniform, end, centre), _under(uniform, centre, end)


class _CellLaw(NamedTuple):
    """A law by cells: the masses, and the densities at the edges; for levels, the masses once more."""

    masses: Array
    densities: Array


def _under(blanket: _CellLaw, first: _CellLaw, second: _CellLaw) -> HiddenPair:
    ranges: list[Array] = []
    for law in (first, second):
        ratio = law.densities / blanket.densities
        # 1/2 is an edge, so that the ratio is monotone within each cell.
        left, right = (ratio, ratio) if ratio.size == law.masses.size else (ratio[:-1], ratio[1:])
        ranges += np.maximum(left, right), np.minimum(left, right)
    return HiddenPair(blanket.masses, first.masses, second.masses, *ranges)


def _end_law(budget: float, levels: int | None) -> _CellLaw:
    """Law of a report on data at an end."""
    if levels is None:
        return _exponential(budget, _CELLS)
    return _on_levels(np.exp(-budget * np.arange(levels) / (levels - 1)))


def _centred_law(rate: float, levels: int | None) -> _CellLaw:
    """Law proportional to exp(-rate |v - 1/2|): a blanket, or that of a report on data in the centre."""
    if levels is not None:
        return _on_levels(np.exp(-rate * np.abs(np.arange(levels) - (levels - 1) / 2) / (levels - 1)))
    # Of the distance from the centre, doubled.
    half = _exponential(rate / 2, _CELLS // 2)
    return _CellLaw(
        np.concatenate([half.masses[::-1], half.masses]) / 2, np.concatenate([half.densities[:0:-1], half.densities])
    )


def _on_levels(weights: Array) -> _CellLaw:
    masses = weights / weights.sum()
    return _CellLaw(masses, masses)


def _exponential(rate: float, cells: int) -> _CellLaw:
    """Law on [0, 1], in so many cells, with a density proportional to exp(-rate v), rate >= 0."""
    edges = np.linspace(0, 1, cells + 1)
    if rate == 0:
        return _CellLaw(np.diff(edges), np.ones_like(edges))
    fall = np.exp(-rate * edges)
    return _CellLaw(fall[:-1] * np.expm1(-rate * np.diff(edges)) / np.expm1(-rate), fall * rate / -np.expm1(-rate))


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
    logs = [float(rate * low + counts @ np.log(1 - values + values * math.exp(-rate))) for rate in _RATES]
    # A logarithm is off by a unit or two per user.
    return 1e-300 + math.exp(min(0.0, min(logs) + 4 * UNIT * float(counts.sum())))


def _rounded_down(probabilities: Array, users: Whole) -> tuple[Array, Whole]:
    """At most a few hundred different values, none above the original."""
    values = np.unique(probabilities)
    if values.size > _VALUES:
        values = values[np.linspace(0, values.size - 1, _VALUES).astype(int)]
    place = np.searchsorted(values, probabilities, side="right") - 1
    return values, np.bincount(place, weights=users, minlength=values.size).astype(np.int64)


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
