"""Updates of bounded L2 norm on two levels: exact divergences of small populations against the theorems."""

import math
from itertools import product

import numpy as np
import pytest
from levels import sampled
from scipy.optimize import brentq
from scipy.stats import norm

from apes.accounting.certificate.joint_clipping import local_norm_epsilon, norm_shift
from apes.accounting.exposure import Exposure
from apes.errors import ParameterError

ORACLE = 1e-12
FACTORS = np.exp(np.concatenate([np.linspace(-3, 3, 121), np.linspace(-0.2, 0.2, 41)]))


def count_law(probabilities):
    law = np.ones(1)
    for p in probabilities:
        law = np.convolve(law, [1 - p, p])
    return law


def released(x, budget, crowd):
    """Law of the count: a bit of mean tanh(e / 2) x, x in [-1, 1], and the others' sum."""
    one = (1 + math.tanh(budget / 2) * x) / 2
    return np.convolve(crowd, [1 - one, one])


def divergences(first, second, factors=FACTORS):
    return np.array([np.maximum(first - factor * second, 0).sum() for factor in factors])


def gaussian(shift, factors=FACTORS):
    if shift == 0:
        return np.maximum(1 - factors, 0)
    t = np.log(factors)
    return norm.cdf(-t / shift + shift / 2) - factors * norm.cdf(-t / shift - shift / 2)


def least_shift(budget, crowd, delta_0):
    """Smallest c with h <= g_c + delta_0 for both directions of the two ends, at the factors that are looked at."""
    low, high = released(-1, budget, crowd), released(1, budget, crowd)
    curve = np.maximum(divergences(high, low), divergences(low, high))
    lower, upper = 0.0, 50.0
    for _ in range(60):
        middle = (lower + upper) / 2
        is_above = bool((curve <= gaussian(middle) + delta_0).all())
        lower, upper = (lower, middle) if is_above else (middle, upper)
    return upper


def pair_shift(c, z, x, y):
    """The theorem's c' for inputs x > y of one coordinate, in units of C."""
    eta = np.linspace(-c * z / 2, c * z / 2, 2001)
    # cosh(eta) + x sinh(eta), without cancellation.
    upper, lower = (((1 + side) * np.exp(eta) + (1 - side) * np.exp(-eta)) / 2 for side in (x, y))
    return c * (x - y) / 2 / (upper * lower).min()


def crowds(n):
    rng = np.random.default_rng(n)
    for budgets in (np.full(n, 0.5), rng.uniform(0.05, 2, n)):
        for ends in product((-1, 1), repeat=n):
            yield count_law((1 + np.tanh(budgets / 2) * ends) / 2)


def violations(shrink, *, budget=1.0, delta_0=1e-3, allowance=1e-4):
    """How often an exact divergence exceeds the bound of one coordinate, with c times ``shrink``."""
    places, count = np.linspace(-1, 1, 9), 0
    for n in range(5):
        for crowd in crowds(n):
            c = shrink * least_shift(budget, crowd, delta_0)
            z = c / 2 - norm.ppf(allowance / 4)
            for x, y in product(places, places):
                if x <= y:
                    continue
                bound = gaussian(pair_shift(c, z, x, y)) + delta_0 + allowance + ORACLE
                upper, lower = released(x, budget, crowd), released(y, budget, crowd)
                count += int((np.maximum(divergences(upper, lower), divergences(lower, upper)) > bound).any())
    return count


@pytest.mark.exhaustive
def test_one_coordinate():
    """The bound holds for all inputs and factors; with c 5 % too small it does not."""
    assert violations(1.0) == 0
    assert violations(0.95) > 0


def exact_formula(x, y, budget, crowd, factor):
    p, q = (1 + x) / 2, (1 + y) / 2
    if p <= factor * q:
        return 0.0
    at = (factor * (1 - q) - (1 - p)) / (p - factor * q)
    ends = released(1, budget, crowd), released(-1, budget, crowd)
    return (p - factor * q) * divergences(*ends, [at])[0]


def test_exact_formula():
    for crowd in crowds(3):
        for x, y, factor in product((-0.5, 0.2, 0.8, 1.0), (-1.0, -0.6, 0.1), (1.0, 1.05, 1.3, 2.0)):
            if x > y:
                exact = divergences(released(x, 1.5, crowd), released(y, 1.5, crowd), [factor])[0]
                assert exact == pytest.approx(exact_formula(x, y, 1.5, crowd, factor), abs=1e-14)


def product_divergences(xs, ys, budget, crowd):
    first, second = np.ones(1), np.ones(1)
    for x, y in zip(xs, ys, strict=True):
        first = np.outer(first, released(x, budget, crowd)).ravel()
        second = np.outer(second, released(y, budget, crowd)).ravel()
    return divergences(first, second)


def within_ball(rng, dimensions, ratio):
    """A point of norm ``ratio`` or, where the cube cuts it off, less."""
    point = rng.normal(size=dimensions) * (rng.random(dimensions) < 0.7)
    return np.clip(point * ratio / max(float(np.linalg.norm(point)), 1e-9), -1, 1)


