"""The curve of one bit among other users' bits, without a blanket: reports on two levels (docs/proofs.md, 15).

W is the number of ones among the others, T_k = P(W >= k), and beta(l) the largest T_{k-1} - l T_k over all k and all
data of the others (`lines`). For a victim of budget e the best test is a threshold, since W is log-concave, and the
divergence at exp(t) is at most A beta(D / A), pi = 1 / (1 + exp(-e)), A = pi - exp(t) (1 - pi), D = exp(t) pi -
(1 - pi).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.blanket import table_error
from apes.accounting.certificate.curve import PrivacyCurve, hiding_curve
from apes.accounting.certificate.lines import Lines, lines_above
from apes.accounting.certificate.squads import lines_above_many
from apes.accounting.composition.lattice import UNIT
from apes.mathematics.search import bisect

MOST_SINGLE = 30_000
"""Up to here the others are put in one by one; more are put in by squads, which takes a second at MOST_USERS."""
MOST_USERS = 300_000
"""More others than this are hidden by a blanket."""
# Whoever reports more openly hides nobody: a flip once in 10^8 reports.
_OPEN = 18.0
# Squads start from the fairest bits: if even those tell much, their table is loose far out.
_TOO_OPEN = 3.0
# Different budgets among the others; each is raised to the next one.
_GROUPS = 64


@dataclass(frozen=True, eq=False)
class TwoLevelCurve:
    """delta as a function of t for a victim's bit among others': an upper bound of the true divergence."""

    budget: float
    lines: Lines

    def delta(self, t: float, cells: int | None = None) -> float:
        """Upper bound of the hockey-stick divergence at exp(t), t of either sign; ``cells`` is not needed here."""
        if t < 0:
            # The two ends mirror each other: delta(-t) = 1 - exp(-t) + exp(-t) delta(t).
            return min(1.0, -math.expm1(t) + math.exp(t) * self.delta(-t))
        if t >= self.budget:
            return 0.0
        budget = float(_realised(np.array([self.budget]))[0])
        pi = 1 / (1 + math.exp(-budget))
        ahead = -math.expm1(t - budget)
        # A = pi ahead. Where exp(t) might overflow, a smaller slope is on the safe side.
        slope = math.exp(min(t, 300.0)) * -math.expm1(-budget - t) / ahead
        return min(1.0, pi * ahead * self.lines.at(slope * (1 - 8 * UNIT)) * (1 + 32 * UNIT) + 1e-300)

    def epsilon(self, delta: float, cells: int | None = None) -> float:
        """Smallest t found with delta(t) <= delta: the safe end of a bisection, at most the local budget."""
        if self.delta(0.0) <= delta:
            return 0.0
        return bisect(lambda t: self.delta(t) <= delta, 0.0, self.budget, steps=60, tolerance=1e-6, from_zero=0.25)


@dataclass(frozen=True, eq=False)
class LowerCurve:
    """The smaller one of two bounds of the same divergence."""

    one: PrivacyCurve
    other: PrivacyCurve

    @property
    def budget(self) -> float:
        """What it costs locally, in nats."""
        return self.one.budget

    def delta(self, t: float, cells: int | None = None) -> float:
        """Upper bound of the hockey-stick divergence at exp(t), t of either sign."""
        return min(self.one.delta(t, cells), self.other.delta(t, cells))

    def epsilon(self, delta: float, cells: int | None = None) -> float:
        """The smaller of both."""
        return min(self.one.epsilon(delta, cells), self.other.epsilon(delta, cells))


def two_level_curve(budget: float, others: Array, delta: float) -> PrivacyCurve:
    """The curve of a victim among other honest users (there may be none), all reporting one bit per coordinate.

    Guarantee:
        For neighbours by replacement and whatever the data of the others. The others' budgets alone make the table,
        which is kept: curves for many victims cost little more than one.

    One by one the curve is wider than the best one by some 0.3 %, 1 % at MOST_SINGLE others; by squads 4 %. Beyond
    MOST_USERS others, or if there are too many for single ones and nearly all budgets are above 3, it is
    `hiding_curve` for two levels, good at ``delta`` in (0, 1), and wider by sqrt(mean(1 - tau^2) / mean(1 - tau)),
    tau = tanh(e_i / 2): 11 % for budgets even on [0.05, 1], 21 % if all are 1.
    """
    helpful = np.sort(_realised(others[others < _OPEN]))
    are_open = helpful.size > MOST_SINGLE and helpful[helpful.size // 12] > _TOO_OPEN
    if helpful.size > MOST_USERS or are_open:
        return hiding_curve(budget, others, delta, 2)
    return TwoLevelCurve(budget, _lines(helpful.tobytes()))


def _realised(budgets: Array) -> Array:
    """Budgets whose reports, on randomised inputs, are those of the coded mechanism, off by 1 + eta at most."""
    return np.asarray(budgets + 4 * table_error(0.0) * np.exp(np.minimum(budgets, 300.0)))


@lru_cache(maxsize=16)
def _lines(ordered: bytes) -> Lines:
    """The lines for others with these budgets (float64, ascending)."""
    # The smaller probability of a bit, from below: exactly that of a budget larger by a hair.
    budgets = np.frombuffer(ordered)
    flips = (1 - 8 * UNIT) / (1 + np.exp(budgets if budgets.size > MOST_SINGLE else _raised(budgets)))
    return lines_above_many(flips) if flips.size > MOST_SINGLE else lines_above(flips)


def _raised(budgets: Array) -> Array:
    """At most _GROUPS different budgets, none below the original (ascending): a larger one hides less."""
    last = np.unique(np.linspace(0, budgets.size - 1, min(_GROUPS, budgets.size)).astype(np.int64))
    return budgets[last[np.searchsorted(last, np.arange(budgets.size))]]
