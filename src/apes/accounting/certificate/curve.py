"""The certified bound: how much one coordinate of one round reveals about one user, proved and rounded against us.

See docs/proofs.md for the steps; `blanket` has the pair of laws and the law of the number of echoes, `divergence` the
hockey-stick divergence of the two together.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from apes.accounting import Array, Whole
from apes.accounting.certificate.blanket import HiddenPair, echo_law, echo_probabilities, hidden_pair, table_error
from apes.accounting.certificate.divergence import excess
from apes.checks import between, whole
from apes.mathematics.search import bisect
from apes.mathematics.thresholds import MAX_LEVELS

# Shapes tried at first, evenly spaced; then two more around the best.
_SHAPES = 5
_CELLS = 192
# Few levels make few values of L: a lattice much finer than their distances only costs frequencies.
_CELLS_PER_LEVEL, _FEWEST_CELLS = 12, 48
_COARSE_CELLS = 32
_STEPS = 40
# Budgets from which on epsilon is looked for from below.
_WIDE, _PROBES = 10.0, 24
# Larger budgets get the local guarantee: exp of them, and of more, would leave the range of floating point.
LARGEST_BUDGET = 300.0
SMALLEST_BUDGET = 1e-12
"""The laws of a smaller budget are covered by those of this one (docs/proofs.md, 4 and 11); they would not differ in
floating point."""
_GROUPS = 4096


class PrivacyCurve(Protocol):
    """delta as a function of t, from above, for something that is used many times."""

    @property
    def budget(self) -> float:
        """What it costs locally, in nats; beyond it delta is 0."""

    def delta(self, t: float, cells: int | None = None) -> float:
        """Upper bound of the hockey-stick divergence at exp(t), t of either sign."""

    def epsilon(self, delta: float, cells: int | None = None) -> float:
        """Smallest t found with delta(t) <= delta, at most the budget; with ``cells``, roughly."""

    def __hash__(self) -> int:
        """By identity: what a curve comes to is kept."""


@dataclass(frozen=True, eq=False)
class HidingCurve:
    """delta as a function of t for a victim among others: an upper bound of the true divergence."""

    budget: float
    pair: HiddenPair
    # Numbers of reports that hide together, the victim's included, and how likely each is.
    sizes: Whole
    masses: Array
    # eta: by which factor 1 + eta the victim's realised probabilities may exceed the ideal ones.
    table_error: float = 0.0

    def delta(self, t: float, cells: int | None = None) -> float:
        """Upper bound of the hockey-stick divergence at exp(t), t of either sign."""
        if t < 0:
            # The two ends mirror each other: delta(-t) = 1 - exp(-t) + exp(-t) delta(t).
            return min(1.0, -math.expm1(t) + math.exp(t) * self.delta(-t, cells))
        if t >= self.budget:
            return 0.0
        if self.budget > LARGEST_BUDGET:
            return 1.0
        if cells is None:
            cells = min(_CELLS, max(_FEWEST_CELLS, _CELLS_PER_LEVEL * self.pair.blanket.size))
        # Realised probabilities are within a factor 1 + eta of the ideal ones on both sides of the ratio.
        eta = self.table_error
        ideal = float(self.masses @ excess(self.pair, t - 2 * math.log1p(eta), self.sizes, cells))
        # Values below 1e-308 would be 0.
        return min(1.0, (1 + eta) * ideal + 1e-300)

    def epsilon(self, delta: float, cells: int | None = None) -> float:
        """Smallest t found with delta(t) <= delta: the safe end of a bisection, at most the local budget.

        With ``cells`` it is a rough look, a thousandth too far.
        """

        def is_safe(t: float) -> bool:
            return self.delta(t, cells) <= delta

        if is_safe(0.0):
            return 0.0
        unsafe, safe = 0.0, self.budget
        if self.budget > _WIDE:
            # The bound need not fall with t as the truth does: begin with small ones.
            probes = [0.0, *np.geomspace(1e-3, self.budget, _PROBES).tolist()]
            unsafe, safe = next((pair for pair in pairwise(probes) if is_safe(pair[1])), (probes[-1], safe))
        tolerance = 1e-5 if cells is None else 1e-3
        return bisect(is_safe, unsafe, safe, steps=_STEPS, tolerance=tolerance, from_zero=0.25)


def hiding_curve(budget: float, others: Array, delta: float, levels: int | None) -> HidingCurve:
    """The best curve over the shapes of the blanket, for a victim among other honest users (there may be none).

    The curve is good at ``delta`` in (0, 1), and valid everywhere.
    """
    if budget > LARGEST_BUDGET:
        return shaped_curve(budget, np.empty(0), 0.0, levels)
    others, counts = _grouped(others)
    uniform = shaped_curve(budget, others, 0.0, levels, counts)
    # At the budget itself all shapes are alike.
    t = min(uniform.epsilon(delta, _COARSE_CELLS), 0.9995 * budget)

    def tried(shape: float) -> tuple[float, float, HidingCurve]:
        curve = shaped_curve(budget, others, shape, levels, counts)
        return curve.delta(t, _COARSE_CELLS), shape, curve

    candidates = [(uniform.delta(t, _COARSE_CELLS), 0.0, uniform)]
    candidates += [tried(shape) for shape in np.linspace(0, budget, _SHAPES)[1:].tolist()]
    centre, half = min(candidates)[1], budget / (_SHAPES - 1) / 2
    candidates += [tried(shape) for shape in (centre - half, centre + half) if 0 < shape < budget]
    return min(candidates)[2]


def shaped_curve(
    budget: float, others: Array, shape: float, levels: int | None, counts: Whole | None = None
) -> HidingCurve:
    """The curve under the blanket of one shape, in [0, budget]; ``counts`` says how many others have each budget."""
    if counts is None:
        others, counts = _grouped(others)
    echoes, masses = echo_law(echo_probabilities(others, shape, levels), counts)
    eta = 0.0 if levels is None else table_error(budget)
    # Where only the local guarantee is left, the pair is not looked at.
    pair = hidden_pair(min(max(budget, SMALLEST_BUDGET), LARGEST_BUDGET), shape, levels)
    return HidingCurve(budget, pair, echoes + 1, masses, eta)


def _grouped(budgets: Array) -> tuple[Array, Whole]:
    """A few thousand budgets that stand for many, each at least as large as those it stands for, and how many they are.

    A larger budget echoes less often, so this is on the safe side, and what follows does not grow with n.
    """
    if budgets.size <= _GROUPS:
        return budgets, np.ones(budgets.size, dtype=np.int64)
    ordered = np.sort(budgets)
    last = np.unique(np.linspace(0, budgets.size - 1, _GROUPS).astype(np.int64))
    return ordered[last], np.diff(last, prepend=-1)


def check_levels(levels: int | None) -> int | None:
    """Return levels if they are None (continuous) or in [2, 256], else raise."""
    return None if levels is None else whole("levels", levels, 2, MAX_LEVELS)


def check_delta(delta: float, name: str = "delta") -> float:
    """Return delta as a float if it lies in (0, 1), else raise."""
    return between(name, delta, 0, 1)
