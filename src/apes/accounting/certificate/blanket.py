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

from apes.accounting import Array

# The integers of the coded mechanism agree with its real-valued law to a relative 2^-64 exp(e)
# (apes.mathematics.thresholds).
_TABLE_ERROR = 2.0**-64
# Cells into which [0, 1] is cut for continuous reports; each is treated pessimistically.
_CELLS = 4096


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
