"""The curve of users who choose b coordinates before they perturb: one use for each coordinate that they keep.

Two updates of a user, each zero outside b coordinates, are compared coordinate by coordinate. Where both say something,
the pair of inputs may be the two ends. Where only one does, the other input is zero, the centre: half the range. There
are as many coordinates of which the first update alone says something as of the second; put into couples, one of each
kind, such a couple costs little more than one whole coordinate, and usually less. So b uses of a curve that is above
both, the whole coordinate's and the couple's, cover everything (docs/proofs.md, 11).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.blanket import half_pairs
from apes.accounting.certificate.curve import SMALLEST_BUDGET, HidingCurve, hiding_curve, shaped_curve
from apes.accounting.composition.lattice import UNIT, Lattice
from apes.accounting.composition.losses import curve_points, losses
from apes.mathematics.search import bisect

LARGEST_COUPLE_BUDGET = 10.0
"""Beyond it the couple's curve is not computed: twice as many whole coordinates cover everything."""

# What a couple may leave uncounted is this much smaller than the delta of a use; all of it is counted.
_BREACH = 1e-8
_STEPS = 60


@dataclass(frozen=True, eq=False)
class TopBFirstCurve:
    """delta as a function of t: the larger one of a whole coordinate's and of a couple's."""

    whole: HidingCurve
    # Losses of a couple: a coordinate that goes from an end to the centre, another that goes the other way; and what of
    # it counts as a breach.
    couple: Lattice
    breach: float

    @property
    def budget(self) -> float:
        """Two coordinates, each of them epsilon-LDP."""
        return 2 * self.whole.budget

    def delta(self, t: float, cells: int | None = None) -> float:
        """Upper bound of the hockey-stick divergence at exp(t), t of either sign."""
        if t < 0:
            # Both are their own mirror images: a couple, if its two coordinates change places.
            return min(1.0, -math.expm1(t) + math.exp(t) * self.delta(-t, cells))
        return max(self.whole.delta(t, cells), self._of_couple(t))

    def epsilon(self, delta: float, cells: int | None = None) -> float:
        """Smallest t found with delta(t) <= delta, at most what is spent locally."""
        low = self.whole.epsilon(delta, cells)
        if self._of_couple(low) <= delta:
            return low
        return bisect(lambda t: self._of_couple(t) <= delta, low, self.budget, steps=_STEPS)

    def _of_couple(self, t: float) -> float:
        if t >= self.budget:
            return 0.0
        # A hair less, so that rounding of the points cannot matter.
        distance = self.couple.points - (t - 1e-12 * (1 + t))
        inside = float(self.couple.masses @ -np.expm1(-np.maximum(distance, 0.0)))
        return min(1.0, inside * (1 + 2 * distance.size * UNIT + 1e-12) + self.breach)


def top_b_first_curve(budget: float, others: Array, delta: float, levels: int | None) -> TopBFirstCurve:
    """The curve of a victim who chose coordinates first, among other honest users; smaller budgets are covered too.

    The budget is at most LARGEST_COUPLE_BUDGET. The curve is good at ``delta``, and valid everywhere.
    """
    # Under the uniform blanket the pair of an end and the centre tells more, the larger the budget is. Not their own
    # mirror images, so these two are asked at t >= 0 only: each is the other's other side.
    uniform = shaped_curve(budget, others, 0.0, levels)
    down, up = (replace(uniform, pair=pair) for pair in half_pairs(max(budget, SMALLEST_BUDGET), levels))
    (first, first_breach), (second, second_breach) = (
        losses(points, points.step) for points in curve_points([down, up], _BREACH * delta)
    )
    # Sums of positive products, at most as many as the shorter one has masses.
    masses = np.convolve(first.masses, second.masses) * (1 + 4 * first.masses.size * UNIT)
    breach = first_breach * (float(second.masses.sum()) + second_breach) + second_breach * float(first.masses.sum())
    couple = Lattice(first.step, first.lowest + second.lowest, masses)
    # A whole coordinate may hide under any blanket.
    return TopBFirstCurve(hiding_curve(budget, others, delta, levels), couple, breach * (1 + 1e-9))
