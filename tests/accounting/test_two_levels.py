"""The curve of one bit among other users' bits: brute force over all ends, golden values, and conduct."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from levels import sampled
from scipy.signal import fftconvolve
from scipy.stats import binom, norm

import apes
from apes.accounting.certificate.curve import HidingCurve, hiding_curve
from apes.accounting.certificate.lines import lines_above
from apes.accounting.certificate.squads import _with_squad, lines_above_many
from apes.accounting.certificate.two_levels import MOST_SINGLE, MOST_USERS, TwoLevelCurve, _raised, two_level_curve

PAPER = np.linspace(0.05, 1, 10_000)
# Of the oracle's own sums.
ORACLE = 1e-13


def count_law(probabilities):
    """Law of a sum of independent bits."""
    law = np.ones(1)
    for p in probabilities:
        law = np.convolve(law, [1 - p, p])
    return law


def keeping(budgets):
    return 1 / (1 + np.exp(-np.asarray(budgets, dtype=float)))


def exact_delta(budget, others, t):
    """The largest divergence over all ends of the others, by all outcomes: no threshold, no log-concavity."""
    pi, worst = keeping(budget), 0.0
    for ends in product((0, 1), repeat=len(others)):
        law = count_law([p if end else 1 - p for p, end in zip(keeping(others), ends, strict=True)])
        one, zero = np.convolve(law, [1 - pi, pi]), np.convolve(law, [pi, 1 - pi])
        worst = max(worst, np.maximum(one - math.exp(t) * zero, 0).sum())
    return worst


def populations():
    rng = np.random.default_rng(7)
    for n in (0, 1, 2, 3, 4, 5, 6):
        for _ in range(3):
            budgets = np.exp(rng.uniform(math.log(0.01), math.log(8), n + 1))
            yield pytest.param(float(budgets[0]), budgets[1:], id=f"{n} others, {budgets.round(2).tolist()}")


@pytest.mark.parametrize(("budget", "others"), list(populations()))
def test_brute_force(budget, others):
    curve = two_level_curve(budget, others, 1e-6)
    for t in np.linspace(0, 0.99 * budget, 15).tolist():
        exact = exact_delta(budget, others, t)
        bound = curve.delta(t)
        assert exact * (1 - ORACLE) <= bound <= 1.03 * exact + 1e-12
        # A bound 5 % lower would be caught.
        assert exact > 0.95 * bound - 1e-12


@pytest.mark.parametrize(
    ("highest", "users"),
    [(2.0, 11), *(pytest.param(highest, 13, marks=pytest.mark.exhaustive) for highest in (0.5, 2.0, 6.0))],
)
def test_brute_force_beyond_the_users_whose_ends_are_tried(highest, users):
    others = np.linspace(0.05, highest, users)
    curve = two_level_curve(1.0, others, 1e-6)
    for t in (0.0, 0.1, 0.3, 0.6):
        exact = exact_delta(1.0, others, t)
        assert exact * (1 - ORACLE) <= curve.delta(t) <= 1.03 * exact


# 400 users of one budget, so many of them at the upper end.
@pytest.mark.parametrize("budget", sampled([1.0, 0.1, 3.0], keep=1))
def test_no_choice_of_ends_is_worse(budget):
    pi, curve = keeping(budget), two_level_curve(budget, np.full(400, budget), 1e-9)
    for t in np.linspace(0, curve.epsilon(1e-12), 8).tolist():
        worst = 0.0
        for upper in range(0, 401, 20):
            law = count_law([pi] * upper + [1 - pi] * (400 - upper))
            one, zero = np.convolve(law, [1 - pi, pi]), np.convolve(law, [pi, 1 - pi])
            worst = max(worst, np.maximum(one - math.exp(t) * zero, 0).sum())
        assert worst * (1 - 1e-9) - 1e-16 <= curve.delta(t) <= 1.35 * worst + 1e-11


def gaussian(shift, t):
    return norm.cdf(-t / shift + shift / 2) - np.exp(t) * norm.cdf(-t / shift - shift / 2)


def least_shift(curve, delta_0, low, high):
    """Smallest c with h <= g_c + delta_0 at some hundred places."""
    places = np.linspace(0, curve.epsilon(delta_0), 300)
    curve_values = np.array([curve.delta(t) for t in places.tolist()])
    for _ in range(30):
        middle = (low + high) / 2
        is_above = bool((curve_values <= gaussian(middle, places) + delta_0).all())
        low, high = (low, middle) if is_above else (middle, high)
    return high


@pytest.mark.parametrize(
    "others", sampled([PAPER[1:], PAPER[:-1]], keep=1), ids=["without the smallest", "without the victim"]
)
def test_golden_paper_population(others):
    # .00972 is forced by the others all at one end; the blanket gives .01070.
    assert 0.0097 < least_shift(two_level_curve(1.0, others, 1e-12), 1e-12, 0.009, 0.02) < 0.00976


@pytest.mark.parametrize(
    ("n", "factor"),
    [(1, 1.001), (2, 1.001), (5, 1.001), (100, 1.0), pytest.param(1000, 1.0, marks=pytest.mark.exhaustive)],
)
def test_not_above_the_blanket(n, factor):
    others = np.linspace(0.05, 1, n)
    curve, blanket = two_level_curve(1.0, others, 1e-8), hiding_curve(1.0, others, 1e-8, 2)
    for delta in (1e-2, 1e-4, 1e-8):
        assert curve.epsilon(delta) <= factor * blanket.epsilon(delta)


def test_of_many_budgets_none_is_lowered():
    budgets = np.geomspace(0.01, 8, 1000)
    raised = _raised(budgets)
    assert np.unique(raised).size <= 64
    assert (raised >= budgets).all()
    assert (raised <= budgets * 1.2).all()


def test_nobody_else():
    """Randomised response: h = pi - exp(t) (1 - pi)."""
    curve, pi = two_level_curve(1.5, np.empty(0), 1e-6), keeping(1.5)
    for t in (0.0, 0.4, 1.4):
        assert curve.delta(t) == pytest.approx(pi - math.exp(t) * (1 - pi), rel=1e-12)
        assert curve.delta(-t) == pytest.approx(pi - math.exp(-t) * (1 - pi), rel=1e-12)
    assert curve.delta(1.5) == 0.0


@pytest.mark.parametrize("budget", [1e-12, 1e-6, 1.0, 30.0, 300.0, 1e4])
@pytest.mark.parametrize("other", [1e-12, 1.0, 17.0, 30.0, 300.0])
def test_extreme_budgets(budget, other):
    curve = two_level_curve(budget, np.full(20, other), 1e-6)
    alone = two_level_curve(budget, np.empty(0), 1e-6)
    for share in (0.0, 0.3, 0.9):
        assert 0 <= curve.delta(share * budget) <= alone.delta(share * budget) * (1 + 1e-12)
    assert 0 <= curve.epsilon(1e-6) <= budget
    if other >= 30:
        assert curve.delta(0.0) == pytest.approx(alone.delta(0.0))


def test_more_for_a_larger_budget_less_among_more_users():
    others = np.geomspace(0.1, 3, 60)
    curves = [two_level_curve(budget, others, 1e-6) for budget in (0.1, 0.5, 1.0, 2.0, 8.0)]
    for t in (0.0, 0.05, 0.3):
        values = [curve.delta(t) for curve in curves]
        assert values == sorted(values)
        assert two_level_curve(1.0, others[:30], 1e-6).delta(t) >= two_level_curve(1.0, others, 1e-6).delta(t)


def test_order_does_not_matter_and_delta_falls():
    others = np.random.default_rng(3).uniform(0.1, 2, 200)
    curve, sorted_curve = two_level_curve(1.0, others, 1e-6), two_level_curve(1.0, np.sort(others), 1e-6)
    values = [curve.delta(t) for t in np.linspace(-1, 1, 41).tolist()]
    assert values == sorted(values, reverse=True)
    assert values == [sorted_curve.delta(t) for t in np.linspace(-1, 1, 41).tolist()]
    assert curve.delta(curve.epsilon(1e-7)) <= 1e-7


def exact_beta(laws, slope):
    tails = [np.append(np.cumsum(law[::-1])[::-1], 0.0) for law in laws]
    return max(float((tail[:-1] - slope * tail[1:]).max()) for tail in tails)


@pytest.mark.parametrize(("flip", "size"), [(0.1, 1), (0.1, 5), (0.3, 3), (0.45, 2)])
def test_a_squad_among_tried_users(flip, size):
    """Eight users at all their ends, and a squad at its two: nothing is worse than the lines say."""
    before = np.array([0.45, 0.45, 0.4, 0.4, 0.35, 0.3, 0.3, 0.2])
    lines = _with_squad(lines_above(before), flip, size, Counter(before.tolist()))
    laws = [
        np.convolve(count_law(np.where(ends, before, 1 - before)), count_law([p] * size))
        for ends in product((True, False), repeat=8)
        for p in (flip, 1 - flip)
    ]
    for slope in (1.0, 1.1, 1.5, 2.0, 4.0, 8.0):
        exact = exact_beta(laws, slope)
        assert exact * (1 - ORACLE) <= lines.at(slope) <= 1.3 * exact + 0.01


@pytest.mark.parametrize("budget", sampled([1.0, 0.1, 2.5], keep=1))
def test_no_choice_of_ends_is_worse_than_squads(budget):
    n = MOST_SINGLE + 5_000
    pi, curve = keeping(budget), two_level_curve(1.0, np.full(n, budget), 1e-9)
    assert isinstance(curve, TwoLevelCurve)
    one = keeping(1.0)
    for upper in (0, 1_000, n // 2, n):
        first, second = (binom(size, p) for size, p in ((upper, pi), (n - upper, 1 - pi)))
        law = first.pmf(np.arange(upper + 1)) if upper == n else second.pmf(np.arange(n + 1))
        if 0 < upper < n:
            law = fftconvolve(first.pmf(np.arange(upper + 1)), second.pmf(np.arange(n - upper + 1)))
        ends = np.convolve(law, [1 - one, one]), np.convolve(law, [one, 1 - one])
        for t in np.linspace(0, curve.epsilon(1e-9), 6).tolist():
            exact = np.maximum(ends[0] - math.exp(t) * ends[1], 0).sum()
            # Of the oracle's Fourier transform.
            assert exact <= curve.delta(t) + 1e-11
    variance = n * pi * (1 - pi)
    assert least_shift(curve, 1e-9, 0.0, 0.1) <= 1.06 * math.tanh(0.5) / math.sqrt(variance)


@pytest.mark.parametrize("each", [50, pytest.param(1_000, marks=pytest.mark.exhaustive)])
def test_squads_agree_with_single_users(each):
    flips = np.repeat(1 / (1 + np.exp(np.linspace(0.1, 1, 12))), each)
    single, squads = lines_above(flips), lines_above_many(flips)
    for steps in (0, 1, 3, 5):
        slope = 1 + steps / math.sqrt(float(flips @ (1 - flips)))
        # Never much better, and a few per cent wider.
        assert 0.99 * single.at(slope) <= squads.at(slope) <= 1.06 * single.at(1 + 0.93 * (slope - 1))


def test_squads_are_of_the_largest_budget_of_a_group():
    """Twelve groups; the smallest probability of a flip, which hides least, stands for all of a group."""
    flips = np.linspace(0.48, 0.2, 600)
    lowered = np.repeat(flips[49::50], 50)
    assert lines_above_many(flips).beta.tolist() == lines_above_many(lowered).beta.tolist()


def test_many_open_users_get_the_blanket():
    others = np.full(MOST_SINGLE + 1, 5.0)
    assert isinstance(two_level_curve(1.0, others, 1e-8), HidingCurve)
    assert isinstance(two_level_curve(1.0, np.full(MOST_USERS + 1, 1.0), 1e-8), HidingCurve)


@pytest.mark.parametrize(
    ("budgets", "changes", "said"),
    [
        ([0.5, 3.0], {}, "tail bounds of other users' bits, without a privacy blanket"),
        ([0.5, 3.1], {}, "tail bounds of other users' bits, or a privacy blanket"),
        (np.full(300_001, 0.5), {}, "tail bounds of other users' bits, or a privacy blanket"),
        ([0.5, 0.5], {"top_b_first": 2}, "tail bounds of other users' bits, or a privacy blanket"),
        ([0.5, 0.5], {"levels": 4}, "privacy blanket, 4 levels"),
        ([0.5, 0.5], {"levels": None}, "privacy blanket, continuous"),
    ],
)
def test_the_method_says_whether_there_is_a_blanket(budgets, changes, said):
    exposure = apes.Exposure(np.array(budgets), 5, **{"levels": 2, **changes})
    assert exposure.method == said


def test_a_guarantee_of_bits_says_that_there_is_no_blanket():
    guarantee = apes.certify(np.full(50, 0.5), delta=1e-3, levels=2)
    assert guarantee.method == "tail bounds of other users' bits, without a privacy blanket"
