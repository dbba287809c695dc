"""The privacy blanket: Balle, Bell, Gascon, Nissim 2019, for any randomizer (generic), two inequalities.

The theorem: delta(t) <= E[(L_1 + ... + L_M)_+] / (gamma n), M ~ Bin(n, gamma), with L the privacy amplification
variable. Generic facts of an e0-LDP randomizer: gamma >= exp(-e0), gamma <= 1, E[L] = -a with a = exp(t) - 1,
  L <= b_plus = exp(e0) (1 - exp(t - 2 e0)),  range of L <= b = (exp(t) + 1) (exp(e0) - exp(-e0)),
  E[L^2] <= c = exp(e0) (exp(2 t) + 1) - 2 exp(-e0) exp(t - 2 e0).
All in logarithms, in units of exp(e0), so that large budgets do not overflow.
"""

import math

import numpy as np

from apes.accounting import Array
from apes.accounting.published.uniform import as_uniform
from apes.mathematics.binomial import binomial_cdf, binomial_pmf, binomial_sf, binomial_window
from apes.mathematics.search import first_below

# M outside the window has at most this share of gamma n delta as its mass; its part of the sum is added to delta.
_OUTSIDE = 1e-12
# Below this u, (1 + u) log(1 + u) - u cancels; its series starts u^2/2 - u^3/6 and u^2/2 (1 - u/3) is below it.
_SMALL = 1e-4
# What underflows counts as the smallest float, not as nothing.
_SMALLEST = 5e-324


def bbgn19_hoeffding(budgets: Array, delta: float) -> float:
    """Central epsilon of Balle, Bell, Gascon, Nissim 2019 (arXiv:1903.02837), generic, Hoeffding.

    delta(t) = b^2 / (4 a gamma n) (1 - gamma (1 - exp(-2 a^2 / b^2)))^n, gamma = exp(-e0), e0 = max(budgets),
    a = exp(t) - 1, b = (exp(t) + 1) (exp(e0) - exp(-e0)); the t at which it is delta, at most e0.
    Condition: none; where the formula gives nothing below e0, the answer is e0.
    published: not a guarantee for different budgets (docs/published-bounds.md).
    """
    n, epsilon0, delta = as_uniform(budgets, delta)

    def delta_at(t: float) -> float:
        if t <= 0:
            return math.inf
        log_a = t + math.log(-math.expm1(-t))
        log_b = t + math.log1p(math.exp(-t)) + epsilon0 + math.log(-math.expm1(-2 * epsilon0))
        miss = math.exp(-epsilon0) * math.expm1(-2 * math.exp(2 * (log_a - log_b)))
        return _exp(2 * log_b - math.log(4 * n) - log_a + epsilon0 + n * math.log1p(miss))

    return first_below(delta_at, delta, epsilon0)


def bbgn19_bennett(budgets: Array, delta: float) -> float:
    """Central epsilon of Balle, Bell, Gascon, Nissim 2019 (arXiv:1903.02837), generic, Bennett.

    delta(t) = 1 / (gamma n) E_M[1(M >= 1) b_plus / log(1 + u) exp(-M c / b_plus^2 phi(u))], M ~ Bin(n, gamma),
    u = a b_plus / c, phi(u) = (1 + u) log(1 + u) - u, the rest as at the top of the module; the t at which it is
    delta, at most e0 = max(budgets). The law of M is summed exactly.
    Condition: none; where the formula gives nothing below e0, the answer is e0.

    The factor b_plus / log(1 + u) is the one that Bennett's inequality gives (and the authors' program since its
    correction). Older copies of the program divide it by a M, which no inequality allows: docs/published-bounds.md.
    published: not a guarantee for different budgets (docs/published-bounds.md).
    """
    n, epsilon0, delta = as_uniform(budgets, delta)
    gamma = math.exp(-epsilon0)
    tail = _OUTSIDE * min(gamma * n * delta, 1.0) / 2
    low, high = (max(place, 1) for place in binomial_window(tail, n, gamma))
    counts = np.arange(low, high + 1, dtype=np.float64)
    weights = binomial_pmf(counts, n, gamma)
    # Without M = 0, whose probability is (1 - gamma)^n.
    below = float(binomial_cdf(low - 1, n, gamma) - (1 - gamma) ** n) if low > 1 else 0.0
    above = binomial_sf(high, n, gamma)

    def delta_at(t: float) -> float:
        if t <= 0:
            return math.inf
        factor, rate = _bennett(t, epsilon0)
        # The term falls with M: what lies below the window counts as M = 1, what lies above as its upper end.
        window = float(weights @ np.exp(-rate * counts))
        mass = window + max(below, 0.0) * math.exp(-rate) + above * math.exp(-rate * high)
        return _exp(factor - math.log(n) + 2 * epsilon0 + math.log(max(mass, _SMALLEST)))

    return first_below(delta_at, delta, epsilon0)


def _bennett(t: float, epsilon0: float) -> tuple[float, float]:
    """Return log(b_plus / log(1 + u)) - e0 and (c / b_plus^2) phi(u).

    In units of exp(e0) and, for c, of exp(e0 + 2 t): b_plus = exp(e0) B, c = exp(e0 + 2 t) V, so that
    u = (1 - exp(-t)) exp(-t) B / V and c / b_plus^2 = exp(2 t - e0) V / B^2.
    """
    top = -math.expm1(t - 2 * epsilon0)
    # 1 + exp(-2 t) - 2 exp(-t - 4 e0), as a sum of positive terms.
    second = math.expm1(-t) ** 2 - 2 * math.exp(-t) * math.expm1(-4 * epsilon0)
    u = -math.expm1(-t) * math.exp(-t) * top / second
    if u <= 0:  # underflow, beyond any useful budget: the bound says nothing
        return math.inf, 0.0
    phi = u * u / 2 * (1 - u / 3) if u < _SMALL else (1 + u) * math.log1p(u) - u
    return math.log(top / math.log1p(u)), _exp(2 * t - epsilon0) * second / top**2 * phi


def _exp(x: float) -> float:
    """Return exp(x), or inf where it overflows."""
    return math.exp(x) if x < 709 else math.inf
