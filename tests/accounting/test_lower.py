"""Lower bounds: exact where everything can be enumerated, below the certificate everywhere."""

import itertools
import math

import numpy as np
import pytest
from levels import sampled
from scipy.stats import binom

from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certify, certify_rounds
from apes.accounting.lower import lower_epsilon, report_laws


def multisets(laws):
    """Law of the multiset of independent reports, by adding one report after another."""
    levels = laws.shape[1]
    reached = {(0,) * levels: 1.0}
    for law in laws:
        following = {}
        for counts, mass in reached.items():
            for k in range(levels):
                grown = (*counts[:k], counts[k] + 1, *counts[k + 1 :])
                following[grown] = following.get(grown, 0.0) + mass * law[k]
        reached = following
    return reached


def exact_epsilon(budgets, delta, levels):
    """Of the same two datasets, on the whole multiset instead of one statistic."""
    budgets = np.sort(budgets)
    worst = 0.0
    for position in (0.5, 0.0):
        others = report_laws(budgets[:-1], position, levels)
        ends = [report_laws(budgets[-1:], end, levels) for end in (0.0, 1.0)]
        one, other = (multisets(np.vstack([end, others])) for end in ends)

        def divergence(t, one=one, other=other):
            return sum(max(0.0, mass - math.exp(t) * other[counts]) for counts, mass in one.items())

        low, high = 0.0, float(budgets[-1])
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if divergence(middle) > delta else (low, middle)
        worst = max(worst, low)
    return worst


@pytest.mark.parametrize(("levels", "users"), sampled(list(itertools.product((2, 3, 5), (1, 2, 5))), keep=5))
def test_between_nothing_and_the_certificate(levels, users):
    rng = np.random.default_rng(levels * 10 + users)
    for delta in (1e-3, 0.02):
        budgets = np.exp(rng.uniform(np.log(0.05), np.log(4), users))
        lower, exact = lower_epsilon(budgets, delta, levels), exact_epsilon(budgets, delta, levels)
        assert lower <= exact + 1e-9
        assert lower >= 0.98 * exact
        assert exact <= certify(budgets, delta=delta, levels=levels).epsilon


@pytest.mark.parametrize(
    ("budget", "expected"),
    sampled([(0.05, 0.001051), (0.5, 0.012387), (1.0, 0.026363), (2.0, 0.061760), (3.0, 0.116285)], keep=2),
)
def test_golden_values(budget, expected):
    found = lower_epsilon(np.full(10_000, budget), 1e-8, None)
    assert 0.99 * expected <= found <= expected * 1.0005


@pytest.mark.exhaustive
@pytest.mark.parametrize(("budget", "expected"), [(1.0, 0.00731), (5.0, 0.03003), (20.0, 0.06407), (80.0, 0.13249)])
def test_the_counterexample_to_the_published_bound(budget, expected):
    """One user at a large budget, the others at 0.05: at 5 the truth is above the published 0.0277."""
    budgets = np.append(np.full(99_999, 0.05), budget)
    found = lower_epsilon(budgets, 1e-8, None)
    assert 0.99 * expected <= found <= expected * 1.0005
    assert found <= certify(budgets, delta=1e-8, levels=None).epsilon


def test_laws_sum_to_one_and_mirror():
    for levels in (2, 5, 256, None):
        laws = report_laws(np.array([1e-6, 0.5, 50.0]), 0.0, levels)
        mirrored = report_laws(np.array([1e-6, 0.5, 50.0]), 1.0, levels)
        assert np.allclose(laws.sum(axis=1), 1, rtol=1e-12)
        assert np.allclose(laws, mirrored[:, ::-1], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("count", "delta"), [(2, 1e-3), (5, 0.02), (40, 1e-4)])
@pytest.mark.parametrize("budget", [0.3, 1.0])
def test_many_uses_against_randomised_response(budget, count, delta):
    """One user and two levels: the divergence of the composition is known, and the statistic loses nothing."""
    k = np.arange(count + 1)
    losses = budget * (2 * k - count)
    masses = binom.pmf(k, count, 1 / (1 + math.exp(-budget)))

    def divergence(t):
        return float(np.maximum(0, -np.expm1(np.minimum(t - losses, 0))) @ masses)

    lower = lower_epsilon(np.array([budget]), delta, 2, count)
    assert divergence(lower + 1e-9) >= delta * (1 - 1e-6)
    # A hundredth of delta is set aside for rounding.
    assert divergence(1.001 * lower + 1e-6) <= delta * 1.011


# All others in the centre, K = 256: at least 1.876 and 17.37. Here more is forced; the second figure is what a Gaussian
# of the same separation (0.005907 per coordinate) gives.
@pytest.mark.parametrize(
    ("rounds", "known", "gaussian", "certified"), sampled([(40, 17.37, 17.97, 20.30), (1, 1.876, 1.931, 2.142)], keep=1)
)
def test_user_level(rounds, known, gaussian, certified):
    lower = lower_epsilon(np.linspace(0.05, 1, 10_000), 3.6e-5, 256, 7_850 * rounds)
    assert known < lower < certified
    assert lower == pytest.approx(gaussian, rel=0.01)


