"""The divergence of one report among m - 1 draws from the blanket, against enumeration in high precision."""

from itertools import combinations_with_replacement, product
from math import factorial

import mpmath
import numpy as np
import pytest
from levels import sampled

from apes.accounting.certificate.blanket import hidden_pair
from apes.accounting.certificate.divergence import excess

mp = mpmath.mp.clone()
mp.dps = 120


def _exact(budget, shape, levels, m, t):
    """E max(0, average of m copies of L), by enumeration of all multisets of levels."""
    e, b, t = mp.mpf(budget), mp.mpf(shape), mp.mpf(t)
    first = [mp.exp(-e * k / (levels - 1)) for k in range(levels)]
    blanket = [mp.exp(-b * abs(mp.mpf(k) - mp.mpf(levels - 1) / 2) / (levels - 1)) for k in range(levels)]
    first = [p / mp.fsum(first) for p in first]
    blanket = [p / mp.fsum(blanket) for p in blanket]
    loss = [(first[k] - mp.exp(t) * first[-1 - k]) / blanket[k] for k in range(levels)]
    total = mp.mpf(0)
    for draw in combinations_with_replacement(range(levels), m):
        value = mp.fsum(loss[k] for k in draw)
        if value > 0:
            counts = np.bincount(draw, minlength=levels).tolist()
            weight = mp.mpf(factorial(m))
            for k, count in enumerate(counts):
                weight *= blanket[k] ** count / factorial(count)
            total += weight * value
    return total / m


def _bound(budget, shape, levels, sizes, t, cells=128):
    return excess(hidden_pair(budget, shape, levels), t, np.array(sizes, dtype=np.int64), cells)


PAIRS = [(0.05, 3), (1.0, 2), (1.0, 4), (4.0, 3), (8.0, 5)]


@pytest.mark.parametrize(
    ("budget", "levels", "share"), sampled([(*pair, share) for pair, share in product(PAIRS, [0.0, 0.5, 1.0])], keep=5)
)
def test_above_enumeration_and_close(budget, levels, share):
    sizes = [1, 2, 3, 5]
    for t in (0.0, 0.1 * budget, 0.6 * budget, 0.999 * budget):
        coarse, middle, fine = (_bound(budget, share * budget, levels, sizes, t, cells) for cells in (16, 128, 4096))
        for i, m in enumerate(sizes):
            exact = _exact(budget, share * budget, levels, m, t)
            assert all(mp.mpf(float(bound[i])) >= exact for bound in (coarse, middle, fine))
            if budget <= 1 and t < 0.9 * budget:
                assert mp.mpf(float(fine[i])) <= exact * mp.mpf("1.01")


@pytest.mark.parametrize("shape", sampled([1.0, 0.0], keep=1))
def test_tiny_values_keep_their_digits(shape):
    # Two levels: L has two values, one report of the rarer kind decides; values go down to 1e-40 and below.
    smallest = mp.mpf(1)
    for m in (20, 60, 150):
        for t in (0.5, 1.0, 1.5, 1.9):
            exact = _exact(2.0, shape, 2, m, t)
            bound = mp.mpf(float(_bound(2.0, shape, 2, [m], t, 4096)[0]))
            assert exact <= bound <= exact * mp.mpf("1.6")
            smallest = min(smallest, exact)
    assert smallest < mp.mpf("1e-40")


def test_exact_where_the_lattice_is():
    # At t = 0 and two levels L is -x or x, both lattice points: nothing is lost but rounding.
    for m in (1, 2, 7, 40):
        exact = _exact(0.8, 0.0, 2, m, 0.0)
        assert exact <= mp.mpf(float(_bound(0.8, 0.0, 2, [m], 0.0)[0])) <= exact * mp.mpf("1.0001")


@pytest.mark.parametrize(("budget", "levels"), sampled(list(product([0.05, 1.0, 5.0], [None, 2, 256])), keep=3))
def test_decreases_with_the_number_that_hide(levels, budget):
    for share in (0.0, 1.0):
        for t in (0.0, 0.02 * budget, 0.5 * budget):
            values = _bound(budget, share * budget, levels, [1, 2, 3, 5, 9, 30, 100, 1000], t)
            # Not the bound itself but f decreases: rounding and the part beyond the window may move it a little.
            assert (values[1:] <= values[:-1] * 1.0001 + 1e-300).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("levels", [5, None, 256])
def test_finer_cells_are_not_looser(levels):
    for budget in (0.05, 1.0, 5.0):
        for t in (0.0, 0.02 * budget, 0.3 * budget):
            sizes = [1, 4, 50, 3000]
            coarse, fine = (_bound(budget, 0.5 * budget, levels, sizes, t, cells) for cells in (16, 512))
            assert (fine <= coarse * (1 + 1e-6)).all()


def _two_levels(budget, m, t):
    """The same for two levels and the uniform blanket: a binomial sum, for large m."""
    p = 1 / (1 + mp.exp(-mp.mpf(budget)))
    up, down = 2 * (p - mp.exp(mp.mpf(t)) * (1 - p)), 2 * (1 - p - mp.exp(mp.mpf(t)) * p)
    total, weight, k = mp.mpf(0), mp.mpf(2) ** -m, m
    while k >= 0 and k * up + (m - k) * down > 0:
        total += weight * (k * up + (m - k) * down)
        weight *= mp.mpf(k) / (m - k + 1)
        k -= 1
    return total / m


def _where_the_lattice_is_exact(budget, ratio):
    """t at which the two values of L are as -ratio to 1: for ratio + 1 a power of 2 nothing but rounding is added."""
    q = np.exp(-budget)
    return float(np.log1p((ratio - 1) * -np.expm1(-budget) / (1 + ratio * q)))


@pytest.mark.parametrize("budget", [0.01, 0.3, 1.0, 3.0, 10.0])
def test_rounding_is_covered_where_the_lattice_is_exact(budget):
    for ratio in (1, 3, 7, 31, 127):
        t = _where_the_lattice_is_exact(budget, ratio)
        for m in (1, 2, 5, 100, 2000):
            exact = _two_levels(budget, m, t)
            if exact > mp.mpf("1e-280"):
                bound = mp.mpf(float(_bound(budget, 0.0, 2, [m], t)[0]))
                assert exact <= bound <= exact * mp.mpf("1.01")


@pytest.mark.parametrize(("budget", "ratio", "m"), [(1e-8, 31, 1000), (1e-6, 3, 3000), (1e-5, 31, 1000)])
def test_rounding_is_covered_at_tiny_budgets(budget, ratio, m):
    t = _where_the_lattice_is_exact(budget, ratio)
    assert mp.mpf(float(_bound(budget, 0.0, 2, [m], t)[0])) >= _two_levels(budget, m, t)


def test_heavy_tails_do_not_crash():
    assert (_bound(20.0, 20.0, 3, [1, 2, 3, 5], 0.0, 16) >= 0).all()
