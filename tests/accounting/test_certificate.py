"""The certificate: golden values, brute force over all outcomes, and the conduct of `certify`."""

import math
from functools import cache
from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest
from levels import sampled

from apes.accounting.certificate.blanket import hidden_pair
from apes.accounting.certificate.curve import HidingCurve, _grouped, hiding_curve, shaped_curve
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certified_epsilon, certify
from apes.accounting.victims import honest_others
from apes.errors import ParameterError, RegimeError
from apes.mathematics.levels import level_probabilities
from apes.mathematics.thresholds import acceptance_thresholds

TIGHT = 1.01
PAPER = np.linspace(0.05, 1, 10_000)
# Random populations against the certificate; so many more are exhaustive.
FEW_CASES, CASES = 30, 150
# Relative and absolute error of the oracle's own float64 sums.
ORACLE = (1e-12, 1e-15)


# All users at e; `lower` is the exact divergence of one dataset, so no bound may be below it.
@pytest.mark.parametrize(
    ("budget", "n", "certified", "lower"),
    sampled(
        [
            (0.05, 10_000, 0.001063, 0.001051),
            (0.5, 10_000, 0.013748, 0.012387),
            (1, 1_000, 0.109451, 0.0),
            (1, 10_000, 0.032612, 0.026363),
            (1, 100_000, 0.009706, 0.0),
            (2, 10_000, 0.089122, 0.061760),
            (3, 10_000, 0.182894, 0.116285),
        ],
        keep=3,
    ),
)
def test_golden_equal_budgets(budget, n, certified, lower):
    epsilon = certified_epsilon(Exposure(np.full(n, float(budget)), 1, None), 1e-8)
    assert lower <= epsilon <= TIGHT * certified


@pytest.mark.parametrize(("budget", "full_blanket"), [(1.0, 0.0307), (3.0, 0.157)])
def test_golden_full_blanket(budget, full_blanket):
    assert certify(np.full(10_000, budget), delta=1e-8, levels=None).epsilon <= full_blanket


def test_golden_paper_population():
    assert certify(PAPER, delta=4.62e-9, levels=None).epsilon <= TIGHT * 0.029242
    assert hiding_curve(0.05, PAPER[1:], 1e-8, None).epsilon(1e-8) <= TIGHT * 0.001210


# n = 100,000, one user at e, the others at 0.05 with their data in the centre.
@pytest.mark.parametrize(
    ("budget", "exact", "certified"),
    [
        (1, 0.00731, 0.00739),
        (3, 0.02067, 0.02088),
        (5, 0.03003, 0.03033),
        (8, 0.03951, 0.03988),
        (20, 0.06407, 0.06466),
        (80, 0.13249, 0.1334),
    ],
)
def test_golden_counterexample_to_the_published_bound(budget, exact, certified):
    epsilon = hiding_curve(float(budget), np.full(99_999, 0.05), 1e-8, None).epsilon(1e-8)
    assert exact <= epsilon <= TIGHT * certified


@cache
def _states(n, levels):
    """Histograms of n reports, and for each state of n - 1 reports where one more report of level k leads."""
    index = {}
    for reports in combinations_with_replacement(range(levels), n):
        index[tuple(np.bincount(reports, minlength=levels).tolist() if n else [0] * levels)] = len(index)
    before = np.array(list(_states(n - 1, levels)[0])) if n else np.zeros((0, levels), dtype=int)
    steps = [[index[tuple((row + np.eye(levels, dtype=int)[k]).tolist())] for row in before] for k in range(levels)]
    return list(index), np.array(steps, dtype=int).reshape(levels, -1)


def _add_report(law, n, probabilities):
    states, steps = _states(n, probabilities.size)
    result = np.zeros(len(states))
    for k, probability in enumerate(probabilities):
        np.add.at(result, steps[k], law * probability)
    return result


def _ideal_rows(budget, levels):
    k = np.arange(levels)
    rows = np.exp(-budget * np.abs(k[:, None] - k) / (levels - 1))
    return rows / rows.sum(axis=1, keepdims=True)


