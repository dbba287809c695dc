"""Random-b, centrally: all outcomes of small populations against as many coordinates of APES as are kept."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from outcomes import ORACLE, add_user, divergence, user_law

from apes import Exposure, Terms, make_budgets
from apes.accounting.certificate.curve import hiding_curve
from apes.accounting.guarantee import certified_epsilon
from apes.accounting.victims import honest_others
from apes.mathematics.levels import level_probabilities

# Random populations; so many more are exhaustive.
FEW_CASES, CASES = 8, 40


def worst_divergences(budgets, levels, dimensions, choices, rng, points):
    """The largest divergence at every point, over all pairs of updates of user 0 and one dataset of the others."""
    rows = [level_probabilities(np.array([budget]), levels)[0] for budget in budgets]
    others = {((),) * dimensions: 1.0}
    for user in range(1, len(budgets)):
        update = tuple(rng.integers(0, levels, dimensions).tolist())
        others = add_user(others, user_law(rows[user], update, choices[user], dimensions))
    ends = list(product((0, levels // 2, levels - 1), repeat=dimensions))
    seen = [add_user(others, user_law(rows[0], update, choices[0], dimensions)) for update in ends]
    return {t: max(divergence(a, b, t) for a in seen for b in seen) for t in points}


def any_choice(dimensions, b, rng, kind):
    """A choice of b coordinates that does not look at data: all alike, always the same, or some law."""
    subsets = [frozenset(subset) for subset in combinations(range(dimensions), b)]
    weights = {
        "alike": np.full(len(subsets), 1 / len(subsets)),
        "fixed": np.eye(len(subsets))[rng.integers(len(subsets))],
        "some law": rng.dirichlet(np.ones(len(subsets))),
    }[kind]
    return [(weight, subset) for weight, subset in zip(weights, subsets, strict=True) if weight > 0]


def points_of(budget):
    return [x * budget for x in (0.0, 0.3, 0.7, 0.97, -0.2)]


def violations(kind, seed, *, too_weak=1.0, kept=1, cases=FEW_CASES):
    """How often what is kept of two coordinates tells more than one coordinate of APES is certified for."""
    rng, found = np.random.default_rng(seed), 0
    for _ in range(cases):
        budgets = np.exp(rng.uniform(np.log(0.1), np.log(4), 3))
        budgets[0] = budgets.max()
        choices = [any_choice(2, kept, rng, kind) for _ in budgets]
        points = points_of(budgets[0])
        exact = worst_divergences(too_weak * budgets, 3, 2, choices, rng, points)
        curve = hiding_curve(float(budgets[0]), honest_others(budgets, 0), 1e-3, 3)
        found += any(exact[t] * (1 - ORACLE[0]) - ORACLE[1] > curve.delta(t) for t in points)
    return found


@pytest.mark.parametrize("cases", [FEW_CASES, pytest.param(CASES, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", ["alike", "fixed", "some law"])
def test_one_of_two_tells_no_more_than_one(kind, cases):
    assert violations(kind, 1, cases=cases) == 0


def test_a_mechanism_ten_per_cent_too_weak_is_seen():
    assert violations("fixed", 1, too_weak=1.1) > FEW_CASES / 4


def test_one_coordinate_too_many_is_seen():
    assert violations("alike", 1, kept=2) > FEW_CASES / 4


@pytest.mark.exhaustive
def test_two_of_three_tell_no_more_than_two():
    rng = np.random.default_rng(3)
    for kind in ("alike", "fixed"):
        budgets = np.array([1.0, 0.6, 0.8])
        choices = [any_choice(3, 2, rng, kind) for _ in budgets]
        for delta in (0.02, 0.1):
            epsilon = certified_epsilon(Exposure(budgets, 2, 3), delta)
            exact = worst_divergences(budgets, 3, 3, choices, rng, [epsilon])[epsilon]
            assert exact <= delta


def test_terms_charge_for_what_is_kept():
    terms = Terms(framework="s-apes", sparsifier="random-b", keep=0.25, rounds=3)
    budgets = make_budgets("uniform2", 1100, 1)
    exposure = terms.exposure(1, budgets, 40)
    assert terms.accountant(1100, settled=True).charge(exposure, 3) == pytest.approx(
        certified_epsilon(Exposure(budgets, 10), terms.central_delta(1100), 3), rel=1e-3
    )
    assert (exposure.dimensions, exposure.charged, exposure.sparsifier) == (40, 10, "random-b")
    top = Terms(framework="s-apes", keep=0.25, rounds=3)
    assert top.why_not_certified is not None
    assert top.accountant(1100, settled=True).charge(top.exposure(1, budgets, 40)) == math.inf
    assert top.exposure(1, budgets, 40).charged == top.charged(40) == 40
