"""Composition: sound against exact composition by enumeration, and the paper's figures."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from levels import sampled
from scipy.stats import binom

from apes.accounting.certificate.blanket import hidden_pair
from apes.accounting.certificate.curve import hiding_curve, shaped_curve
from apes.accounting.certificate.two_levels import two_level_curve
from apes.accounting.composition.exact import SMALLEST_DELTA, composed_epsilon
from apes.accounting.composition.losses import convex_minorant, curve_points, losses
from apes.accounting.guarantee import certify
from apes.errors import RegimeError

PAPER = np.linspace(0.05, 1, 10_000)


def composed(curve, delta, count):
    return composed_epsilon([(curve, count)], delta)


# Between the exact divergence of one dataset, all others in the centre, and what was certified when this was designed.
@pytest.mark.parametrize(
    ("levels", "rounds", "lower", "upper"),
    sampled([(256, 1, 1.88, 2.17), (256, 40, 17.4, 20.6), (None, 1, 1.869, 2.16)], keep=1),
)
def test_golden_user_level(levels, rounds, lower, upper):
    epsilon = certify(PAPER, delta=3.6e-5, dimensions=7_850, rounds=rounds, levels=levels).epsilon
    assert lower <= epsilon <= upper


def test_convex_minorant():
    rng = np.random.default_rng(3)
    for _ in range(50):
        x = np.sort(rng.uniform(0.1, 3, 40))
        y = np.minimum.accumulate(np.clip(1 - x / 3 + rng.normal(0, 0.05, 40), 0, 1))
        low = convex_minorant(x, y)
        assert (low <= y + 1e-15).all()
        slopes = np.diff(np.append(1.0, low)) / np.diff(np.append(0.0, x))
        assert (np.diff(slopes) >= -1e-9).all()
        assert np.isclose(low, y, atol=1e-15).any()
        assert low[-1] == pytest.approx(y[-1])


def test_convex_minorant_of_convex_points_is_themselves():
    x = np.exp(np.linspace(-1, 1, 31))
    hull = convex_minorant(x, np.exp(-x))
    np.testing.assert_allclose(hull, np.exp(-x), rtol=1e-12)


def test_once_is_the_curve_itself():
    curve = hiding_curve(0.8, np.full(200, 0.5), 1e-6, 16)
    assert composed(curve, 1e-6, 1) == curve.epsilon(1e-6)


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
    curve = shaped_curve(budget, np.empty(0), 0.0, 4)
    for delta in (1e-2, 1e-5, 1e-9):
        epsilon = composed(curve, delta, count)
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


@pytest.mark.parametrize(
    ("budget", "count"),
    [(0.01, 10_000), pytest.param(0.001, 100_000, marks=pytest.mark.exhaustive), (0.5, 300), (0.1, 1_000)],
)
@pytest.mark.parametrize("delta", [1e-5, 1e-7])
def test_never_below_the_exact_composition_of_randomised_response(budget, count, delta):
    curve = shaped_curve(budget, np.empty(0), 0.0, 2)
    epsilon = composed(curve, delta, count)
    assert _two_level_composition(budget, count, epsilon) <= delta * (1 + 1e-6)


def test_monotone_in_count_and_delta():
    curve = two_level_curve(0.8, np.full(200, 0.5), 1e-6)
    by_count = [composed(curve, 1e-5, count) for count in (1, 2, 5, 20, 100)]
    assert by_count == sorted(by_count)
    by_delta = [composed(curve, delta, 10) for delta in (1e-2, 1e-4, 1e-6, 1e-9)]
    assert by_delta == sorted(by_delta)
    assert by_count[-1] <= 100 * 0.8


def test_too_small_a_delta():
    curve = hiding_curve(0.8, np.full(20, 0.5), 1e-6, 16)
    with pytest.raises(RegimeError, match="delta must be in"):
        composed(curve, SMALLEST_DELTA / 2, 2)
    assert composed(curve, SMALLEST_DELTA, 2) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("budget", "count", "delta"),
    sampled([(0.03252172364112674, 59_062, 2e-8), (2.69e-4, 184_205, 1e-7), (7.271e-4, 149_173, 1e-7)], keep=1),
)
def test_never_below_the_exact_composition_at_the_smallest_delta(budget, count, delta):
    epsilon = composed(shaped_curve(budget, np.empty(0), 0.0, 2), delta, count)
    assert _two_level_composition(budget, count, epsilon) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("count", [7, 300, pytest.param(20_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("delta", [1e-12, 1e-30, 1e-80])
def test_tiny_deltas_are_as_sound_and_as_tight(count, delta):
    """Against randomised response in 60 digits: its divergence at the certified epsilon is below delta, and not far."""
    budget = 2 / math.sqrt(count)
    epsilon = composed(shaped_curve(budget, np.empty(0), 0.0, 2), delta, count)
    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(budget)))

        def divergence(at):
            first = math.floor((at / budget + count) / 2) - 1
            return mpmath.fsum(
                mpmath.binomial(count, k) * p**k * (1 - p) ** (count - k) * -mpmath.expm1(at - budget * (2 * k - count))
                for k in range(max(first, 0), count + 1)
                if budget * (2 * k - count) > at
            )

        assert divergence(epsilon) <= delta
        if epsilon < 0.999 * count * budget:
            assert divergence(0.97 * epsilon) > delta


@pytest.mark.parametrize("ratio", [1.0, 0.61, pytest.param(3.7, marks=pytest.mark.exhaustive)])
def test_connected_points_lie_above_the_curve(ratio):
    """The pair of laws made of a curve has at least its divergence everywhere, on lattices that miss its points too."""
    curve = hiding_curve(0.8, np.full(200, 0.5), 1e-6, 16)
    (points,) = curve_points([curve], 1e-12)
    lattice, breach = losses(points, points.step * ratio)
    for t in np.linspace(-1.5, 1.5, 61) * points.step * (points.deltas.size // 2):
        reached = breach + float(lattice.masses @ np.maximum(0, -np.expm1(t - lattice.points)))
        assert reached >= curve.delta(t) * (1 - 1e-12)
    # Not far above either, on its own points.
    if ratio == 1.0:
        assert breach + float(lattice.masses @ np.maximum(0, -np.expm1(-lattice.points))) < 1.001 * curve.delta(0.0)


def test_what_every_use_leaves_beyond_its_last_point_is_counted_for_every_use():
    """Curves are looked at as far as one use needs; of twenty thousand uses the rests alone come to twice delta."""
    curve = two_level_curve(0.5, np.full(200, 0.5), 1e-6)
    few, many = (composed_epsilon([(curve, count)], 1e-6, expected=1) for count in (4_000, 20_000))
    assert few < 0.5 * 4_000 / 10
    assert many == pytest.approx(0.5 * 20_000)


def test_different_curves_compose():
    """Two kinds of uses: exactly what enumeration of both gives, from above and within a per cent."""
    few, many = 3, 40
    wide, narrow = 0.9, 0.06
    uses = [(shaped_curve(wide, np.empty(0), 0.0, 2), few), (shaped_curve(narrow, np.empty(0), 0.0, 2), many)]
    epsilon = composed_epsilon(uses, 1e-4)

    def divergence(at):
        total = 0.0
        for k in range(few + 1):
            for j in range(many + 1):
                loss = wide * (2 * k - few) + narrow * (2 * j - many)
                mass = binom.pmf(k, few, 1 / (1 + math.exp(-wide))) * binom.pmf(j, many, 1 / (1 + math.exp(-narrow)))
                total += mass * max(0.0, -math.expm1(at - loss))
        return total

    assert divergence(epsilon) <= 1e-4
    assert divergence(0.97 * epsilon) > 1e-4
    # The order, and splitting one kind in two entries, make no difference.
    assert composed_epsilon([uses[1], (uses[0][0], 1), (uses[0][0], 2)], 1e-4) == pytest.approx(epsilon)


@pytest.mark.service
def test_agrees_with_dp_accounting():
    """An independent composition of the same losses, where its rounding does not matter."""
    curve = hiding_curve(1.0, np.full(500, 0.7), 1e-8, 64)
    (points,) = curve_points([curve], 1e-12)
    half = points.deltas.size // 2
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(points.step, np.arange(-half, half + 1), points.deltas)
    for count in (2, 50, 5_000):
        theirs = float(pmf.self_compose(count).get_epsilon_for_delta(1e-5))
        assert composed(curve, 1e-5, count) == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize(("budget", "count", "exact"), [(6.0, 28, 105.76), (5.873, 7, 0.0)])
def test_a_delta_near_one(budget, count, exact):
    """Nearly everything may go wrong: the law's window lies above such an epsilon, and below it little is known."""
    curve = shaped_curve(budget, np.empty(0), 0.0, 2)
    epsilon = composed(curve, 1 - 1e-9, count)
    assert epsilon >= exact
    assert _two_level_composition(budget, count, epsilon) <= 1 - 1e-9


