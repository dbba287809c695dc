"""Exactness of the coded mechanism: the integers that are drawn from are epsilon-LDP, to the last unit.

The judge is brute force over all (k, i, j) in Python's integers, against an interval that surely holds
exp(epsilon); epsilon is the exact value of the float. The same judge condemns tables that are one unit off.
"""

import math
import random
from collections import Counter
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levels import sampled

from apes.errors import ParameterError
from apes.mathematics.thresholds import (
    MAX_LEVELS,
    _decay,
    _is_private_exactly,
    acceptance_thresholds,
    fill_thresholds,
    is_private,
)

FULL = 1 << 64
BUDGETS = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0]
ALWAYS_PRIVATE = [46.0, 50.0, 100.0, 700.0]
LEVELS = [2, 3, 5, 16, 255, 256]

interval = mpmath.iv.__class__()
interval.prec = 400
mp = mpmath.mp.clone()


def exp_bounds(epsilon):
    """Rationals below and above exp(epsilon), about 2^-400 apart."""
    ends = interval.exp(interval.mpf(epsilon))._mpi_
    return tuple(Fraction(mantissa) * Fraction(2) ** exponent for _, mantissa, exponent, _ in ends)


def weights(budget, levels):
    return [int(t) + 1 for t in acceptance_thresholds(np.array([budget]), levels)[0]]


def thresholds(table):
    return np.array([a - 1 for a in table], dtype=np.uint64)


def row_sums(table):
    levels = len(table)
    return [sum(table[abs(k - j)] for k in range(levels)) for j in range(levels)]


def worst_ratio(table):
    """Largest p(k | j) / p(k | i) over all k, i, j, with p(k | j) = A_|k-j| / Z_j."""
    levels, sums = len(table), row_sums(table)
    worst = Fraction(1)
    for k in range(levels):
        # Only the largest and the smallest of the p(k | j) matter; compared by cross multiplication.
        large = small = 0
        for j in range(1, levels):
            a, z = table[abs(k - j)], sums[j]
            if a * sums[large] > table[abs(k - large)] * z:
                large = j
            if a * sums[small] < table[abs(k - small)] * z:
                small = j
        worst = max(worst, Fraction(table[abs(k - large)] * sums[small], sums[large] * table[abs(k - small)]))
    return worst


def meets_conditions(table):
    """Conditions (i) and (iii) of the theorem, as they are written there."""
    last, sums = len(table) - 1, row_sums(table)
    decreases = all(table[s] >= table[s + 1] for s in range(last))
    return decreases and all(table[last] * sums[j] <= table[max(j, last - j)] * sums[0] for j in range(last + 1))


@pytest.mark.parametrize("epsilon", [*BUDGETS, 50.0])
def test_the_interval_holds_exp(epsilon):
    lower, upper = exp_bounds(epsilon)
    # Taylor's polynomial is below exp; the rest is below twice its first term, as that is below n > 2 epsilon.
    polynomial, term, x = Fraction(0), Fraction(1), Fraction(epsilon)
    for n in range(1, 120 + int(8 * epsilon)):
        polynomial, term = polynomial + term, term * x / n
    assert 2 * term < polynomial / 2**390
    assert lower <= polynomial + 2 * term
    assert polynomial <= upper
    assert 0 < upper - lower < lower / 2**390


def test_worst_ratio_is_the_maximum_over_all_triples():
    draws = random.Random(1)
    for levels in (2, 3, 4, 6):
        table = [draws.randrange(1, 50) for _ in range(levels)]
        p = [[Fraction(table[abs(k - j)], z) for k in range(levels)] for j, z in enumerate(row_sums(table))]
        triples = [pj[k] / pi[k] for pj in p for pi in p for k in range(levels)]
        assert worst_ratio(table) == max(triples)


@pytest.mark.parametrize(("budget", "levels"), sampled(list(product(BUDGETS + ALWAYS_PRIVATE, LEVELS)), keep=32))
def test_every_table_is_private_and_not_if_one_unit_less(budget, levels):
    lower, upper = exp_bounds(budget)
    table = weights(budget, levels)
    assert table[0] == FULL
    assert worst_ratio(table) <= lower
    # The worst pair is (0 | 0) against (0 | K - 1): its ratio is A_0 / A_{K-1}.
    if table[-1] > 1:
        assert worst_ratio([*table[:-1], table[-1] - 1]) > upper


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_table_rounded_down_is_not_private(budget):
    """Every table, and in theory; to nearest it would be half of them."""
    for levels in LEVELS:
        with mp.workprec(300):
            down = [int(mp.floor(FULL * mp.exp(-mp.mpf(budget) * s / (levels - 1)))) for s in range(levels)]
        assert worst_ratio(down) > exp_bounds(budget)[1]


