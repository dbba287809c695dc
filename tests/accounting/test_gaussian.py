"""One number per person: the Gaussian's curve against 40 digits, and the shift that covers a curve."""

import math
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
from levels import sampled

from apes.accounting.accountant import Accountant
from apes.accounting.certificate.curve import hiding_curve
from apes.accounting.certificate.top_b_first import top_b_first_curve
from apes.accounting.composition.gaussian import (
    _bounds,
    _tangents,
    covering_shift,
    gaussian_delta,
    gaussian_epsilon,
    largest_mu,
)
from apes.accounting.cost import Cost
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certified_epsilon, certify, certify_rounds
from apes.accounting.lower import lower_epsilon
from apes.accounting.victims import honest_others

DELTA = 3.6e-5
MUS = [1e-4, 3e-3, 0.1, 0.7, 2.0, 9.0, 50.0]
EPSILONS = [0.0, 1e-6, 0.01, 0.3, 2.0, 17.0, 130.0, 1e3]
DELTAS = [1e-100, 1e-40, 1e-12, 1e-5, 0.01, 0.5]
TIGHT = 1 + 1e-9


def exact(mu, epsilon):
    """g_mu(epsilon) with at least 40 digits that count, however much cancels."""
    with mpmath.workdps(120):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        upper, lower = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        # erfc keeps the digits of tails.
        return (mpmath.erfc(upper / mpmath.sqrt(2)) - mpmath.exp(epsilon) * mpmath.erfc(lower / mpmath.sqrt(2))) / 2