@pytest.mark.parametrize("budget", [1e-12, 1e-7, 1e-6, 1e-4])
@pytest.mark.parametrize(("delta", "count"), [(0.3, 2), (0.99, 1_000), (1e-9, 50), (1e-90, 3)])
def test_tiny_budgets(budget, delta, count):
    epsilon = composed(shaped_curve(budget, np.empty(0), 0.0, 2), delta, count)
    assert 0 <= epsilon <= count * budget * (1 + 1e-15)
    if count * budget < delta:
        assert epsilon == 0


def test_no_cliff_at_budgets_whose_points_end_a_unit_early():
    """0.21 / 96 * 96 is not 0.21: what the curve is there is not what it is at the budget."""
    figures = [composed(shaped_curve(e, np.empty(0), 0.0, 2), 1e-20, 1_000) for e in (0.21, 0.21 * 1.001)]
    assert figures[0] == pytest.approx(figures[1], rel=0.01)
    mixed = [
        composed_epsilon([(shaped_curve(e, np.empty(0), 0.0, 2), 10) for e in (0.7, 0.7 / k)], 1e-20)
        for k in (6, 6.001)
    ]
    assert mixed[0] == pytest.approx(mixed[1], rel=0.01)


def test_budgets_too_large_to_compose_add_up():
    assert certify(np.array([800.0]), delta=1e-5, dimensions=2, levels=2).epsilon == pytest.approx(1600)


@pytest.mark.exhaustive
def test_very_many_uses_stay_near_the_gaussian_limit():
    """Composition of n uses grows like their variance in the end: a hundred times as many cost a hundred times."""
    curve = hiding_curve(1.0, PAPER[1:], 1e-13, 256)
    many, more = (composed(curve, 1e-5, count) for count in (10**7, 10**9))
    assert more < 110 * many
