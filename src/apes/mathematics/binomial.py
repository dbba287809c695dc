"""Binomial laws, to twelve digits up to a million trials; scipy.stats takes longer to import than these to compute.

Bin(n, p) at k: sqrt(n / (2 pi k (n - k))) exp(s(n) - s(k) - s(n - k) - d(k, n p) - d(n - k, n (1 - p))), s(n) being
Stirling's error and d(x, m) = x log(x / m) + m - x (Loader 2000, "Fast and accurate computation of binomial
probabilities"). Numbers of trials and successes are whole, as float64.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betainc, betaincc, gammaln, xlog1py, xlogy

from apes.mathematics.arrays import F64

# From here on four terms of Stirling's series are right to 1e-14.
_LARGE = 16.0
_TERMS = 12


def binomial_pmf(successes: F64, trials: F64 | float, p: float) -> F64:
    """Probability of so many successes, p in [0, 1]."""
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if p in (0, 1):
        return np.asarray(k == n * p, dtype=np.float64)
    inside = (k > 0) & (k < n)
    # Any numbers where there is nothing to divide by.
    x, m = np.where(inside, k, 1.0), np.where(inside, n, 2.0)
    log = _stirling_error(m) - _stirling_error(x) - _stirling_error(m - x) - _deviance(x, m * p)
    log += 0.5 * np.log(m / (2 * math.pi * x * (m - x))) - _deviance(m - x, m * (1 - p))
    ends = np.where((k == 0) | (k == n), np.exp(xlogy(k, p) + xlog1py(n - k, -p)), 0.0)
    return np.asarray(np.where(inside, np.exp(log), ends))


def binomial_cdf(successes: F64 | float, trials: F64 | float, p: float) -> F64:
    """Probability of at most so many successes."""
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    inside = (k >= 0) & (k < n)
    value = betaincc(np.where(inside, k + 1, 1.0), np.where(inside, n - k, 1.0), p)
    return np.asarray(np.where(inside, value, (k >= n).astype(np.float64)))


def binomial_sf(successes: int, trials: int, p: float) -> float:
    """Probability of more than so many successes."""
    return float(betainc(successes + 1, trials - successes, p)) if 0 <= successes < trials else float(successes < 0)


def binomial_window(tail: float, trials: int, p: float) -> tuple[int, int]:
    """The least and the most successes beyond which lies less than ``tail`` of the probability, on either side."""
    low = _first(lambda k: float(binomial_cdf(k, trials, p)) >= tail, trials)
    return low, _first(lambda k: binomial_sf(k, trials, p) <= tail, trials)


def _first(holds: Callable[[int], bool], last: int) -> int:
    """The first whole number in [0, last] from which on it holds; it holds for the last."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _stirling_error(n: F64) -> F64:
    """Log n! less Stirling's formula, n >= 1."""
    exact = gammaln(n + 1) - (n + 0.5) * np.log(n) + n - 0.5 * math.log(2 * math.pi)
    square = n * n
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / n
    return np.asarray(np.where(n < _LARGE, exact, series))


def _deviance(x: F64, m: F64) -> F64:
    """X log(x / m) + m - x, without cancellation where x is near m."""
    v = (x - m) / (x + m)
    series, term = (x - m) * v, 2 * x * v
    for j in range(1, _TERMS):
        term = term * v * v
        series = series + term / (2 * j + 1)
    return np.asarray(np.where(np.abs(v) < 0.1, series, x * np.log(x / m) + m - x))
