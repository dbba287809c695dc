"""Echo of Neighbors (EoN), the paper's own bound for different budgets: closed form, and exact divergence."""

import math

import numpy as np

from apes.accounting import Array
from apes.accounting.published.clones import clone_epsilon, closed_form
from apes.accounting.published.uniform import as_uniform
from apes.checks import positive_array
from apes.errors import RegimeError


def mean_echoes(budgets: Array) -> float:
    """Return P = (1/n) sum over users i other than user 1, and over all j, of the paper's p_ij; O(n log n).

    p_ij = (e_i / e_j) (1 - exp(-e_j)) / (1 - exp(-e_i)) exp(-max(e_i, e_j)) (Theorem 4 of the paper).
    User 1 is the one with the largest budget, the worst case of Theorem 4; as a j she stays in the sum.
    P is the mean number of echoes, in [0, n - 1]; for equal budgets e it is (n - 1) exp(-e).
    """
    e = np.sort(positive_array("budgets", budgets))
    # With g(e) = (1 - exp(-e)) / e and e sorted: p_ij = g_j / g_i exp(-e_i) for j <= i, g_j exp(-e_j) / g_i beyond.
    g = -np.expm1(-e) / e
    up_to = np.exp(-e) * np.cumsum(g)
    damped = g * np.exp(-e)
    beyond = np.cumsum(damped[::-1])[::-1] - damped
    rows = (up_to + beyond) / g
    return min(float(rows[:-1].sum()) / e.size, e.size - 1.0)


def eon_closed(budgets: Array, delta: float) -> float:
    """Central epsilon of Liu, Zhao, Xiong, Liu, Chen 2023 (AAAI; Echo of Neighbors), Theorem 4 and its Lemma.

    epsilon = log(1 + tanh(e*/2) (8 sqrt(log(4/delta_s) / P) + 8 / P)), e* = max(budgets), P = mean_echoes, and delta is
    the paper's delta_s: the theorem then claims delta_c = eon_delta(budgets, delta_s).
    Condition: P >= 16 log(4/delta_s). User 1 is the user with the largest budget.
    published: not a guarantee for different budgets (docs/published-bounds.md).

    >>> round(eon_closed(np.linspace(0.05, 1, 10_000), 1e-8), 4)
    0.2051
    """
    _, largest, delta = as_uniform(budgets, delta)
    echoes, least = mean_echoes(budgets), 16 * (math.log(4) - math.log(delta))
    if not echoes >= least:
        raise RegimeError(f"eon_closed needs P >= 16 log(4/delta) = {least:g} at delta = {delta:g}, got P = {echoes:g}")
    return closed_form(echoes, largest, delta)


def eon_numeric(budgets: Array, delta: float) -> float:
    """Central epsilon of the pair in the proof of Theorem 4 (Liu et al. 2023), exactly; what the paper's tables show.

    The clone pair of fmt22_numeric with a victim of budget e* = max(budgets) and |T| ~ Bin(n - 1, P / (n - 1))
    echoes, P = mean_echoes: each of the n - 1 other users is an echo at most once. The paper prints
    |T| ~ sum over i, j of Bern(p_ij / n) instead, n (n - 1) trials of the same mean: 0.03 % higher for Uniform2.
    Equal budgets give fmt22_numeric; delta is that of the divergence, no factor tanh(e*/2) is taken off.
    Condition: none; never above e*.
    published: not a guarantee for different budgets (docs/published-bounds.md).

    >>> round(eon_numeric(np.linspace(0.05, 1, 10_000), 1e-8), 4)
    0.0571
    """
    n, largest, delta = as_uniform(budgets, delta)
    return clone_epsilon(n - 1, mean_echoes(budgets) / max(n - 1, 1), largest, delta)


def eon_delta(budgets: Array, delta: float) -> float:
    """Return delta_c = tanh(max(budgets) / 2) delta_s, the delta that Theorem 4 claims for delta_s = delta.

    >>> float(f"{eon_delta(np.array([0.05, 1.0]), 1e-8):.3g}")
    4.62e-09
    """
    _, largest, delta = as_uniform(budgets, delta)
    return math.tanh(largest / 2) * delta
