"""The law of the number of echoes is stochastically below the exact one."""

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from apes.accounting.certificate.blanket import echo_law

# Error of the oracle's own sums.
ORACLE = 1e-13


def _exact_law(gammas):
    law = np.ones(1)
    for gamma in gammas:
        law = np.append(law * (1 - gamma), 0) + np.append(0, law * gamma)
    return law


def _lower_tails(values, masses, top):
    return np.array([masses[values <= k].sum() for k in range(top + 1)])


def _check(gammas):
    values, masses = echo_law(gammas)
    assert values.min() >= 0
    assert (masses >= 0).all()
    assert masses.sum() >= 1 - 1e-15
    exact = np.cumsum(_exact_law(gammas))
    bound = _lower_tails(values, masses, gammas.size)
    assert (bound >= exact * (1 - ORACLE) - 1e-16).all()
    return values, masses


@pytest.mark.parametrize("n", [1, 2, 3, 10, 60, 300])
@pytest.mark.parametrize("seed", range(4))
def test_below_the_exact_law_for_mixed_probabilities(n, seed):
    rng = np.random.default_rng([n, seed])
    gammas = rng.beta(*[(1, 1), (0.1, 0.1), (0.2, 5), (5, 0.2)][seed], size=n)
    gammas[rng.random(n) < 0.1] = 0.0
    gammas[rng.random(n) < 0.1] = 1.0
    _check(gammas)


@pytest.mark.parametrize("gamma", [0.0, 1e-9, 0.01, 0.25, 0.5, 0.75, 0.99, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("n", [1, 2, 17, 300])
def test_below_the_exact_law_for_equal_probabilities(n, gamma):
    _check(np.full(n, gamma))


def test_many_different_probabilities_are_rounded_down():
    """More than are told apart: rounded up, each by half a step, they would be caught."""
    gammas = np.sort(np.random.default_rng(3).uniform(0, 1, 3000))
    _check(gammas)
    exact = np.cumsum(_exact_law(gammas))
    values, masses = echo_law(np.minimum(gammas + 1 / 256, 1.0))
    assert (_lower_tails(values, masses, gammas.size) < exact * (1 - ORACLE) - 1e-16).any()


def test_nobody_else():
    values, masses = echo_law(np.empty(0))
    assert values.tolist() == [0]
    assert masses.tolist() == [1.0]


@pytest.mark.parametrize("gamma", [0.01, 0.3, 0.5, 0.9, 0.975])
def test_below_the_binomial_law_of_many(gamma):
    n = 100_000
    values, masses = echo_law(np.full(n, gamma))
    # Between two values the bound does not change, so it is enough to look just below each of them.
    ends = np.append(values[1:] - 1, n)
    exact = binom.cdf(ends, n, gamma)
    assert (np.cumsum(masses) >= exact * (1 - 1e-10)).all()


def test_close_to_the_binomial_law():
    n, gamma = 100_000, 0.6
    values, masses = echo_law(np.full(n, gamma))
    deviation = (n * gamma * (1 - gamma)) ** 0.5
    assert masses @ values / masses.sum() >= n * gamma - deviation
    # What is set aside for rounding grows with the mean.
    assert masses.sum() <= 1 + 1e-5


def _binomial_cdf(k, n, gamma):
    with mpmath.workdps(40):
        q = mpmath.mpf(gamma)
        term = total = (1 - q) ** n
        for i in range(1, k + 1):
            term *= (n - i + 1) * q / (i * (1 - q))
            total += term
        return total


@pytest.mark.parametrize(
    ("n", "gamma"), [(100_000, 4.5e-4), pytest.param(1_000_000, 1e-5, marks=pytest.mark.exhaustive)]
)
def test_lower_tail_of_rare_echoes_to_the_last_digit(n, gamma):
    # Many users, few echoes: rounding of the transform must be covered by what is added.
    values, masses = echo_law(np.full(n, gamma))
    sums = np.cumsum(masses)
    for value, bound in zip(values[1:] - 1, sums, strict=False):
        if value >= 0:
            assert mpmath.mpf(float(bound)) >= _binomial_cdf(int(value), n, gamma) * (1 - mpmath.mpf(10) ** -15)
