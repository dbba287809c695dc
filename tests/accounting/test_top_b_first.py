"""Top-b-first, centrally: all outcomes of small populations against what is certified, and the lemmas behind it."""

import math
from itertools import product

import numpy as np
import pytest
from levels import sampled
from outcomes import ORACLE, add_user, divergence, user_law

from apes import Exposure, Terms, make_budgets
from apes.accounting.accountant import Accountant
from apes.accounting.certificate.top_b_first import top_b_first_curve
from apes.accounting.guarantee import certified_epsilon
from apes.errors import ParameterError
from apes.mathematics.levels import level_probabilities


def largest_first(update, b, levels):
    """The update with all but its b largest coordinates at input number ``levels``, which stands for zero."""
    order = sorted(range(len(update)), key=lambda i: -abs(2 * update[i] - (levels - 1)))
    return tuple(update[i] if i in order[:b] else levels for i in range(len(update)))


def worst_of_sparse_updates(budgets, levels, dimensions, b, rng, t):
    """Largest divergence over all pairs of sparse updates of user 0 and one dataset of the others."""
    # Zero is one more input: the middle level, or either of the two middle ones.
    rows = [
        np.vstack([level_probabilities(np.array([budget]), levels)[0], centre_row(budget, levels)])
        for budget in budgets
    ]
    everything = [(1.0, frozenset(range(dimensions)))]

    def report(user, update):
        return user_law(rows[user], largest_first(update, b, levels), everything, dimensions)

    others = {((),) * dimensions: 1.0}
    for user in range(1, len(budgets)):
        others = add_user(others, report(user, tuple(rng.integers(0, levels, dimensions).tolist())))
    sparse = {largest_first(update, b, levels): update for update in product(range(levels), repeat=dimensions)}
    seen = [add_user(others, report(0, update)) for update in sparse.values()]
    return max(divergence(one, other, t) for one in seen for other in seen)


def tell_too_much(b, chosen, *, levels=3, dimensions=3, too_weak=1.0):
    """How often the b largest of some coordinates tell more than is certified for so many chosen ones."""
    rng, found = np.random.default_rng(5), 0
    for case in range(6 if dimensions == 3 else 3):
        budgets = np.exp(rng.uniform(np.log(0.3), np.log(4), 1 + case % 3))
        for delta in (1e-4, 0.01, 0.05):
            epsilon = certified_epsilon(Exposure(budgets, dimensions, levels, top_b_first=chosen), delta)
            exact = worst_of_sparse_updates(too_weak * budgets, levels, dimensions, b, rng, epsilon)
            found += exact * (1 - ORACLE[0]) - ORACLE[1] > delta
    return found


OF_THREE = [(1, 2, 3), (2, 2, 3), (1, 3, 3), (2, 3, 3), (1, 4, 3)]


@pytest.mark.service
@pytest.mark.parametrize(
    ("b", "levels", "dimensions"),
    [(1, 2, 2), *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in OF_THREE)],
)
def test_what_was_chosen_tells_no_more_than_is_certified(b, levels, dimensions):
    assert tell_too_much(b, b, levels=levels, dimensions=dimensions) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("levels", [2, 3])
def test_choosing_one_too_many_is_seen(levels):
    assert tell_too_much(2, 1, levels=levels) > 3