@pytest.mark.parametrize(
    "levels", [*LEVELS[:4], *(pytest.param(levels, marks=pytest.mark.exhaustive) for levels in LEVELS[4:])]
)
def test_thresholds_are_the_exact_ones_rounded_up(levels):
    budgets = [*np.geomspace(1e-12, 700, 120).tolist(), *BUDGETS, *ALWAYS_PRIVATE, 1.0 - 2**-53, 2.0**-40]
    budgets = np.array(budgets)
    table = acceptance_thresholds(budgets, levels)
    assert table.shape == (len(budgets), levels)
    assert table.dtype == np.uint64
    with mp.workprec(300):
        for budget, row in zip(budgets.tolist(), table.tolist(), strict=True):
            for s, threshold in enumerate(row):
                assert threshold == int(mp.ceil(FULL * mp.exp(-mp.mpf(budget) * s / (levels - 1)))) - 1


@pytest.mark.parametrize("steps", [1, 2, 15, 254, 255])
def test_decay_is_bounded_from_above_and_closely(steps):
    """Condition (ii) rests on it: 2^127 exp(-epsilon / steps) is never undercut."""
    for budget in [*np.geomspace(1e-14, 700, 300).tolist(), *BUDGETS, *ALWAYS_PRIVATE]:
        hi, lo = _decay(budget, steps)
        with mp.workprec(400):
            exact = mp.exp(-mp.mpf(budget) / steps) * 2**127
            # 128 units are added to the series, whose own error is below 83; every squaring may double it.
            squarings = max(0, math.frexp(budget)[1] + 2)
            assert exact <= int(hi) << 64 | int(lo) <= exact + (212 << squarings)


@pytest.mark.parametrize("levels", [64, 200, 256])
def test_large_budgets_that_the_quick_check_does_not_settle(levels):
    """Near 45 a fine grid's smallest weights are single units, and (iii) asks too much: the exact check decides."""
    quick = []
    for budget in np.linspace(41, 46, 12):
        row, checked = np.empty((1, levels), dtype=np.uint64), np.empty(1, dtype=np.bool_)
        fill_thresholds(np.array([budget]), row, checked)
        table = [int(t) + 1 for t in row[0]]
        quick.append(bool(checked[0]))
        assert quick[-1] == (meets_conditions(table) or budget >= 46)
        assert worst_ratio(weights(budget, levels)) <= exp_bounds(budget)[0]
    assert len(set(quick)) == 2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 43.0])
def test_the_exact_check_finds_what_leaks(epsilon):
    table = weights(epsilon, 16)
    assert _is_private_exactly(thresholds(table), epsilon)
    if table[-1] > 1:
        assert not _is_private_exactly(thresholds([*table[:-1], table[-1] - 1]), epsilon)
    assert not _is_private_exactly(thresholds(table), epsilon * 0.99)
    assert not _is_private_exactly(thresholds([table[0], table[2], table[1], *table[3:]]), epsilon)


@pytest.mark.parametrize("budget", [5e-324, 1e-300, 1e-20, 1e-16, 2.0**-49])
def test_tiny_budgets_give_uniform_reports(budget):
    assert set(weights(budget, 256)) == {FULL}


def test_a_table_that_leaks_is_refused(monkeypatch):
    """No budget is known to get here: let the exact check say no."""
    asked = []
    monkeypatch.setattr("apes.mathematics.thresholds._is_private_exactly", lambda row, epsilon: asked.append(epsilon))
    with pytest.raises(ParameterError, match=r"budgets\[1\] = 45\.0 gives no exact table at 256 levels"):
        acceptance_thresholds(np.array([1.0, 45.0]), 256)
    assert asked == [45.0]


def test_users_in_a_block_do_not_change_each_other():
    budgets = np.array([0.3, 8.0, 0.01, 50.0])
    block = acceptance_thresholds(budgets, 16)
    for user in range(4):
        assert block[user].tolist() == acceptance_thresholds(budgets[user : user + 1], 16)[0].tolist()


