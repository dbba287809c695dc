"""Composition: sound against exact composition by enumeration, and the paper's figures."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from apes.accounting.blanket import hidden_pair
from apes.accounting.certificate import _curve, hiding_curve
from apes.accounting.composition import SMALLEST_DELTA, _convex_minorant, composed_epsilon
from apes.accounting.guarantee import certify
from apes.errors import RegimeError

PAPER = np.linspace(0.05, 1, 10_000)


# Theory, section 6: between the exact divergence of one dataset and the certified figure of the design.
@pytest.mark.parametrize(
    ("levels", "rounds", "lower", "upper"), [(256, 1, 1.88, 2.17), (256, 40, 17.4, 20.6), (None, 1, 1.869, 2.16)]
)
def test_golden_user_level(levels, rounds, lower, upper):
    epsilon = certify(PAPER, delta=3.6e-5, dimensions=7_850, rounds=rounds, levels=levels).epsilon
    assert lower <= epsilon <= upper


def test_convex_minorant():
    rng = np.random.default_rng(3)
    for _ in range(50):
        x = np.sort(rng.uniform(0.1, 3, 40))
        y = np.minimum.accumulate(np.clip(1 - x / 3 + rng.normal(0, 0.05, 40), 0, 1))
        low = _convex_minorant(x, y)
        assert (low <= y + 1e-15).all()
        slopes = np.diff(np.append(1.0, low)) / np.diff(np.append(0.0, x))
        assert (np.diff(slopes) >= -1e-9).all()
        assert np.isclose(low, y, atol=1e-15).any()
        assert low[-1] == pytest.approx(y[-1])


def test_convex_minorant_of_convex_points_is_themselves():
    x = np.exp(np.linspace(-1, 1, 31))
    hull = _convex_minorant(x, np.exp(-x))
    np.testing.assert_allclose(hull, np.exp(-x), rtol=1e-12)


def test_once_is_the_curve_itself():
    curve = hiding_curve(0.8, np.full(200, 0.5), 1e-6, 16)
    assert composed_epsilon(curve, 1e-6, 1) == curve.epsilon(1e-6)


def _exact_composition(first, second, count, epsilon):
    """Hockey-stick divergence of `count` uses: losses of the levels are multiples of one unit."""
    unit = math.log(first[0] / second[0]) / (first.size - 1)
    offsets = np.rint(np.log(first / second) / unit).astype(int)
    assert np.allclose(offsets * unit, np.log(first / second))
    base = np.zeros(2 * (first.size - 1) + 1)
    base[offsets + first.size - 1] = first
    law = np.ones(1)
    for _ in range(count):
        law = np.convolve(law, base)
    losses = unit * (np.arange(law.size) - count * (first.size - 1))
    return float(np.maximum(0, -np.expm1(epsilon - losses[losses > epsilon])) @ law[losses > epsilon])


@pytest.mark.parametrize("count", [2, 3, 7, 20])
@pytest.mark.parametrize("budget", [0.1, 1.0, 3.0])
def test_never_below_the_exact_composition_of_a_victim_alone(count, budget):
    pair = hidden_pair(budget, 0.0, 4)
    curve = _curve(budget, np.empty(0), 0.0, 4)
    for delta in (1e-2, 1e-5, 1e-9):
        epsilon = composed_epsilon(curve, delta, count)
        assert _exact_composition(pair.first, pair.second, count, epsilon) <= delta * (1 + 1e-9)
        # The check has power: 15 % less is refuted, unless the local budgets already decide.
        if epsilon < 0.95 * count * budget and delta < 1e-2:
            assert _exact_composition(pair.first, pair.second, count, 0.85 * epsilon) > delta


def _two_level_composition(budget, count, epsilon):
    """Exact divergence of `count` randomised responses."""
    k = np.arange(count + 1)
    losses = budget * (2 * k - count)
    p = 1 / (1 + math.exp(-budget))
    return float(np.maximum(0, -np.expm1(np.minimum(epsilon - losses, 0))) @ binom.pmf(k, count, p))


@pytest.mark.parametrize(("budget", "count"), [(0.01, 10_000), (0.001, 100_000), (0.5, 300), (0.1, 1_000)])
@pytest.mark.parametrize("delta", [1e-5, 1e-7])
def test_never_below_the_exact_composition_of_randomised_response(budget, count, delta):
    curve = _curve(budget, np.empty(0), 0.0, 2)
    epsilon = composed_epsilon(curve, delta, count)
    assert _two_level_composition(budget, count, epsilon) <= delta * (1 + 1e-6)


def test_monotone_in_count_and_delta():
    curve = hiding_curve(0.8, np.full(200, 0.5), 1e-6, 16)
    by_count = [composed_epsilon(curve, 1e-5, count) for count in (1, 2, 5, 20, 100)]
    assert by_count == sorted(by_count)
    by_delta = [composed_epsilon(curve, delta, 10) for delta in (1e-2, 1e-4, 1e-6, 1e-9)]
    assert by_delta == sorted(by_delta)
    assert by_count[-1] <= 100 * 0.8


def test_too_small_a_delta():
    curve = hiding_curve(0.8, np.full(20, 0.5), 1e-6, 16)
    with pytest.raises(RegimeError):
        composed_epsilon(curve, SMALLEST_DELTA / 2, 2)
    # The more uses, the more rounding may hide.
    with pytest.raises(RegimeError, match=r"1,000,000 uses is certain for delta >= 3\.1e-07, got 1e-08"):
        composed_epsilon(curve, 1e-8, 1_000_000)


@pytest.mark.parametrize(
    ("budget", "count", "delta"),
    [(0.03252172364112674, 59_062, 2e-8), (2.69e-4, 184_205, 1e-7), (7.271e-4, 149_173, 1e-7)],
)
def test_never_below_the_exact_composition_at_the_smallest_delta(budget, count, delta):
    epsilon = composed_epsilon(_curve(budget, np.empty(0), 0.0, 2), delta, count)
    assert _two_level_composition(budget, count, epsilon) <= delta * (1 + 1e-6)