@pytest.mark.parametrize(("ratio", "dimensions"), sampled(list(product([0.5, 1.0, 1.3], [1, 2, 3])), keep=3))
def test_whole_updates(dimensions, ratio):
    rng, delta_0, allowance = np.random.default_rng(dimensions), 1e-3, 1e-4
    for crowd in list(crowds(4))[::3]:
        mu = norm_shift(least_shift(1.0, crowd, delta_0), ratio, allowance)
        bound = gaussian(mu) + dimensions * (delta_0 + allowance) + ORACLE
        for _ in range(10):
            x, y = within_ball(rng, dimensions, ratio), within_ball(rng, dimensions, ratio)
            for pair in ((x, y), (x, -x)):
                assert (product_divergences(*pair, 1.0, crowd) <= bound).all()


# One coordinate needs all of c R / C; with two, what makes the tail of one coordinate long is averaged.
@pytest.mark.parametrize(("x", "shrink"), [([1.0], 0.95), ([0.6, 0.8], 0.92)])
def test_a_shift_too_small_is_caught(x, shrink):
    crowd = count_law(np.full(400, (1 + math.tanh(0.5)) / 2))
    delta_0, allowance = 1e-8, 1e-9
    c = least_shift(1.0, crowd, delta_0)
    exact = product_divergences(x, [-one for one in x], 1.0, crowd)
    slack = len(x) * (delta_0 + allowance) + ORACLE
    assert (exact <= gaussian(norm_shift(c, 1.0, allowance)) + slack).all()
    assert (exact > gaussian(norm_shift(shrink * c, 1.0, allowance)) + slack).any()


# The largest factor over a fine grid of v, at z of 4 Phi(-(z - c/2)) = 1e-12.
@pytest.mark.parametrize(("c", "factor"), [(0.0107, 1.00246), (0.031, 1.0157), (0.1, 1.0901), (20.0, math.sqrt(2))])
def test_golden_factor(c, factor):
    assert factor * (1 - 1e-4) <= norm_shift(c, 1.0, 1e-12) / c <= factor * (1 + 1e-4)
    assert norm_shift(c, 8.4, 1e-12) == pytest.approx(8.4 * norm_shift(c, 1.0, 1e-12))


@pytest.mark.parametrize("c", [0.003, 0.03, 0.3, 3.0])
def test_factor_covers_every_pair(c):
    """c' <= kappa_0 c sqrt(t^2 + v^2) for all x > y."""
    z, factor = c / 2 - norm.ppf(1e-9 / 4), norm_shift(c, 1.0, 1e-9) / c
    for x, y in product(np.linspace(-1, 1, 41), repeat=2):
        if x > y:
            assert pair_shift(c, z, x, y) <= factor * c * math.sqrt((x * x + y * y) / 2)


def test_an_update_pays_for_what_is_left_uncovered_and_for_the_allowance():
    """Of each of 40 coordinates 1e-9 each, once as the shift covers it and once more with a norm."""
    budgets = np.full(300, 1.0)
    plain, bounded = Exposure(budgets, 40, 2), Exposure(budgets, 40, 2, norm=2.0)
    assert plain.cost(1e-9).delta == pytest.approx(40e-9)
    assert bounded.cost(1e-9).delta == pytest.approx(80e-9)
    assert bounded.cost(1e-9).mu_squared < plain.cost(1e-9).mu_squared


def bits(xs, budget):
    law = np.ones(1)
    for x in xs:
        one = (1 + math.tanh(budget / 2) * x) / 2
        law = np.outer(law, [1 - one, one]).ravel()
    return law


@pytest.mark.parametrize("budget", [0.1, 0.5, 2.0])
@pytest.mark.parametrize(("dimensions", "ratio"), [(1, 1.0), (4, 1.0), (4, 2.0), (9, 1.5)])
def test_local_figure(budget, dimensions, ratio):
    rng = np.random.default_rng(11)
    for delta in (1e-2, 1e-5):
        epsilon = local_norm_epsilon(budget, ratio, delta)
        for _ in range(8):
            x, y = within_ball(rng, dimensions, ratio), within_ball(rng, dimensions, ratio)
            for pair in ((x, y), (x, -x)):
                first, second = (bits(side, budget) for side in pair)
                assert divergences(first, second, [math.exp(epsilon)])[0] <= delta


@pytest.mark.parametrize("mu", [0.05, 1.0, 4.2])
@pytest.mark.parametrize("delta", [1e-5, 1e-10])
def test_local_figure_is_above_a_gaussian_and_not_far(mu, delta):
    def over(t):
        return gaussian(mu, np.array([math.exp(t)]))[0] - delta

    exact = brentq(over, 0.0, mu * mu / 2 + 10 * mu + 1e-6)
    assert exact <= local_norm_epsilon(mu / 8.4, 8.4, delta) <= 1.15 * exact
    assert local_norm_epsilon(mu / 8, 4, delta, rounds=4) == pytest.approx(local_norm_epsilon(mu / 8, 8, delta))


def test_local_figure_of_extreme_budgets():
    assert 0 <= local_norm_epsilon(1e-200, 1e-3, 1e-5) < 1e-6
    assert local_norm_epsilon(1e150, 10.0, 1e-5) == math.inf


@pytest.mark.parametrize("values", [(0.0, 1.0, 0.1), (1.0, math.nan, 0.1), (1.0, 1.0, 1.0), (1.0, 1.0, 0.0)])
def test_parameters(values):
    with pytest.raises(ParameterError):
        norm_shift(*values)
    with pytest.raises(ParameterError):
        local_norm_epsilon(*values)