SEEN = [
    (2, 2),
    pytest.param(3, 2, marks=pytest.mark.exhaustive),
    pytest.param(2, 3, marks=pytest.mark.exhaustive),
    pytest.param(3, 3, marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("levels", "dimensions"), SEEN)
def test_a_sparse_mechanism_ten_per_cent_too_weak_is_seen(levels, dimensions):
    assert tell_too_much(1, 1, levels=levels, dimensions=dimensions, too_weak=1.1) > 3


def centre_row(budget, levels):
    """Law of a report on zero."""
    rows = level_probabilities(np.array([budget]), levels)[0]
    return (rows[(levels - 1) // 2] + rows[levels // 2]) / 2


def largest_gap(levels, blanket, budget, smaller):
    """How far an input against the centre, smaller budget, is above an end against the centre in convex order."""
    rows, few = (level_probabilities(np.array([e]), levels)[0] for e in (budget, smaller))
    centres = centre_row(budget, levels), centre_row(smaller, levels)
    worst = -math.inf
    for x in np.exp(np.linspace(-budget, budget, 9)):
        end = (rows[0] - x * centres[0]) / blanket
        for row in few:
            other = (row - x * centres[1]) / blanket
            cuts = np.unique(np.concatenate([end, other]))[:, None]
            gap = (np.maximum(other - cuts, 0) - np.maximum(end - cuts, 0)) @ blanket
            worst = max(worst, float(gap.max()) / float(np.abs(end).max()))
    return worst


LEVELS_AND_BUDGETS = [(levels, budget) for levels in range(2, 10) for budget in (0.05, 0.5, 2.0, 6.0)]


def test_the_end_is_worst_against_the_centre_for_every_smaller_budget():
    """Lemmas 1 and 2 on levels."""
    for levels, budget in LEVELS_AND_BUDGETS:
        uniform = np.full(levels, 1 / levels)
        for share in (0.05, 0.4, 0.8, 1.0):
            assert largest_gap(levels, uniform, budget, share * budget) < 1e-13


def test_only_the_uniform_blanket_covers_smaller_budgets():
    def shaped(levels, budget):
        blanket = np.exp(-budget * np.abs(np.arange(levels) - (levels - 1) / 2) / (levels - 1))
        return blanket / blanket.sum()

    assert all(largest_gap(k, shaped(k, e), e, e) < 1e-13 for k, e in LEVELS_AND_BUDGETS)
    assert any(largest_gap(k, shaped(k, e), e, 0.5 * e) > 1e-3 for k, e in LEVELS_AND_BUDGETS)


@pytest.mark.service
@pytest.mark.parametrize(("budget", "levels"), sampled(list(product([0.1, 1.0, 4.0], [2, 3, 8, 256, None])), keep=2))
def test_a_couple_alone_is_the_product_of_two_reports(budget, levels):
    """With nobody to hide among: the exact divergence of the two reports, from above and not by much."""
    curve = top_b_first_curve(budget, np.empty(0), 1e-6, levels)
    # For continuous reports, many levels are close enough.
    rows = level_probabilities(np.array([budget]), levels or 4000)[0] if levels else None
    end = rows[0] if levels else np.exp(-budget * (np.arange(4000) + 0.5) / 4000)
    middle = centre_row(budget, levels) if levels else np.exp(-budget * np.abs(np.arange(4000) + 0.5 - 2000) / 4000)
    end, middle = end / end.sum(), middle / middle.sum()
    for t in (0.0, 0.2 * budget, 0.6 * budget, 0.9 * budget):
        exact = float(np.maximum(np.outer(end, middle) - math.exp(t) * np.outer(middle, end), 0).sum())
        slack = 1e-3 if levels is None else 1e-12
        assert exact * (1 - slack) <= curve.delta(t)
        couple = curve._of_couple(t)
        assert exact * (1 - slack) - 1e-15 <= couple <= 1.03 * exact + 1e-4


def test_the_curve_is_above_that_of_a_whole_coordinate_and_that_of_a_couple():
    larger = set()
    for others in (0, 40):
        curve = top_b_first_curve(4.0, np.full(others, 4.0), 1e-6, 16)
        for t in (0.1, 1.0, 2.0):
            whole, couple = curve.whole.delta(t), curve._of_couple(t)
            assert curve.delta(t) == max(whole, couple)
            larger.add("whole" if whole > couple else "couple")
    assert larger == {"whole", "couple"}


def test_a_couple_is_cheaper_than_a_whole_coordinate_at_the_papers_setting():
    budgets = np.linspace(0.05, 1, 10_000)
    b = certified_epsilon(Exposure(budgets, 7850, top_b_first=392), 3.6e-5)
    alone, twice = (certified_epsilon(Exposure(budgets, uses), 3.6e-5) for uses in (392, 784))
    assert alone <= b < 1.02 * alone < 0.75 * twice


def test_large_budgets_fall_back_to_twice_as_many_coordinates():
    budgets = np.full(50, 12.0)
    chosen = certified_epsilon(Exposure(budgets, 100, top_b_first=5), 1e-5)
    assert chosen == certified_epsilon(Exposure(budgets, 10), 1e-5)


@pytest.mark.exhaustive
def test_rounds_with_different_participants():
    many, few = (Exposure(np.linspace(0.1, 1, users), 40, 16, top_b_first=4) for users in (300, 200))
    accountant = Accountant(1e-5, expected_rounds=3)
    accountant.charge(many, 2)
    mixed = accountant.charge(few)
    assert certified_epsilon(many, 1e-5, 3) < mixed < certified_epsilon(few, 1e-5, 3)


@pytest.mark.parametrize("b", [0, 41, 2.5])
def test_b_outside_its_range(b):
    with pytest.raises(ParameterError, match="top_b_first must be"):
        Exposure(np.ones(5), 40, top_b_first=b)


def test_terms_charge_for_what_is_chosen_first():
    terms = Terms(framework="s-apes-first", keep=0.25, rounds=3)
    budgets = make_budgets("uniform2", 1100, 1)
    exposure = terms.exposure(1, budgets, 40)
    assert terms.accountant(1100, settled=True).charge(exposure, 3) == pytest.approx(
        certified_epsilon(Exposure(budgets, 40, top_b_first=10), terms.central_delta(1100), 3), rel=1e-3
    )
    assert exposure.charged == terms.charged(40) == 20
    # Never for more than there are.
    assert Terms(framework="s-apes-first", keep=0.8).charged(40) == 40
