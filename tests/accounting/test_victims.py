"""The victim is one person, hidden by everybody else: all outcomes of small populations, every victim, all data."""

from itertools import product

import numpy as np
import pytest
from levels import sampled
from outcomes import ORACLE, add_user, divergence

from apes import Exposure, ParameterError, certify
from apes.accounting.account import by_group
from apes.accounting.accountant import Accountant
from apes.accounting.guarantee import certified_epsilon
from apes.accounting.victims import EVERYBODY, Victims, honest_others, worst_of
from apes.mathematics.levels import level_probabilities

DELTA = 0.01


def worst_divergence(budgets, victim, levels, t):
    """The largest divergence at exp(t) over all data of the others and all pairs of levels of the victim."""
    laws = [
        [{(k,): p for k, p in enumerate(row)} for row in level_probabilities(np.array([budget]), levels)[0].tolist()]
        for budget in budgets
    ]
    worst = 0.0
    for data in product(range(levels), repeat=len(budgets) - 1):
        others = {((),): 1.0}
        for rows, level in zip(laws[:victim] + laws[victim + 1 :], data, strict=True):
            others = add_user(others, rows[level])
        seen = [add_user(others, law) for law in laws[victim]]
        worst = max(worst, *(divergence(one, other, t) for one in seen for other in seen))
    return worst * (1 - ORACLE[0]) - ORACLE[1]


def populations(seed, cases):
    rng = np.random.default_rng(seed)
    for _ in range(cases):
        levels = int(rng.integers(2, 4))
        yield np.exp(rng.uniform(np.log(0.05), np.log(4), int(rng.integers(2, 6 - levels + 1)))), levels


def violations(seed, cases, personal, everybody):
    """How often somebody's divergence is above delta at the own epsilon, and at everybody's."""
    own = all_ = 0
    for budgets, levels in populations(seed, cases):
        exposure = Exposure(budgets, 1, levels)
        for victim, budget in enumerate(budgets.tolist()):
            own += worst_divergence(budgets, victim, levels, personal(exposure, budget)) > DELTA
            all_ += worst_divergence(budgets, victim, levels, everybody(exposure)) > DELTA
    return own, all_


def of_one(exposure, budget):
    return certified_epsilon(exposure, DELTA, victims=Victims(budget, budget))


@pytest.mark.service
@pytest.mark.parametrize("cases", [6, pytest.param(12, marks=pytest.mark.exhaustive)])
def test_nobody_is_above_the_own_figure_nor_above_everybodys(cases):
    everybody = lambda exposure: certified_epsilon(exposure, DELTA)  # noqa: E731
    assert violations(1, cases, of_one, everybody) == (0, 0)


def test_whoever_hides_behind_the_own_report_is_caught():
    """One report more than there are others, the victim's own, as if it hid its sender."""

    def too_many(exposure, budget):
        crowd = Exposure(np.append(exposure.budgets, budget), 1, exposure.levels)
        return of_one(crowd, budget)

    def boldest(exposure):
        return too_many(exposure, float(exposure.budgets.max()))

    own, all_ = violations(1, 6, too_many, boldest)
    assert own > 6
    assert all_ > 3


@pytest.mark.parametrize(
    ("charged", "levels", "before", "now"),
    sampled([(10, 2, 39.82, 31.77), (1, 256, 3.8415, 3.6006), (10, 16, 26.87, 20.90)], keep=1),
)
def test_the_gain_among_few(charged, levels, before, now):
    """The boldest of three is hidden by the timidest too."""
    exposure = Exposure(np.array([0.05, 0.5, 4.0]), charged, levels)
    assert certified_epsilon(exposure, 1e-3, victims=EVERYBODY) == pytest.approx(before, rel=1e-3)
    assert certified_epsilon(exposure, 1e-3) == pytest.approx(now, rel=1e-3)


def test_every_figure_is_somebodys():
    budgets = np.array([0.05, 0.5, 0.5, 4.0])
    guarantee = certify(budgets, delta=1e-3, dimensions=3)
    exposure = Exposure(budgets, 3)
    for budget, others in ((0.05, budgets[1:]), (0.5, budgets[[0, 1, 3]]), (4.0, budgets[:3])):
        assert honest_others(budgets, 0, Victims(budget, budget)).tolist() == others.tolist()
        own = guarantee.of(budget).epsilon
        assert own == certified_epsilon(exposure, 1e-3, victims=Victims(budget, budget))
        # Two colluders leave one honest person: the one who hides worst.
        assert honest_others(budgets, 2, Victims(budget, budget)).tolist() == others[2:].tolist()
    assert guarantee.of(4.0).epsilon == guarantee.epsilon
    accountant = Accountant(1e-3, expected_rounds=1)
    accountant.charge(exposure)
    assert accountant.guarantee.epsilon == pytest.approx(guarantee.epsilon, rel=1e-6)
    assert accountant.guarantee.of(0.5).epsilon == pytest.approx(guarantee.of(0.5).epsilon, rel=1e-6)


def test_somebody_whom_nobody_knows_may_be_whoever_hides_best():
    budgets = np.array([0.05, 0.5, 4.0])
    for stranger in (0.06, 0.4999, 3.0):
        assert honest_others(budgets, 0, Victims(stranger, stranger)).tolist() == [0.5, 4.0]
    # So what is certified for a budget that nobody has is not below that of those who have less.
    guarantee = certify(budgets, delta=1e-3)
    assert guarantee.of(0.5 + 1e-9).epsilon >= guarantee.of(0.5).epsilon
    assert guarantee.of(0.5, 0.05).epsilon >= max(guarantee.of(0.5).epsilon, guarantee.of(0.05).epsilon)
    with pytest.raises(ParameterError, match=r"smallest must be in \[0, 0\.5\]"):
        guarantee.of(0.5, 0.6)
    with pytest.raises(ParameterError, match=r"budget must be in \(0, 4\]"):
        guarantee.of(4.1)


def test_in_a_crowd_whoever_hides_best_is_left_out():
    crowd = np.linspace(0.05, 1, 101)
    assert honest_others(crowd, 0, Victims(1.0, 1.0)).tolist() == crowd[1:].tolist()
    assert honest_others(crowd[1:], 0, Victims(1.0, 1.0)).tolist() == crowd[1:-1].tolist()
    guarantee = certify(crowd, delta=1e-5)
    assert guarantee.of(1.0).epsilon == guarantee.epsilon


@pytest.mark.service
def test_groups_cover_each_of_their_users():
    budgets = np.geomspace(0.05, 3, 20)
    guarantee = certify(budgets, delta=1e-3, levels=2)
    start = 0
    for group in by_group(guarantee, budgets):
        for budget in budgets[start : start + group.users].tolist():
            assert guarantee.of(budget).epsilon <= group.epsilon
        start += group.users
    assert start == 20


@pytest.mark.parametrize("seed", range(20))
def test_the_worst_is_found_whoever_it_is(seed):
    """Bounds of groups that are above everybody's in them, the wider the group, the more."""
    rng = np.random.default_rng(seed)
    budgets = rng.uniform(0.1, 2, int(rng.integers(1, 101)))
    values, asked = dict(zip(budgets.tolist(), rng.uniform(0, 1, budgets.size).tolist(), strict=True)), []

    def figure(victims):
        asked.append(victims)
        return max(value for budget, value in values.items() if victims.timidest <= budget <= victims.boldest) * (
            1 + 0.01 * (victims.boldest - victims.timidest)
        )

    found, worst = worst_of(budgets, figure), max(values.values())
    assert worst <= found <= 1.02 * worst
    assert len(asked) <= 32