def _integer_rows(budget, levels):
    """p(k | j) of the table of integers that the device draws from."""
    counts = [int(t) + 1 for t in acceptance_thresholds(np.array([budget]), levels)[0]]
    rows = [[counts[abs(k - j)] for k in range(levels)] for j in range(levels)]
    return np.array([[count / sum(row) for count in row] for row in rows])


def _outcomes(victim_rows, others_rows, data):
    """P(histogram | victim's level), one column per level of the victim."""
    law = np.ones(1)
    for n, (rows, level) in enumerate(zip(others_rows, data, strict=True), start=1):
        law = _add_report(law, n, rows[level])
    return np.stack([_add_report(law, len(others_rows) + 1, row) for row in victim_rows], axis=1)


def _worst_divergence(outcomes, t):
    """Largest hockey-stick divergence over all pairs of the victim's levels."""
    return max(
        float(np.maximum(column[:, None] - math.exp(t) * outcomes, 0).sum(axis=0).max()) for column in outcomes.T
    )


def _population(rng):
    n, levels = int(rng.integers(1, 7)), int(rng.integers(2, 7))
    budgets = np.exp(rng.uniform(np.log(0.01), np.log(8), n))
    pattern = rng.integers(5)
    if pattern == 0:
        budgets[1:] = np.exp(rng.uniform(np.log(0.01), np.log(0.3), n - 1))
    data = rng.integers(0, levels, n - 1)
    if pattern in (1, 2, 3):
        data[:] = (0, levels // 2, levels - 1)[pattern - 1]
    return budgets, levels, data


def _points(budget):
    return [x * budget for x in (0.0, 0.05, 0.3, 0.7, 0.97, -0.2, -0.9)]


def _curves(budgets, levels):
    budget, others = float(budgets[0]), budgets[1:]
    curves = [shaped_curve(budget, others, shape, levels) for shape in (0.0, budget / 2, budget)]
    return [*curves, hiding_curve(budget, others, 1e-3, levels)]


def _violations(rows_of, seed, cases, scale=1.0):
    """How often the exact divergence of a random dataset is above `scale` times the bound, out of how many."""
    rng = np.random.default_rng(seed)
    found = total = 0
    for _ in range(cases):
        budgets, levels, data = _population(rng)
        rows = [rows_of(budget, levels) for budget in budgets]
        outcomes = _outcomes(rows[0], rows[1:], data)
        curves = _curves(budgets, levels)
        for t in _points(float(budgets[0])):
            exact = _worst_divergence(outcomes, t) * (1 - ORACLE[0]) - ORACLE[1]
            # For negative t the certificate is 1 - exp(t) plus what counts; only that part is scaled.
            trivial = max(0.0, -math.expm1(t))
            for curve in curves:
                total += 1
                found += exact > trivial + scale * (curve.delta(t) - trivial)
    return found, total


@pytest.mark.parametrize("cases", [FEW_CASES, pytest.param(CASES, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("rows_of", [_ideal_rows, _integer_rows])
def test_brute_force_never_exceeds_the_certificate(rows_of, cases):
    found, total = _violations(rows_of, seed=1, cases=cases)
    assert total == cases * 28
    assert found == 0


def test_brute_force_catches_a_certificate_ten_per_cent_too_small():
    found, total = _violations(_ideal_rows, seed=1, cases=FEW_CASES, scale=0.9)
    assert found > total / 10


def test_brute_force_every_user_is_covered_by_the_largest_budget():
    # What `certify` relies on: the curve of the largest budget, without the smallest, holds for every victim.
    rng = np.random.default_rng(7)
    for _ in range(30):
        budgets, levels, _ = _population(rng)
        curves = [
            shaped_curve(float(budgets.max()), honest_others(budgets, 0), share * float(budgets.max()), levels)
            for share in (0.0, 0.5, 1.0)
        ]
        bounds = {t: min(curve.delta(t) for curve in curves) for t in _points(float(budgets.max()))}
        rows = [_ideal_rows(budget, levels) for budget in budgets]
        for victim in range(budgets.size):
            others = rows[:victim] + rows[victim + 1 :]
            outcomes = _outcomes(rows[victim], others, rng.integers(0, levels, budgets.size - 1))
            for t, bound in bounds.items():
                assert _worst_divergence(outcomes, t) * (1 - ORACLE[0]) - ORACLE[1] <= bound


@pytest.mark.parametrize("levels", [2, 3, 4, 17, 64])
@pytest.mark.parametrize(("smaller", "larger"), [(0.1, 0.11), (0.05, 1.0), (1.0, 1.5), (0.5, 6.0)])
def test_a_smaller_budget_is_a_larger_one_on_a_randomised_input(levels, smaller, larger):
    """docs/proofs.md, 4: one mechanism is the other after a random map of inputs; the other way round it is not."""
    weak, strong = level_probabilities(np.array([smaller, larger]), levels)
    there, back = weak @ np.linalg.inv(strong), strong @ np.linalg.inv(weak)
    assert there.sum(axis=1) == pytest.approx(1, abs=1e-9)
    assert there.min() > -1e-9
    assert back.min() < -0.01


def test_of_many_budgets_none_is_lowered():
    """A larger budget hides less: those who stand for others have no smaller ones."""
    budgets = np.random.default_rng(2).permutation(np.geomspace(0.01, 8, 10_007))
    few, counts = _grouped(budgets)
    assert few.size < 5000
    assert counts.sum() == budgets.size
    raised = np.repeat(few, counts)
    assert (raised >= np.sort(budgets)).all()
    assert (raised <= np.sort(budgets) * 1.01).all()


def test_alone_the_certificate_is_the_local_divergence():
    pair = hidden_pair(1.5, 0.0, 5)
    curve = shaped_curve(1.5, np.empty(0), 0.0, 5)
    for t in (0.0, 0.4, 1.2, -0.5):
        exact = float(np.maximum(pair.first - math.exp(t) * pair.second, 0).sum())
        assert exact <= curve.delta(t, 4096) <= exact * 1.001 + 1e-3


def test_delta_is_zero_from_the_budget_on():
    curve = hiding_curve(0.7, np.full(10, 0.3), 1e-3, 16)
    assert isinstance(curve, HidingCurve)
    assert curve.delta(0.7) == curve.delta(3.0) == 0.0
    assert curve.delta(-0.7) == pytest.approx(-math.expm1(-0.7))


@pytest.mark.parametrize(
    ("budgets", "keywords"),
    [
        ([1.0, math.nan], {}),
        ([1.0, 0.0], {}),
        ([1.0, -1.0], {}),
        ([1.0, math.inf], {}),
        ([], {}),
        ([1.0, 1.0], {"colluders": 2}),
        ([1.0, 1.0], {"colluders": -1}),
        ([1.0, 1.0], {"levels": 1}),
        ([1.0, 1.0], {"levels": 257}),
        ([1.0, 1.0], {"delta": 0.0}),
        ([1.0, 1.0], {"delta": 1.0}),
        ([1.0, 1.0], {"delta": -1e-6}),
        ([1.0, 1.0], {"delta": math.nan}),
        ([1.0, 1.0], {"dimensions": 0}),
        ([1.0, 1.0], {"rounds": 0}),
    ],
)
def test_parameters_outside_their_range(budgets, keywords):
    with pytest.raises(ParameterError):
        certify(np.array(budgets, dtype=np.float64), **{"delta": 1e-6, **keywords})


def test_too_small_a_delta_for_composition():
    assert certify(np.full(100, 0.1), delta=1e-13, rounds=2).epsilon <= 0.2 * (1 + 1e-15)
    assert certify(np.full(100, 0.1), delta=1e-200).epsilon <= 0.1
    with pytest.raises(RegimeError, match="delta"):
        certify(np.full(100, 0.1), delta=1e-101, rounds=2)


# The answer of a bisection is within 1e-5 of the bound, and the bound moves a little with the lattice.
WOBBLE = 1.002


def _is_rising(values):
    return all(low <= high * WOBBLE for low, high in pairwise(values))


@pytest.mark.exhaustive
@pytest.mark.parametrize("levels", [2, 4, None, 256])
def test_monotone(levels):
    budgets = np.repeat(np.linspace(0.1, 1.2, 6), 20)

    def epsilon(budgets, delta=1e-6, colluders=0):
        return certified_epsilon(Exposure(budgets, 1, levels), delta, colluders=colluders)

    assert _is_rising([epsilon(np.tile(budgets, k)) for k in (8, 2, 1)])
    assert _is_rising([epsilon(budgets, delta=delta) for delta in (1e-2, 1e-4, 1e-8, 1e-15)])
    assert _is_rising([epsilon(budgets, colluders=k) for k in (0, 10, 50, 119)])
    assert _is_rising([epsilon(np.append(budgets, e)) for e in (1.3, 4.0, 30.0)])
    assert _is_rising([epsilon(s * budgets) for s in (0.01, 1.0, 9.0)])


def test_calling_twice_gives_the_same():
    budgets = np.linspace(0.1, 1.2, 300)
    kept = budgets.copy()
    first = certify(budgets, delta=1e-6, dimensions=5)
    assert first == certify(budgets[::-1], delta=1e-6, dimensions=5)
    assert np.array_equal(budgets, kept)


@pytest.mark.parametrize(
    ("budget", "n", "levels"),
    sampled(list(product([1e-6, 1e-3, 0.3, 5.0, 50.0, 80.0], [1, 3], [None, 2, 256])), keep=4),
)
def test_never_above_the_local_budget(levels, budget, n):
    assert 0 < certify(np.full(n, budget), delta=1e-9, levels=levels).epsilon <= budget
    assert certify(np.full(n, budget), delta=1e-9, levels=levels, dimensions=3, rounds=2).epsilon <= 6 * budget * (
        1 + 1e-15
    )


def test_level_says_what_is_covered():
    budgets = np.full(50, 0.2)
    levels = [certify(budgets, delta=1e-4, **k).level for k in ({}, {"dimensions": 2}, {"dimensions": 2, "rounds": 2})]
    assert levels == ["coordinate", "user", "rounds"]


@pytest.mark.parametrize("levels", sampled([256, 2, None], keep=1))
def test_budgets_from_a_millionth_to_thirty(levels):
    """In one population: a sound number, between what some dataset forces and what the local budget gives anyway."""
    budgets = np.geomspace(1e-6, 30, 500)
    one = certify(budgets, delta=1e-6, levels=levels)
    assert 0 < one.lower <= one.epsilon <= 30
    many = certify(budgets, delta=1e-6, levels=levels, dimensions=3, rounds=2)
    assert one.lower <= many.lower <= many.epsilon <= 180 * (1 + 1e-15)
    assert one.epsilon <= many.epsilon


@pytest.mark.parametrize(("budget", "levels"), sampled(list(product([1e-300, 1e-17, 1e-12, 1e-9], [2, 256, None])), 1))
def test_budgets_next_to_nothing(budget, levels):
    """At most what they spend locally, and no error."""
    assert certified_epsilon(Exposure(np.full(20, budget), 1, levels), 1e-12) <= budget
    sparse = certified_epsilon(Exposure(np.full(20, budget), 9, levels, top_b_first=2), 1e-12)
    assert sparse <= 4 * budget * (1 + 1e-15)
    mixed = np.array([budget, 1.0, 0.5])
    assert 0 < certified_epsilon(Exposure(mixed, 1, levels), 1e-6) <= 1


def test_says_how_tight_it_is():
    guarantee = certify(PAPER[::10], delta=1e-5, dimensions=100)
    assert 0.8 * guarantee.epsilon < guarantee.lower < guarantee.epsilon
