"""Coded reports: levels 0 .. K - 1 that stand for evenly spaced values in [-C, C].

The coded twin of Clip-Laplace has p(k | j) proportional to exp(-e |k - j| / (K - 1)) (docs/reports.md). How it is
realised in integers is in `apes.mathematics.thresholds`; here are its real-valued probabilities, for the analyzer's
tables and the accountant, which agree with the integers to 2^-64 exp(e).
"""

import numpy as np

from apes.checks import positive, positive_array, whole, within
from apes.mathematics.arrays import F64, Bools
from apes.mathematics.thresholds import MAX_LEVELS


def level_values(levels: int, clip: float) -> F64:
    """Values z_k = C (2k - (K - 1)) / (K - 1) of the K levels, in the update's units."""
    levels = whole("levels", levels, 2, MAX_LEVELS)
    return positive("clip", clip) * (2 * np.arange(levels) - (levels - 1)) / (levels - 1)


def level_probabilities(budgets: F64, levels: int) -> F64:
    """Return p(k | j) as an array (budgets, j, k): each row of levels sums to 1.

    Args:
        budgets: Local budgets e, each in (0, inf).
        levels: K in [2, 256].
    """
    budgets = positive_array("budgets", budgets)
    levels = whole("levels", levels, 2, MAX_LEVELS)
    steps = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels))) / (levels - 1)
    weights = np.exp(-budgets[:, None, None] * steps)
    weights /= weights.sum(axis=2, keepdims=True)
    return weights


def levels_beyond(levels: int, threshold: float) -> Bools:
    """Which levels stand for a value of at least ``threshold`` times C in size; threshold in [0, 1]."""
    last = whole("levels", levels, 2, MAX_LEVELS) - 1
    return np.asarray(np.abs(2 * np.arange(levels) - last) >= within("threshold", threshold, 0, 1) * last)