@pytest.mark.parametrize("levels", [4, 5, 16, 256])
@pytest.mark.parametrize("budget", [0.1, 1.0, 8.0])
def test_is_private_rejects_what_it_has_to(budget, levels):
    table = weights(budget, levels)
    assert is_private(thresholds(table))
    for s in range(1, levels):
        rising = list(table)
        rising[s - 1] = table[s] - 1
        assert not is_private(thresholds(rising))
    # Weights next to the last one that are as small as it is still decrease, but (iii) breaks:
    # row 1 holds more mass than row 0, and its level K - 1 no larger a weight.
    for flat in range(2, levels - 1, max(1, levels // 8)):
        broken = [*table[:-flat], *[table[-1]] * flat]
        assert not is_private(thresholds(broken))
        assert worst_ratio(broken) > exp_bounds(budget)[1]


@pytest.mark.parametrize(
    "levels", [4, 5, 8, *(pytest.param(levels, marks=pytest.mark.exhaustive) for levels in (255, 256))]
)
def test_is_private_turns_at_the_very_unit(levels):
    """Bisect for the last weight at which (iii) breaks: three-word products have to be right to the end."""
    for budget in (0.2, 1.0, 6.0):
        body = weights(budget, levels)[:-1]
        passing, failing = 1, body[-1]
        assert meets_conditions([*body, passing])
        assert not meets_conditions([*body, failing])
        while failing - passing > 1:
            middle = (passing + failing) // 2
            passing, failing = (middle, failing) if meets_conditions([*body, middle]) else (passing, middle)
        assert is_private(thresholds([*body, passing]))
        assert not is_private(thresholds([*body, failing]))


@st.composite
def perturbed_tables(draw):
    """A true table of few levels with some weights moved by anything from one unit to a quarter of the range."""
    budget = draw(st.sampled_from([1e-12, 1e-3, 0.1, 1.0, 3.0, 8.0, 20.0, 40.0]))
    table = weights(budget, draw(st.integers(2, 6)))
    for _ in range(draw(st.integers(0, 3))):
        s = draw(st.integers(0, len(table) - 1))
        move = draw(st.sampled_from([-1, 1])) * draw(st.integers(0, 3)) * 2 ** draw(st.integers(0, 60))
        table[s] = min(max(table[s] + move, 1), FULL)
    return budget, table


def test_is_private_is_the_theorem_and_the_theorem_holds():
    seen = Counter()

    @settings(derandomize=True, deadline=None, max_examples=600)
    @given(perturbed_tables())
    def check(case):
        budget, table = case
        accepted = is_private(thresholds(table))
        assert accepted == meets_conditions(table)
        lower, upper = exp_bounds(budget)
        certified, ratio = accepted and table[-1] * lower >= table[0], worst_ratio(table)
        if certified:
            assert ratio <= lower
        seen[certified, ratio <= upper] += 1

    check()
    assert min(seen[True, True], seen[False, False]) > 100  # tables that keep epsilon and tables that do not


@pytest.mark.parametrize(
    ("budgets", "levels", "message"),
    [
        ([0.0], 16, r"budgets\[0\] must be in \(0, inf\), got 0.0"),
        ([1.0, -1.0], 16, r"budgets\[1\] must be in \(0, inf\), got -1.0"),
        ([math.nan], 16, r"budgets\[0\] .* got nan"),
        ([math.inf], 16, r"budgets\[0\] .* got inf"),
        ([], 16, r"budgets must be a non-empty list .* shape \(0,\)"),
        ([[1.0]], 16, r"budgets must be a non-empty list .* shape \(1, 1\)"),
        ([1.0], 1, r"levels must be in \[2, 256\], got 1"),
        ([1.0], 257, r"levels must be in \[2, 256\], got 257"),
        ([1.0], 2.5, r"levels must be a whole number, got 2.5"),
        ([1.0], True, r"levels must be a whole number, got True"),
    ],
)
def test_invalid_parameters(budgets, levels, message):
    with pytest.raises(ParameterError, match=message):
        acceptance_thresholds(np.array(budgets), levels)


def test_a_level_is_one_byte():
    assert MAX_LEVELS == 256
