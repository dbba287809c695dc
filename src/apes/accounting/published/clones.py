"""Hiding among the clones: Feldman, McMillan, Talwar 2022, closed form and exact divergence of its pair."""

import math
from collections.abc import Callable

import numpy as np

from apes.accounting import Array
from apes.accounting.published.uniform import as_uniform
from apes.errors import RegimeError
from apes.mathematics.binomial import binomial_cdf, binomial_pmf, binomial_sf, binomial_window
from apes.mathematics.search import first_below

# Numbers of clones outside the window have at most this share of delta as their mass, which is added to delta.
_OUTSIDE = 1e-9
# Allowance for the relative rounding of binomial laws (below 1e-11 up to a million clones, see the tests):
# each positive term is raised by it, each negative one lowered, each weight raised.
_ROUNDING = 1e-10
# exp(t) - 1 multiplies a probability that is 0 long before t gets here; keeps the product off inf * 0.
_LARGEST_EXPONENT = 700.0
# Numbers of clones from which the epsilon is guessed, before all of them are counted.
_SAMPLES = 2000


def fmt22_closed(budgets: Array, delta: float) -> float:
    """Central epsilon of Feldman, McMillan, Talwar 2022, Theorem 3.1 (arXiv:2012.12803); Eq. 2 of the paper.

    epsilon = log(1 + tanh(e0/2) (8 sqrt(exp(e0) log(4/delta) / n) + 8 exp(e0) / n)), e0 = max(budgets);
    tanh(e0/2) = (exp(e0) - 1) / (exp(e0) + 1).
    Condition: e0 <= log(n / (16 log(2/delta))).
    published: not a guarantee for different budgets (docs/published-bounds.md).

    >>> round(fmt22_closed(np.linspace(0.05, 1, 10_000), 1e-8), 4)
    0.2408
    """
    n, epsilon0, delta = as_uniform(budgets, delta)
    limit = math.log(n) - math.log(16 * (math.log(2) - math.log(delta)))
    if not epsilon0 <= limit:
        got = f"got {epsilon0:g} at n = {n}, delta = {delta:g}"
        raise RegimeError(f"fmt22_closed needs epsilon0 <= log(n / (16 log(2/delta))) = {limit:g}, {got}")
    return closed_form(n * math.exp(-epsilon0), epsilon0, delta)


def closed_form(echoes: float, epsilon0: float, delta: float) -> float:
    """Return log(1 + tanh(epsilon0/2) (8 sqrt(log(4/delta) / m) + 8 / m)) for m echoes (or clones) on average."""
    spread = math.sqrt((math.log(4) - math.log(delta)) / echoes)
    return math.log1p(math.tanh(epsilon0 / 2) * (8 * spread + 8 / echoes))


def fmt22_numeric(budgets: Array, delta: float) -> float:
    """Central epsilon of the clone pair of Feldman, McMillan, Talwar 2022, section 3 (arXiv:2012.12803), exactly.

    With e0 = max(budgets), C ~ Bin(n - 1, exp(-e0)), A ~ Bin(C, 1/2), D ~ Bern(exp(e0) / (exp(e0) + 1)): the
    smallest epsilon whose hockey-stick divergence between (A + D, C - A + 1 - D) and (A + 1 - D, C - A + D) is
    <= delta. The pair is symmetric, one direction is enough.
    Condition: none; never above e0.
    published: not a guarantee for different budgets (docs/published-bounds.md).

    >>> round(fmt22_numeric(np.linspace(0.05, 1, 10_000), 1e-8), 4)
    0.0689
    """
    n, epsilon0, delta = as_uniform(budgets, delta)
    return clone_epsilon(n - 1, math.exp(-epsilon0), epsilon0, delta)


def clone_epsilon(trials: int, probability: float, epsilon0: float, delta: float) -> float:
    """Return the epsilon of the clone pair with Bin(trials, probability) clones and a victim of budget epsilon0."""
    guess = first_below(clone_curve(trials, probability, epsilon0, delta, _SAMPLES), delta, epsilon0)
    return first_below(clone_curve(trials, probability, epsilon0, delta), delta, epsilon0, guess)


def clone_curve(
    trials: int, probability: float, epsilon0: float, delta: float, samples: int | None = None
) -> Callable[[float], float]:
    """Return t -> hockey-stick divergence of the clone pair at exp(t), at most 1e-9 delta and rounding too high.

    With ``samples``, an estimate from about so many numbers of clones, which each stand for their neighbours.
    """
    tail = _OUTSIDE * delta / 2
    low, high = binomial_window(tail, trials, probability)
    step = 1 if samples is None else max(1, (high + 1 - low) // samples)
    clones = np.arange(low, high + 1, step, dtype=np.float64)
    weights = binomial_pmf(clones, trials, probability) * (1 + _ROUNDING)
    if samples is not None:
        weights /= weights.sum()
    outside = float(binomial_cdf(low - 1, trials, probability)) + binomial_sf(high, trials, probability)

    def delta_at(t: float) -> float:
        return float(weights @ pair_divergence(clones, t, epsilon0)) + outside

    return delta_at


def pair_divergence(clones: Array, t: float, epsilon0: float) -> Array:
    """Return the hockey-stick divergence at exp(t) of the pair given each number c of clones, rounded up.

    Let q = exp(e0) / (exp(e0) + 1), b and B the pmf and cdf of Bin(c, 1/2), and y = c - A + 1 - D the second
    count. Given c, P(y) = q b(y) + (1 - q) b(y - 1) and Q(y) = (1 - q) b(y) + q b(y - 1): b is symmetric.
    Since b(y - 1) / b(y) = y / (c + 1 - y), P > exp(t) Q just if y < s (c + 1), where
      s = (exp(-t) - exp(-e0)) / ((1 - exp(-e0)) (1 + exp(-t))),
    and with m the largest such y, summing over y <= m,
      P - exp(t) Q = q (1 - exp(t - e0)) b(m) - (exp(t) - 1) B(m - 1).
    """
    if t >= epsilon0:
        return np.zeros_like(clones)
    share = math.exp(-t) * math.expm1(t - epsilon0) / (math.expm1(-epsilon0) * (1 + math.exp(-t)))
    # s > 0, so y = 0 always counts, even where exp(-t) underflows.
    largest = np.maximum(np.ceil(share * (clones + 1)) - 1, 0.0)
    gain = -math.expm1(t - epsilon0) / (1 + math.exp(-epsilon0)) * binomial_pmf(largest, clones, 0.5)
    loss = math.expm1(min(t, _LARGEST_EXPONENT)) * binomial_cdf(largest - 1, clones, 0.5)
    return np.maximum(gain * (1 + _ROUNDING) - loss * (1 - _ROUNDING), 0.0)
