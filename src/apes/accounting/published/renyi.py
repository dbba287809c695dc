"""Renyi differential privacy of the shuffle model: Girgis, Data, Diggavi, Suresh, Kairouz 2021."""

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from apes.accounting.published.inputs import as_uniform

# Orders beyond are not tried: a term of the sum each. A larger order could only lower the figure.
_LARGEST_ORDER = 2**18


def gddtk21(budgets: NDArray[np.float64], delta: float) -> float:
    """Central epsilon of Girgis, Data, Diggavi, Suresh, Kairouz 2021 (arXiv:2105.05180), general upper bound.

    For every whole order k >= 2, with e0 = max(budgets) and N = floor((n - 1) / (2 exp(e0))) + 1,
      R(k) = 1/(k - 1) log(1 + binom(k, 2) (exp(e0) - 1)^2 / (N exp(e0))
             + sum_{i=3..k} binom(k, i) i Gamma(i/2) ((exp(2 e0) - 1)^2 / (2 exp(2 e0) N))^(i/2)
             + exp(e0 k - (n - 1) / (8 exp(e0)))),
    turned into epsilon = R(k) + log(1 - 1/k) + log(1 / (k delta)) / (k - 1) (Canonne, Kamath, Steinke 2020,
    Proposition 12, arXiv:2004.00010v4), at the best order found; any order is valid.
    Condition: none; where no order gives less than e0, the answer is e0.

    published: not a guarantee for different budgets (docs/published-bounds.md).
    """
    n, epsilon0, delta = as_uniform(budgets, delta)

    def epsilon_at(order: int) -> float:
        conversion = math.log1p(-1 / order) - (math.log(order) + math.log(delta)) / (order - 1)
        return _log_moment(order, n, epsilon0) / (order - 1) + conversion

    # It falls, then rises: the best order is the first after which it no longer falls.
    best = 2 + bisect_left(range(2, _LARGEST_ORDER), True, key=lambda order: epsilon_at(order + 1) >= epsilon_at(order))
    return max(0.0, min(epsilon0, epsilon_at(best)))


def _log_moment(order: int, n: int, epsilon0: float) -> float:
    """Return the logarithm in R(order), each term in log space."""
    log_count = math.log(math.floor((n - 1) / 2 * math.exp(-epsilon0)) + 1)
    second = math.log(order) + math.log((order - 1) / 2) + epsilon0 + 2 * math.log(-math.expm1(-epsilon0)) - log_count
    tail = epsilon0 * order - (n - 1) / 8 * math.exp(-epsilon0)
    i = np.arange(3, order + 1, dtype=np.float64)
    log_base = 2 * (epsilon0 + math.log(-math.expm1(-2 * epsilon0))) - math.log(2) - log_count
    log_binomial = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
    higher = log_binomial + np.log(i) + gammaln(i / 2) + i / 2 * log_base
    return float(logsumexp(np.concatenate([[0.0, second, tail], higher])))
