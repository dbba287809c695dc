"""What a mean report is expected to be: tables from the multiset of budgets, in O(users).

A user's expected report is an analytic function of the budget, so its mean over n users is a sum over a few dozen
Chebyshev nodes with weights that the budgets determine (interpolation of the function, summed): O(n) to find the
weights, and then independent of n.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from apes.codes import level_probabilities, level_values
from apes.laws import ClipLaplace

_GRID = 1001


@dataclass(frozen=True, eq=False)
class Response:
    """Mean report as a function of a common input x, and its noise.

    Attributes:
        inputs: Increasing grid of inputs in [-C, C].
        expected: Expected mean report at each, increasing and odd.
        variance: Variance of one user's report at input 0, averaged over users.
    """

    inputs: NDArray[np.float64]
    expected: NDArray[np.float64]
    variance: float

    @property
    def slope(self) -> float:
        """Derivative of the expected report at input 0."""
        middle = self.inputs.size // 2
        low, high = middle - 1, middle + 1 - (1 - self.inputs.size % 2)
        return float((self.expected[high] - self.expected[low]) / (self.inputs[high] - self.inputs[low]))


def budget_quadrature(budgets: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
    # Mean of the Chebyshev polynomials over the budgets, then the weights of the interpolant's values.
    scaled = np.clip((2 * budgets - (low + high)) / (high - low), -1, 1)
    moments = np.empty(m)
    previous, current = np.ones_like(scaled), scaled
    for degree in range(m):
        moments[degree] = previous.mean()
        previous, current = current, 2 * scaled * current - previous
    basis = np.cos(np.outer(np.arange(m), angles)) * 2 / m
    basis[0] /= 2
    return nodes, moments @ basis


def pooled_channel(budgets: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Mean over the users of p(k | j): array (levels j, levels k). Kept for the budgets asked last."""
    return _pooled_channel(np.sort(budgets).tobytes(), levels)


@lru_cache(maxsize=4)
def _pooled_channel(sorted_budgets: bytes, levels: int) -> NDArray[np.float64]:
    nodes, weights = budget_quadrature(np.frombuffer(sorted_budgets))
    return np.asarray(np.tensordot(weights, level_probabilities(nodes, levels), axes=1))


def coded_response(channel: NDArray[np.float64], clip: float, kept: NDArray[np.float64], pad: float) -> Response:
    """Response of coded reports that pass through a sparsifier.

    Args:
        channel: p(k | j) pooled over the users.
        clip: C.
        kept: Probability that a report of level k is kept; the others are replaced by symmetric padding.
        pad: Variance of a padding report.
    """
    values = level_values(channel.shape[0], clip)
    surviving = channel * kept
    expected = surviving @ values
    zero = surviving[[(values.size - 1) // 2, values.size // 2]].mean(axis=0)
    variance = float(zero @ values**2 + (1 - zero.sum()) * pad)
    return Response(values, expected, variance)


def continuous_response(budgets: NDArray[np.float64], clip: float) -> Response:
    """Response of continuous Clip-Laplace reports."""
    return _continuous_response(np.sort(budgets).tobytes(), clip)


@lru_cache(maxsize=4)
def _continuous_response(sorted_budgets: bytes, clip: float) -> Response:
    nodes, weights = budget_quadrature(np.frombuffer(sorted_budgets))
    inputs = np.linspace(-clip, clip, _GRID)
    inputs[_GRID // 2] = 0.0
    expected = ClipLaplace(inputs[:, None], nodes[None, :], clip).mean() @ weights
    variance = float(ClipLaplace(np.zeros(nodes.size), nodes, clip).var() @ weights)
    return Response(inputs, expected, variance)