@pytest.mark.parametrize("mu", MUS)
def test_delta_is_from_above_and_close(mu):
    checked = 0
    for epsilon in EPSILONS:
        truth, found = exact(mu, epsilon), gaussian_delta(mu, epsilon)
        assert truth <= found <= 1
        if truth > 1e-100:
            assert found <= truth * TIGHT
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize("mu", MUS)
def test_what_covers_is_from_below_and_close(mu):
    """Values and tangents of g_mu that a curve is compared with, at places where g_mu is not nothing."""
    edges = np.linspace(0, min(mu * (mu / 2 + 8), 690), 12)
    middles, values = (edges[:-1] + edges[1:]) / 2, _bounds(mu, edges)[0]
    # For small shifts the value is the difference of two probabilities close together.
    slack = 1e-9 + 1e-11 / mu
    for t, found in zip(edges, values, strict=True):
        assert found <= exact(mu, float(t)) <= found * (1 + slack)
    for i, (left, right) in enumerate(_tangents(mu, edges).T):
        with mpmath.workdps(120):
            middle = mpmath.mpf(float(middles[i]))
            slope = -mpmath.ncdf(-middle / mu - mpmath.mpf(mu) / 2)
            for edge, found in ((edges[i], left), (edges[i + 1], right)):
                step = mpmath.exp(mpmath.mpf(float(edge))) - mpmath.exp(middle)
                line, scale = exact(mu, middle) + slope * step, exact(mu, middle) + abs(slope * step)
                assert line - scale * slack <= found <= line


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("mu", MUS)
def test_epsilon_is_from_above_and_close(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert exact(mu, epsilon) <= delta
    assert epsilon == 0 or exact(mu, epsilon * (1 - 3e-9)) > delta


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_the_largest_mu_is_from_below_and_close(epsilon, delta):
    mu = largest_mu(epsilon, delta)
    assert mu > 0
    assert exact(mu, epsilon) <= delta
    # Tiny epsilons are the difference of two probabilities close together: their rounding costs more.
    assert exact(mu * (TIGHT if epsilon > 1e-3 else 1 + 1e-5), epsilon) > delta


def test_epsilon_and_the_largest_mu_are_inverses():
    for mu in (0.01, 0.5, 4.0):
        assert largest_mu(gaussian_epsilon(mu, 1e-6), 1e-6) == pytest.approx(mu, rel=1e-8)


def test_where_there_is_nothing_to_find():
    assert gaussian_delta(0.0, 0.0) == gaussian_epsilon(0.0, 0.0) == gaussian_epsilon(0.0, 0.1) == 0
    assert gaussian_delta(math.inf, 5.0) == gaussian_delta(math.nan, 5.0) == 1
    for mu, delta in ((0.0, -1e-9), (1.0, 0.0), (1.0, -1e-9), (1.0, math.nan), (math.inf, 0.1), (math.nan, 0.1)):
        assert gaussian_epsilon(mu, delta) == math.inf
    assert gaussian_epsilon(0.1, 0.5) == 0


def population(n):
    return np.linspace(0.05, 1, n) if n > 1 else np.ones(1)


def curve_of(budgets, delta_0, levels, make=hiding_curve):
    return make(float(budgets.max()), honest_others(budgets, 0), delta_0, levels)


def above(curve, c, delta_0, points):
    """At how many points the curve is above that of the shift."""
    # The Gaussian in 40 digits, not by the code that is tested.
    return sum(curve.delta(float(t)) > exact(c, float(t)) + delta_0 for t in points)


@pytest.mark.parametrize(
    ("n", "levels", "make"),
    sampled(
        list(product([1, 2, 10, 100, 1000, 10_000], [2, 16, 256, None], [hiding_curve, top_b_first_curve])), keep=3
    ),
)
def test_the_shift_covers_the_curve_and_a_smaller_one_does_not(n, levels, make):
    delta_0, rng = 1e-12, np.random.default_rng(n)
    curve = curve_of(population(n), delta_0, levels, make)
    c, last = covering_shift(curve, delta_0), curve.epsilon(delta_0)
    # Not the places that the code looks at; some beyond the last, and some of negative t.
    inside = last * np.sort(rng.uniform(0, 1, 60))
    assert above(curve, c, delta_0, [0.0, *inside, 1.01 * last, 1.5 * last, -0.3 * last, -0.9 * last]) == 0
    assert above(curve, 0.99 * c, delta_0, inside) > 0


@pytest.mark.parametrize(
    ("budgets", "levels", "golden"),
    [
        (np.ones(10_000), 256, 0.00705),
        (population(10_000), 256, 0.00646),
        (population(10_000), 2, 0.0107),
        (population(1000), 256, 0.02043),
    ],
)
def test_golden_shifts(budgets, levels, golden):
    # Printed to three figures.
    assert 0.999 * golden <= covering_shift(curve_of(budgets, 1e-15, levels), 1e-15) <= 1.01 * golden


@pytest.mark.parametrize(
    ("n", "b", "rounds", "golden"),
    sampled(
        [
            (10_000, None, 1, 2.137),
            (10_000, None, 40, 20.25),
            (10_000, 393, 1, 0.402),
            (10_000, 393, 40, 3.18),
            (1000, None, 1, 8.297),
            (1000, None, 40, 110.1),
        ],
        keep=1,
    ),
)
def test_golden_epsilons(n, b, rounds, golden):
    exposure = Exposure(population(n), 7850, 256, b)
    cost = exposure.cost(DELTA * 1e-3 / (rounds * max(exposure.uses))).times(rounds)
    assert golden <= cost.epsilon(DELTA) <= 1.01 * golden
    assert cost.delta <= DELTA * 1.001e-3
    assert forced(n, b or 7850, rounds) < cost.epsilon(DELTA)


@pytest.mark.parametrize(
    ("exposure", "rounds", "delta", "golden"),
    sampled(
        [
            (Exposure(np.ones(10_000), 7850), 1, DELTA, 2.362),
            (Exposure(np.ones(10_000), 7850), 40, DELTA, 22.80),
            (Exposure(population(10_000), 7850, 2), 1, DELTA, 3.43),
            # R / C = 4.
            (Exposure(population(10_000), 7850, 2, norm=0.4, clip=0.1), 40, 1e-5, 0.912),
        ],
        keep=1,
    ),
    ids=["all 1", "all 1, 40 rounds", "bits", "bits of a bounded norm, 40 rounds"],
)
def test_other_golden_epsilons(exposure, rounds, delta, golden):
    guarantee = certify_rounds(exposure, delta, rounds)
    assert golden <= guarantee.epsilon <= 1.01 * golden
    assert 0.8 * golden < guarantee.lower < guarantee.epsilon


@cache
def forced(n, coordinates, rounds):
    """What some dataset forces: the victim at both ends in so many coordinates, all others' data anywhere."""
    return lower_epsilon(population(n), DELTA, 256, coordinates * rounds)


@pytest.mark.parametrize(
    ("budgets", "levels"),
    sampled(list(product([[3.0], [1.0, 1.0], [0.1] * 20 + [2.0], [0.5] * 60], [2, 16, None])), keep=3),
)
def test_never_below_what_is_forced(budgets, levels):
    for count in (1, 30):
        exposure = Exposure(np.array(budgets), count, levels)
        found = exposure.cost(1e-9).epsilon(1e-4)
        assert lower_epsilon(exposure.budgets, 1e-4, levels, count) <= found < math.inf


CROWDS = [[1e-6], [1e-6] * 50, [44.0], [44.0] * 2000, [300.0], [1e-6] * 2000 + [300.0], [1e-6] * 500 + [44.0]]


@pytest.mark.parametrize(("budgets", "delta"), sampled(list(product(CROWDS, [1e-6, 1e-90])), keep=4))
def test_extremes_cost_something_and_never_more_than_locally(budgets, delta):
    budgets = np.array(budgets)
    exposure, accountant = Exposure(budgets, 1), Accountant(delta, expected_rounds=3)
    cost = exposure.cost(1e-3 * delta)
    assert cost.mu_squared > 0
    assert cost.delta == 1e-3 * delta
    local = 2 * float(budgets.max()) * (1 + 2e-9)
    assert lower_epsilon(budgets, delta, 256, 2) <= certified_epsilon(exposure, delta, 2) <= local
    assert accountant.charge(exposure, 2) <= local
    # What no Gaussian covers cannot pass a filter.
    assert math.isfinite(cost.mu_squared) or not cost.fits(Cost(1e300, 1.0))


@pytest.mark.parametrize("budget", [20.0, 44.0, 300.0])
def test_the_shift_of_one_alone_with_a_large_budget(budget):
    """Two levels, nobody else: the curve is (exp(e) - exp(t)) / (exp(e) + 1), and the shift covers it."""
    delta_0 = 1e-9
    curve = curve_of(np.array([budget]), delta_0, 2)
    c = covering_shift(curve, delta_0)
    with mpmath.workdps(400):
        e, points = mpmath.exp(budget), np.random.default_rng(1).uniform(0, budget, 200)
        gaps = [exact(c, t) + delta_0 - (e - mpmath.exp(float(t))) / (e + 1) for t in points]
    assert min(gaps) >= 0


def test_a_gaussian_costs_what_a_gaussian_costs():
    """Additive costs: many uses are one Gaussian, whose epsilon `certify` returns too."""
    budgets = population(2000)
    once, both = Exposure(budgets, 50), certify(budgets, delta=1e-6, dimensions=50, rounds=2)
    delta_0 = 1e-9 / 100
    assert both.epsilon == once.cost(delta_0).times(2).epsilon(1e-6)
    assert both.mu**2 == pytest.approx(2 * once.cost(delta_0).mu_squared)
    assert both.delta_at(both.epsilon) == pytest.approx(1e-6, rel=1e-6)
