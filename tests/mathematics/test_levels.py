"""Levels and their real-valued probabilities: the law, its symmetry, its privacy, and the integers behind it."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from apes.errors import ParameterError
from apes.mathematics.levels import level_probabilities, level_values, levels_beyond
from apes.mathematics.thresholds import acceptance_thresholds

LEVELS = [2, 3, 5, 16, 255, 256]
BUDGETS = np.array([1e-9, 0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 50.0])
ROUNDING = np.finfo(float).eps


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("clip", [0.1, 1.0, 3.0])
def test_values_are_even_steps_from_end_to_end(levels, clip):
    values = level_values(levels, clip)
    assert values.shape == (levels,)
    assert (values[0], values[-1]) == (-clip, clip)
    assert (values == -values[::-1]).all()  # odd, to the last bit: no bias of the coding
    exact = [Fraction(clip) * (Fraction(2 * k, levels - 1) - 1) for k in range(levels)]
    assert max(abs(Fraction(v) - e) for v, e in zip(values.tolist(), exact, strict=True)) <= clip * ROUNDING


@pytest.mark.parametrize("levels", LEVELS)
def test_levels_beyond_a_threshold(levels):
    assert levels_beyond(levels, 0.0).all()
    assert np.flatnonzero(levels_beyond(levels, 1.0)).tolist() == [0, levels - 1]
    for threshold in (0.001, 0.12345, 0.5001, 0.77, 0.999):
        exact = [abs(Fraction(2 * k, levels - 1) - 1) >= Fraction(threshold) for k in range(levels)]
        assert levels_beyond(levels, threshold).tolist() == exact
    for threshold in (-0.1, 1.1, math.nan):
        with pytest.raises(ParameterError, match=rf"threshold must be in \[0, 1\], got {threshold}"):
            levels_beyond(levels, threshold)


@pytest.mark.parametrize("levels", LEVELS)
def test_every_row_is_a_distribution(levels):
    p = level_probabilities(BUDGETS, levels)
    assert p.shape == (len(BUDGETS), levels, levels)
    assert (p > 0).all()
    assert np.abs(p.sum(axis=2) - 1).max() <= 4 * ROUNDING


@pytest.mark.parametrize("levels", [2, 3, 5, 16])
def test_probabilities_match_the_definition(levels):
    with mpmath.workprec(200):
        for budget, law in zip(BUDGETS, level_probabilities(BUDGETS, levels), strict=True):
            for j in range(levels):
                weights = [mpmath.exp(-mpmath.mpf(budget) * abs(k - j) / (levels - 1)) for k in range(levels)]
                for k in range(levels):
                    exact = weights[k] / mpmath.fsum(weights)
                    # exp magnifies the rounding of its argument, which is at most the budget
                    assert abs(law[j, k] / exact - 1) <= (8 + budget) * ROUNDING


@pytest.mark.parametrize("levels", LEVELS)
def test_reflecting_the_levels_changes_nothing(levels):
    p = level_probabilities(BUDGETS, levels)
    np.testing.assert_allclose(p[:, ::-1, ::-1], p, rtol=8 * ROUNDING)


@pytest.mark.parametrize("levels", LEVELS)
def test_log_ratio_is_the_budget_between_the_ends_and_never_more(levels):
    logs = np.log(level_probabilities(BUDGETS, levels))
    spread = (logs.max(axis=1) - logs.min(axis=1)).max(axis=1)
    rounding = 4 * ROUNDING * np.abs(logs).max(axis=(1, 2))
    assert (np.abs(spread - BUDGETS) <= rounding).all()
    assert (np.abs(logs[:, 0, 0] - logs[:, -1, 0] - BUDGETS) <= rounding).all()


@pytest.mark.parametrize("levels", LEVELS)
def test_integers_and_probabilities_agree(levels):
    """The reports are drawn from integers, the accountant computes with these numbers: the same law."""
    budgets = np.array([0.01, 0.1, 1.0, 3.0, 8.0])
    table, law = acceptance_thresholds(budgets, levels), level_probabilities(budgets, levels)
    worst = 0.0
    for row, p in zip(table.tolist(), law, strict=True):
        weights = [t + 1 for t in row]
        for j in range(levels):
            total = sum(weights[abs(k - j)] for k in range(levels))
            worst = max(worst, *(abs(weights[abs(k - j)] / total - p[j, k]) / p[j, k] for k in range(levels)))
    assert worst <= 32 * ROUNDING  # floating point's own error: that of the integers is checked below


@pytest.mark.parametrize("levels", [2, 3, 5, 16, 256])
def test_integers_are_within_a_unit_of_the_ideal_law(levels):
    """As the module says: within 2^-64 exp(e) of p(k | j), relatively; absolutely within 2^-60."""
    with mpmath.workprec(200):
        for budget in (0.01, 0.1, 1.0, 3.0, 8.0):
            weights = [int(t) + 1 for t in acceptance_thresholds(np.array([budget]), levels)[0]]
            ideal = [mpmath.exp(-mpmath.mpf(budget) * s / (levels - 1)) for s in range(levels)]
            for j in {0, levels // 3, levels // 2, levels - 1}:
                steps = [abs(k - j) for k in range(levels)]
                total, mass = sum(weights[s] for s in steps), mpmath.fsum(ideal[s] for s in steps)
                errors = [(mpmath.mpf(weights[s]) / total, ideal[s] / mass) for s in steps]
                assert max(abs(p - q) for p, q in errors) <= 2.0**-60
                assert max(abs(p / q - 1) for p, q in errors) <= 2.0**-64 * math.exp(budget)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        (1, r"levels must be in \[2, 256\], got 1"),
        (257, r"levels must be in \[2, 256\], got 257"),
        (2.5, r"levels must be a whole number, got 2.5"),
        (True, r"levels must be a whole number, got True"),
    ],
)
def test_invalid_levels(levels, message):
    for call in (lambda: level_values(levels, 1.0), lambda: level_probabilities(np.array([1.0]), levels)):
        with pytest.raises(ParameterError, match=message):
            call()


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_invalid_clip(clip):
    with pytest.raises(ParameterError, match=rf"clip must be in \(0, inf\), got {clip}"):
        level_values(16, clip)


@pytest.mark.parametrize("budgets", [[0.0], [1.0, -1.0], [math.nan], [math.inf], [], [[1.0]]])
def test_invalid_budgets(budgets):
    with pytest.raises(ParameterError, match="budgets"):
        level_probabilities(np.array(budgets), 16)
