"""The blanket: what every report has in common, and the pair of laws that hides under it.

Every other user's report contains, with probability gamma_i, a draw from one public law w that does not depend on the
user's data. The adversary is told which reports do, and is handed the others; what is left is the victim's report
hidden among M draws from w, M a sum of independent Bernoulli(gamma_i).

w is proportional to exp(-b |v - 1/2|) on [0, 1], or on K levels to exp(-b c_k), c_k = |k - (K-1)/2| / (K-1), with
0 <= b <= the victim's budget; b = 0 is the uniform blanket (docs/proofs.md).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# The integers of the coded mechanism agree with its real-valued law to a relative 2^-64 exp(e)
# (apes.mathematics.thresholds).
_TABLE_ERROR = 2.0**-64
# Cells into which [0, 1] is cut for continuous reports; each is treated pessimistically.
_CELLS = 4096


@dataclass(frozen=True, eq=False)
class HiddenPair:
    """The victim's two laws and the blanket, cell by cell.

    Attributes:
        blanket: Mass of w in each cell.
        first: Mass of the victim's report in each cell, data at one end.
        second: The same, data at the other end.
        highest: For each cell, the largest value of (first density) / (blanket density) and
        lowest: the smallest; equal where a cell is a single level.
        reverse_highest, reverse_lowest: The same for the second law.
    """

    blanket: Array
    first: Array
    second: Array
    highest: Array
    lowest: Array
    reverse_highest: Array
    reverse_lowest: Array


def echo_probabilities(budgets: Array, shape: float, levels: int | None) -> Array:
    """Probability gamma_i that user i's report is a draw from the blanket, rounded down.

    Args:
        budgets: The other users' budgets, each in (0, inf).
        shape: b of the blanket, in [0, inf).
        levels: K of coded reports, or None for continuous ones.
    """
    e, b = budgets, shape
    if levels is None:
        # (2 / b) kappa(e) min(exp(b/2) - 1, exp(e/2) (1 - exp(-b/2))), kappa(e) = e / (exp(e) - 1)
        kappa = e * np.exp(-e) / -np.expm1(-e)
        if b == 0:
            gamma = kappa
        else:
            gamma = 2 / b * kappa * np.minimum(np.expm1(b / 2), np.exp(np.minimum(e, 700) / 2) * -np.expm1(-b / 2))
        return np.asarray(gamma * (1 - 1e-12))
    centre = np.abs(np.arange(levels) - (levels - 1) / 2) / (levels - 1)
    norm = np.exp(-b * centre).sum()
    # min_j p(k | j) = exp(-e (1/2 + c_k)) / Z_0, at the end farther from k; the ratio to w_k is monotone in c_k.
    z0 = _row_sum(e, levels)
    ends, middle = float(centre.max()), float(centre.min())
    gamma = norm / z0 * np.exp(-e / 2) * np.minimum(np.exp((b - e) * ends), np.exp((b - e) * middle))
    slack = 1 + np.exp(np.minimum(e, 300)) * _TABLE_ERROR
    return np.asarray(gamma / slack**2 * (1 - 1e-12))


def table_error(budget: float) -> float:
    """By how much, relatively, a realised probability of the coded mechanism may exceed the ideal one."""
    return math.exp(min(budget, 300.0)) * _TABLE_ERROR


def hidden_pair(budget: float, shape: float, levels: int | None) -> HiddenPair:
    """The victim's laws at the two ends, and the blanket of that shape."""
    first, blanket = _end_law(budget, levels), _centred_law(shape, levels)
    second = _CellLaw(first.masses[::-1].copy(), first.densities[::-1])
    return _hidden(first, second, blanket, levels)


def half_pairs(budget: float, levels: int | None) -> tuple[HiddenPair, HiddenPair]:
    """The victim's laws at an end and at the centre under the uniform blanket: end against centre, and the reverse."""
    end, centre, uniform = _end_law(budget, levels), _centred_law(budget, levels), _centred_law(0.0, levels)
    return _hidden(end, centre, uniform, levels), _hidden(centre, end, uniform, levels)


class _CellLaw(NamedTuple):
    """A law by cells: the masses, and the densities at the edges; for levels, the masses once more."""

    masses: Array
    densities: Array


def _hidden(first: _CellLaw, second: _CellLaw, blanket: _CellLaw, levels: int | None) -> HiddenPair:
    ranges: list[Array] = []
    for law in (first, second):
        ratio = law.densities / blanket.densities
        # Densities and their ratios are monotone within each cell: 1/2 is an edge.
        low, high = (ratio, ratio) if levels is not None else (ratio[:-1], ratio[1:])
        ranges += [np.maximum(low, high), np.minimum(low, high)]
    return HiddenPair(blanket.masses, first.masses, second.masses, *ranges)


def _end_law(budget: float, levels: int | None) -> _CellLaw:
    """Law of a report on data at an end."""
    if levels is not None:
        return _on_levels(np.exp(-budget * np.arange(levels) / (levels - 1)))
    edges = np.linspace(0, 1, _CELLS + 1)
    return _CellLaw(_exponential_mass(budget, edges), _exponential_density(budget, edges))


def _centred_law(rate: float, levels: int | None) -> _CellLaw:
    """Law proportional to exp(-rate |v - 1/2|): a blanket, or that of a report on data in the centre."""
    if levels is not None:
        return _on_levels(np.exp(-rate * np.abs(np.arange(levels) - (levels - 1) / 2) / (levels - 1)))
    edges = np.linspace(0, 1, _CELLS + 1)
    half = _exponential_mass(-rate / 2, 2 * edges[: _CELLS // 2 + 1]) / 2
    density = _exponential_density(-rate / 2, 2 * np.minimum(edges, 1 - edges))
    return _CellLaw(np.concatenate([half, half[::-1]]), density)


def _on_levels(weights: Array) -> _CellLaw:
    masses = weights / weights.sum()
    return _CellLaw(masses, masses)


def _row_sum(e: Array, levels: int) -> Array:
    """Z_0 = sum_s exp(-e s / (K-1)), as a geometric series."""
    x = e / (levels - 1)
    return np.asarray(np.expm1(-x * levels) / np.expm1(-x))


def _exponential_density(rate: float, v: Array) -> Array:
    """Density on [0, 1] proportional to exp(-rate v)."""
    if rate == 0:
        return np.ones_like(v)
    if rate < 0:
        return _exponential_density(-rate, 1 - v)
    return np.asarray(np.exp(-rate * v) * rate / -np.expm1(-rate))


def _exponential_mass(rate: float, edges: Array) -> Array:
    """Mass between neighbouring edges of the density on [0, 1] proportional to exp(-rate v)."""
    if rate == 0:
        return np.diff(edges)
    if rate < 0:
        return _exponential_mass(-rate, 1 - edges[::-1])[::-1]
    return np.asarray(np.exp(-rate * edges[:-1]) * np.expm1(-rate * np.diff(edges)) / np.expm1(-rate))
