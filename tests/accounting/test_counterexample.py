"""One user at a large budget, everybody else at 0.05 in the centre: the published bound is below the truth.

n = 100,000, delta = 1e-8 (docs/published-bounds.md). The truth is bounded from below in two ways that have nothing in
common but the dataset: the library's own statistic, and one event whose probability is a sum of binomial tails.
"""

import functools
import math

import numpy as np
import pytest
from scipy.stats import binom

from apes import ClipLaplace, certify
from apes.accounting.lower import lower_epsilon
from apes.accounting.published.echoes import eon_closed, eon_numeric

# At unit level, test_published says the same of the published figure against known values.
pytestmark = pytest.mark.exhaustive

USERS, REST, DELTA = 100_000, 0.05, 1e-8
# The lower bound is taken at a delta larger by this, far more than rounding in its transforms can add up to.
SLACK = 1.1


def budgets_with(budget):
    return np.append(np.full(USERS - 1, REST), budget)


@functools.cache
def figures(budget):
    """Lower bound, certified, numeric and closed form."""
    budgets = budgets_with(budget)
    return (
        lower_epsilon(budgets, SLACK * DELTA, None),
        certify(budgets, delta=DELTA, levels=None).epsilon,
        eon_numeric(budgets, DELTA),
        eon_closed(budgets, DELTA),
    )


def epsilon_of_an_event(budget, width):
    """What the event D >= k forces, D the reports in the lowest ``width`` of the range less those in the highest.

    Of the others, N ~ Bin(n - 1, 2 p) reports fall into either, X ~ Bin(N, 1/2) of them into the lower: D = 2 X - N.
    For every k, exp(epsilon) P'(D >= k) + delta >= P(D >= k).
    """
    edge = 2 * width - 1
    p = float(ClipLaplace(0.0, REST, 1.0).cdf(edge))
    near, far = (float(ClipLaplace(end, budget, 1.0).cdf(edge)) for end in (-1.0, 1.0))
    spread = math.sqrt(2 * p * USERS)
    low, high = (int(2 * p * USERS + sign * 8 * spread) for sign in (-1, 1))
    counts = np.arange(low, high + 1)
    weights = binom.pmf(counts, USERS - 1, 2 * p)
    outside = binom.cdf(low - 1, USERS - 1, 2 * p) + binom.sf(high, USERS - 1, 2 * p)

    def at_least(k):
        return float(weights @ binom.sf((counts + k + 1) // 2 - 1, counts, 0.5))

    best = 0.0
    for k in np.linspace(3.5 * spread, 6.5 * spread, 16).astype(int):
        below, same, above = at_least(k - 1), at_least(k), at_least(k + 1)
        rest = (1 - near - far) * same
        # Terms outside the window are left out of the first and counted in full in the second.
        first = (near * below + rest + far * above) * (1 - 1e-9)
        second = (far * below + rest + near * above) * (1 + 1e-9) + outside
        best = max(best, math.log((first - DELTA) / second) if first > DELTA else 0.0)
    return best


@pytest.mark.parametrize("budget", [5.0, 8.0, 20.0])
def test_truth_is_above_the_published_figure_and_within_the_certificate(budget):
    lower, certified, numeric, _ = figures(budget)
    assert numeric < lower <= certified
    assert certified <= 1.02 * lower


@pytest.mark.parametrize("budget", [8.0, 20.0])
def test_one_event_is_enough_to_see_it(budget):
    lower, certified, numeric, _ = figures(budget)
    forced = epsilon_of_an_event(budget, width=1.2564 / budget)
    assert numeric < forced <= certified
    assert forced <= 1.01 * lower  # the statistic sees at least as much, but for the slack


@pytest.mark.parametrize(
    ("budget", "exact", "certified", "numeric", "closed"),
    [
        (5.0, 0.03003, 0.03033, 0.0277, 0.1079),
        (8.0, 0.03951, 0.03988, 0.0281, 0.1093),
        (20.0, 0.06407, 0.06466, 0.0281, 0.1093),
    ],
)
def test_golden_values(budget, exact, certified, numeric, closed):
    found = figures(budget)
    assert 0.99 * exact <= found[0] <= exact
    assert exact * 0.9999 <= found[1] <= 1.01 * certified
    assert found[2:] == pytest.approx((numeric, closed), abs=6e-5)


def test_no_violation_in_the_papers_own_range():
    for budget in (0.5, 1.0, 3.0):
        _, certified, numeric, closed = figures(budget)
        assert certified < numeric < closed


def test_at_80_the_closed_form_is_below_the_truth_too():
    lower, certified, numeric, closed = figures(80.0)
    assert numeric < closed < lower <= certified
