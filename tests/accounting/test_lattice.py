"""Sums on a lattice: what their transforms may be off by, and what lies beyond their windows, is bounded from above."""

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from apes.accounting.composition.lattice import Lattice, law_of_sum, tail_bound, tilt


def exact_law(weights, count):
    """Law of the sum of so many copies, in 40 digits."""
    with mpmath.workdps(40):
        law = [mpmath.mpf(1)]
        for _ in range(count):
            after = [mpmath.mpf(0)] * (len(law) + len(weights) - 1)
            for i, mass in enumerate(law):
                for j, weight in enumerate(weights):
                    after[i + j] += mass * mpmath.mpf(float(weight))
            law = after
    return law


@pytest.mark.parametrize("count", [2, 15, 60])
def test_the_law_of_a_sum_is_off_by_no_more_than_is_said(count):
    tilted = tilt(Lattice(0.1, -1, np.array([0.2, 0.5, 0.3])), 0.7)
    found, off = law_of_sum([(tilted, count)], 128)
    exact = exact_law(tilted.weights, count)
    assert len(exact) <= 128
    errors = [abs(mpmath.mpf(float(found[(k - count) % 128])) - mass) for k, mass in enumerate(exact)]
    assert 0 < max(errors) <= off < 1e-11


@pytest.mark.parametrize(("p", "count"), [(0.5, 40), (0.1, 300), (0.01, 5000)])
@pytest.mark.parametrize("deviations", [1.0, 3.0, 8.0])
def test_what_lies_beyond_a_window_is_bounded_and_not_by_far_too_much(p, count, deviations):
    """P(S >= W), and E[S; S >= W] by W times the same, for a sum S of centred bits."""
    points, weights = np.array([-p, 1 - p]), np.array([1 - p, p])
    window = min(deviations * np.sqrt(count * p * (1 - p)), 0.9 * count * (1 - p))
    bound = tail_bound([(points, weights, count)], window)
    ones = np.arange(count + 1)
    sums, law = ones - count * p, binom.pmf(ones, count, p)
    beyond = sums >= window
    assert law[beyond].sum() <= bound
    assert float(sums[beyond] @ law[beyond]) <= window * bound
    # What Chernoff's bound loses.
    assert bound <= 1000 * law[beyond].sum()


def test_beyond_the_largest_sum_there_is_nothing():
    assert tail_bound([(np.array([-1.0, 1.0]), np.array([0.5, 0.5]), 10)], 10.5) == 0
    assert tail_bound([(np.array([-1.0, 1.0]), np.array([0.5, 0.5]), 10)], 9.5) >= 0.5**10
