"""What the reports of a population look like: tables from the multiset of budgets, in O(users).

A user's law of reports is an analytic function of the budget, so its mean over n users is a sum over a few dozen
Chebyshev nodes with weights that the budgets determine (interpolate the function, add up): O(n) to find the weights,
then independent of n.

A channel is an array (levels j, levels k): the probability, for a user picked at random, of reporting level k on an
input of level j.
"""

from functools import lru_cache

import numpy as np

from apes.mathematics.arrays import F64
from apes.mathematics.laws import ClipLaplace
from apes.mathematics.levels import level_probabilities

Channel = F64
_GRID = 1001


def budget_quadrature(budgets: F64) -> tuple[F64, F64]:
    """Nodes and weights with sum_m weight_m f(node_m) = mean of f over the budgets.

    Exact for up to 64 different budgets; else by interpolation at Chebyshev nodes, with an error below 1e-9 for the
    functions used here (their nearest singularities lie at +-2 pi i; the tests measure it).
    """
    different, counts = np.unique(budgets, return_counts=True)
    if different.size <= 64:
        return different, counts / budgets.size
    low, high = float(different[0]), float(different[-1])
    m = 24 + int(np.ceil(4 * (high - low)))
    angles = (2 * np.arange(m) + 1) * np.pi / (2 * m)
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(angles)
    # Mean of each Chebyshev polynomial over the budgets, by its recurrence; then weights of the nodes' values.
    scaled = np.clip((2 * budgets - (low + high)) / (high - low), -1, 1)
    moments = np.empty(m)
    previous, current = np.ones_like(scaled), scaled
    for degree in range(m):
        moments[degree] = previous.mean()
        previous, current = current, 2 * scaled * current - previous
    basis = np.cos(np.outer(np.arange(m), angles)) * 2 / m
    basis[0] /= 2
    return nodes, moments @ basis


def pooled_channel(budgets: F64, levels: int) -> Channel:
    """The channel of coded Clip-Laplace for a population. Kept for the budgets asked last."""
    return _pooled_channel(np.sort(budgets).tobytes(), levels)


@lru_cache(maxsize=4)
def _pooled_channel(sorted_budgets: bytes, levels: int) -> Channel:
    nodes, weights = budget_quadrature(np.frombuffer(sorted_budgets))
    channel = np.zeros((levels, levels))
    # A few nodes at a time: a wide range of budgets has thousands, and each needs levels x levels numbers.
    for start in range(0, nodes.size, 16):
        part = slice(start, start + 16)
        channel += np.tensordot(weights[part], level_probabilities(nodes[part], levels), axes=1)
    return channel


def padded(channel: Channel, kept: F64, padding: F64) -> Channel:
    """The channel after a sparsifier that keeps level k with probability kept_k and draws the others from a law."""
    return np.asarray(channel * kept + np.outer(1 - channel @ kept, padding))


def law_at_zero(channel: Channel) -> F64:
    """Law of a report on input 0, which lies between two levels if their number is even."""
    levels = channel.shape[0]
    return np.asarray((channel[(levels - 1) // 2] + channel[levels // 2]) / 2)


def top_levels(channel: Channel, fraction: float) -> F64:
    """Probability that a report of each level is among the largest ``fraction`` of a user's reports.

    Most coordinates of an update are near zero, so the cut is taken where the pooled law at input 0 leaves
    ``fraction`` outside it: an approximation, which costs accuracy where it is off, never privacy.
    """
    levels = channel.shape[0]
    size = np.abs(2 * np.arange(levels) - (levels - 1))
    zero = law_at_zero(channel)
    kept = np.zeros(levels)
    left = fraction
    for magnitude in np.unique(size)[::-1]:
        at = size == magnitude
        mass = float(zero[at].sum())
        kept[at] = 1.0 if left >= mass else left / mass
        left = max(0.0, left - mass)
    return kept


def continuous_response(budgets: F64, clip: float) -> tuple[F64, F64, float]:
    """Inputs in [-C, C], expected mean report at each, variance of a report at 0: continuous Clip-Laplace."""
    nodes, weights = budget_quadrature(budgets)
    inputs = np.linspace(-clip, clip, _GRID)
    inputs[_GRID // 2] = 0.0
    expected = ClipLaplace(inputs[:, None], nodes[None, :], clip).mean() @ weights
    variance = float(ClipLaplace(np.zeros(nodes.size), nodes, clip).var() @ weights)
    return inputs, expected, variance
