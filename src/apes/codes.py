"""Coded reports: levels 0 .. K - 1 that stand for evenly spaced values in [-C, C].

The coded twin of Clip-Laplace has p(k | j) proportional to exp(-e |k - j| / (K - 1)) (theory, section 8).
How it is realised in integers is in `apes.thresholds`; here are its real-valued probabilities, for the
analyzer's tables and the accountant, which agree with the integers to 2^-64 exp(e).
"""

import numpy as np
from numpy.typing import NDArray

from apes.parameters import positive, positive_array, whole
from apes.thresholds import MAX_LEVELS


def level_values(levels: int, clip: float) -> NDArray[np.float64]:
    """Values z_k = C (2k - (K - 1)) / (K - 1) of the K levels, in the update's units."""
    levels = whole("levels", levels, 2, MAX_LEVELS)
    return positive("clip", clip) * (2 * np.arange(levels) - (levels - 1)) / (levels - 1)


def level_probabilities(budgets: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
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
