"""The first bound of amplification by shuffling: Erlingsson et al. 2019."""

import math

import numpy as np
from numpy.typing import NDArray

from apes.accounting.published.inputs import as_uniform
from apes.errors import RegimeError

_LARGEST_EPSILON0 = 0.5
_FEWEST_USERS = 1000
_LARGEST_DELTA = 0.01


def erlingsson19(budgets: NDArray[np.float64], delta: float) -> float:
    """Central epsilon of Erlingsson, Feldman, Mironov, Raghunathan, Talwar, Thakurta 2019 (SODA), Theorem 7.

    epsilon = 12 e0 sqrt(log(1/delta) / n), with e0 = max(budgets): the last and simplest form of the theorem
    (arXiv:1811.12469v2).
    Condition: e0 <= 1/2, n >= 1000, delta <= 1/100, and the answer does not exceed e0 (it would say nothing).

    published: not a guarantee for different budgets (docs/published-bounds.md).
    """
    n, epsilon0, delta = as_uniform(budgets, delta)
    if not epsilon0 <= _LARGEST_EPSILON0:
        raise RegimeError(f"erlingsson19 needs epsilon0 <= {_LARGEST_EPSILON0}, got {epsilon0:g}")
    if not n >= _FEWEST_USERS:
        raise RegimeError(f"erlingsson19 needs n >= {_FEWEST_USERS}, got {n}")
    if not delta <= _LARGEST_DELTA:
        raise RegimeError(f"erlingsson19 needs delta <= {_LARGEST_DELTA}, got {delta:g}")
    epsilon = 12 * epsilon0 * math.sqrt(-math.log(delta) / n)
    if not epsilon <= epsilon0:
        raise RegimeError(f"erlingsson19 needs epsilon <= epsilon0, got {epsilon:g} > {epsilon0:g} at n = {n}")
    return epsilon
