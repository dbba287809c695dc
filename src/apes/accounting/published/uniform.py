"""Bounds for equal budgets: Erlingsson et al. 2019, the first of all, and Girgis et al. 2021, by Renyi divergences."""

import math
from bisect import bisect_left

import numpy as np
from scipy.special import gammaln, logsumexp

from apes.accounting import Array
from apes.accounting.certificate.curve import check_delta
from apes.checks import positive_array
from apes.errors import RegimeError

# Orders beyond are not tried: a term of the sum each. A larger order could only lower the figure.
_LARGEST_ORDER = 2**18


def as_uniform(budgets: Array, delta: float) -> tuple[int, float, float]:
    """Give everybody the largest budget, as the paper does with its baselines: n, epsilon0 (nats) and delta."""
    delta, array = check_delta(delta), positive_array("budgets", budgets)
    return array.size, float(array.max()), delta


def erlingsson19(budgets: Array, delta: float) -> float:
    """Central epsilon of Erlingsson, Feldman, Mironov, Raghunathan, Talwar, Thakurta 2019 (SODA), Theorem 7.

    epsilon = 12 e0 sqrt(log(1/delta) / n), with e0 = max(budgets): the last and simplest form of the theorem
    (arXiv:1811.12469v2).
    Condition: e0 <= 1/2, n >= 1000, delta <= 1/100, and the answer does not exceed e0 (it would say nothing).
    published: not a guarantee for different budgets (docs/published-bounds.md).
    """
    n, epsilon0, delta = as_uniform(budgets, delta)
    if not epsilon0 <= 0.5:
        raise RegimeError(f"erlingsson19 needs epsilon0 <= 0.5, got {epsilon0:g}")
    if not n >= 1000:
        raise RegimeError(f"erlingsson19 needs n >= 1000, got {n}")
    if not delta <= 0.01:
        raise RegimeError(f"erlingsson19 needs delta <= 0.01, got {delta:g}")
    epsilon = 12 * epsilon0 * math.sqrt(-math.log(delta) / n)
    if not epsilon <= epsilon0:
        raise RegimeError(f"erlingsson19 needs epsilon <= epsilon0, got {epsilon:g} > {epsilon0:g} at n = {n}")
    return epsilon


def gddtk21(budgets: Array, delta: float) -> float:
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