def test_never_above_the_certificate_however_much_is_revealed():
    """Thousands of coordinates of a user nearly alone: beyond exp(700) too."""
    for budgets, levels in ((np.array([1.645]), 256), (np.array([1.645, 0.5]), 2), (np.array([0.9]), None)):
        guarantee = certify(budgets, delta=1e-6, dimensions=5_000, levels=levels)
        assert 0 < guarantee.lower <= guarantee.epsilon


# Of 7,850 coordinates 393 are kept. Certified with a choice of the largest ones: 0.4026 and 3.187.
@pytest.mark.parametrize(
    ("strategy", "rounds", "expected"),
    sampled([(name, *known) for name in ("top-b-first", "random-b") for known in ((1, 0.3638), (40, 2.867))], keep=2),
)
def test_sparse_reports(strategy, rounds, expected):
    """All of somebody's b coordinates, from one end to the other: b uses, whoever chose them."""
    kept = {"charged": 393} if strategy == "random-b" else {"charged": 786, "top_b_first": 393}
    exposure = Exposure(np.linspace(0.05, 1, 10_000), dimensions=7_850, sparsifier=strategy, **kept)
    guarantee = certify_rounds(exposure, 3.6e-5, rounds)
    assert guarantee.lower == pytest.approx(expected, rel=0.01)
    assert 0.88 * guarantee.epsilon < guarantee.lower < guarantee.epsilon


@pytest.mark.parametrize(("users", "levels"), sampled(list(itertools.product([1, 5, 2000], [2, 3, 256, None])), keep=1))
def test_sparse_reports_never_above_the_certificate(levels, users):
    rng = np.random.default_rng([levels or 1, users])
    budgets = np.exp(rng.uniform(np.log(0.05), np.log(3), users))
    b, rounds, delta = int(rng.integers(1, 40)), int(rng.integers(1, 5)), 10 ** -rng.uniform(2, 8)
    sparse = certify(budgets, delta=delta, dimensions=60, rounds=rounds, levels=levels, top_b_first=b)
    assert sparse.lower <= sparse.epsilon
    random = certify_rounds(Exposure(budgets, b, levels, dimensions=60, sparsifier="random-b"), delta, rounds)
    assert random.lower == sparse.lower
    assert random.lower <= random.epsilon


def test_nothing_is_known_of_a_threshold():
    assert certify_rounds(Exposure([1.0, 0.5], 3, 2, sparsifier="threshold"), 1e-3).lower == 0


@pytest.mark.parametrize("budget", [0.5, 5.0, 20.0, 30.0, 36.0, 40.0, 100.0, 600.0])
@pytest.mark.parametrize("delta", [1e-6, 0.1, 0.9])
def test_one_alone_forces_what_the_law_of_a_bit_says(budget, delta):
    """P(1) = 1 / (1 + exp(-e)): nothing above the exact figure, though masses may be below what a transform keeps."""
    forced = lower_epsilon([budget], delta, 2)
    # P - exp(t) Q = delta, with P = 1 / (1 + exp(-e)) and Q = exp(-e) P.
    likely = 1 / (1 + math.exp(-budget))
    exact = budget + math.log((likely - delta) / likely) if likely > delta else 0.0
    exact = max(exact, 0.0)
    assert forced <= exact * (1 + 1e-9)
    assert forced >= exact * (1 - 1e-6) - 1e-6


@pytest.mark.parametrize("budgets", [[30.0, 30.0, 60.0], [8.0, 8.0, 8.0, 50.0], [20.0, 40.0], [33.0] * 4])
@pytest.mark.parametrize("delta", [0.1, 0.5, 0.9])
def test_large_budgets_force_no_more_than_enumeration_finds(budgets, delta):
    """Masses of exp(-60) are lost in a transform's rounding; nothing may be concluded from them."""
    assert lower_epsilon(budgets, delta, 2) <= exact_epsilon(budgets, delta, 2) * (1 + 1e-9)


@pytest.mark.parametrize("levels", [2, 16, 256])
@pytest.mark.parametrize(("users", "budget"), [(1, 40.0), (2, 40.0), (3, 35.0), (5, 60.0), (40, 25.0), (300, 12.0)])
@pytest.mark.parametrize("delta", [1e-8, 0.1, 0.9])
def test_nothing_is_forced_above_what_is_certified(levels, users, budget, delta):
    """Where budgets are large, exp(epsilon) times what a transform is off by is not small."""
    guarantee = certify([budget] * users, delta=delta, levels=levels)
    assert guarantee.lower <= guarantee.epsilon


@pytest.mark.parametrize(("norm", "opposite"), [(0.15, 2), (0.1, 1), (0.099, 0), (0.2, 4), (1.0, 10), (None, 10)])
def test_a_norm_allows_so_many_coordinates_at_opposite_ends(norm, opposite):
    """One coordinate more would be no data that there may be, and what it forces no lower bound."""
    assert Exposure(np.full(5, 1.0), 10, 2, clip=0.1, norm=norm).forced == opposite
