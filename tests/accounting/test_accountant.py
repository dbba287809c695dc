"""The accountant of a run: rounds with the same and with different participants."""

import math
from dataclasses import replace

import numpy as np
import pytest

from apes.accounting.accountant import Accountant
from apes.accounting.cost import Cost
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certify
from apes.accounting.personal import _limits
from apes.errors import BudgetExceeded, DataError, ParameterError

BUDGETS = np.linspace(0.1, 1, 400)


def of(budgets, charged=50, levels=2):
    return Exposure(budgets, charged, levels)


EVERYBODY = of(BUDGETS)


def _accountant(**changes):
    return Accountant(**({"delta": 1e-6, "expected_rounds": 4} | changes))


@pytest.mark.service
def test_same_participants_cost_what_certify_says():
    accountant = _accountant()
    spent = [accountant.charge(EVERYBODY) for _ in range(4)]
    assert spent == sorted(spent)
    assert spent[3] == pytest.approx(certify(BUDGETS, delta=1e-6, dimensions=50, rounds=4, levels=2).epsilon, rel=1e-6)
    assert accountant.epsilon == spent[3]


def test_rounds_at_once_or_one_by_one():
    one_by_one, at_once = _accountant(), _accountant()
    for _ in range(3):
        one_by_one.charge(EVERYBODY)
    assert at_once.charge(EVERYBODY, 3) == one_by_one.epsilon


def test_the_order_of_users_and_rounds_does_not_matter():
    one, other = _accountant(), _accountant()
    one.charge(EVERYBODY)
    one.charge(of(BUDGETS[:300]))
    other.charge(of(BUDGETS[299::-1]))
    other.charge(of(BUDGETS[::-1]))
    assert one.epsilon == other.epsilon


def test_changing_participants_lie_between_the_extremes():
    """Four rounds with 400 or 300 users cost more than four with 400, less than four with 300."""
    # The same largest budget: only the number of echoes differs.
    fewer = of(BUDGETS[100:])
    mixed = _accountant()
    for participants in (EVERYBODY, fewer, EVERYBODY, fewer):
        mixed.charge(participants)
    best, worst = _accountant().charge(EVERYBODY, 4), _accountant().charge(fewer, 4)
    assert best < mixed.epsilon < worst
    assert mixed.epsilon == pytest.approx((best + worst) / 2, rel=0.02)


@pytest.mark.service
def test_one_lonely_round_among_many():
    """A round in which hardly anybody took part costs its local budget, and does not spoil the others' lattice."""
    accountant = _accountant()
    accountant.charge(of(np.full(20_000, 0.5), 1), 3)
    before = accountant.epsilon
    after = accountant.charge(of(np.array([0.5]), 1))
    assert before < 0.1
    assert 0.5 <= after <= 0.5 + 1.05 * before


def test_target():
    spent = [_accountant(settled=False).charge(EVERYBODY, rounds) for rounds in (1, 2, 3)]
    limited = _accountant(target=spent[1] * 1.01)
    assert limited.allows(EVERYBODY, 2)
    assert not limited.allows(EVERYBODY, 3)
    limited.charge(EVERYBODY, 2)
    with pytest.raises(BudgetExceeded, match="beyond the target"):
        limited.charge(EVERYBODY)
    assert limited.epsilon == pytest.approx(spent[1], rel=1e-9)
    # Who was in the rounds may have been chosen on the way, so the target is what holds, for everybody.
    guarantee = limited.guarantee
    assert spent[1] < guarantee.epsilon == guarantee.of(0.1).epsilon <= spent[1] * 1.01
    assert guarantee.is_adaptive
    assert not _accountant().guarantee.is_adaptive


def test_what_was_spent_is_no_guarantee_where_rounds_were_chosen():
    accountant = _accountant(settled=False)
    accountant.charge(EVERYBODY, 2)
    assert accountant.epsilon < np.inf
    assert accountant.guarantee.epsilon == np.inf
    assert "only a limit is a guarantee" in accountant.guarantee.why_not_certified


def test_a_limit_of_rounds_at_the_worst():
    """So many rounds, none of them worse than one: that is a limit too."""
    worst = of(np.full(50, 1.0))
    limit = _accountant(settled=False).cost(worst).times(3)
    limited = _accountant(settled=False, limit=limit)
    assert limited.allows(worst, 3)
    assert not limited.allows(worst, 4)
    limited.charge(EVERYBODY, 2)
    assert limited.guarantee.cost == limit
    assert limited.guarantee.epsilon > limited.epsilon
    again = Accountant.from_dict(limited.as_dict())
    again.record(EVERYBODY, 2)
    assert again.guarantee.epsilon == limited.guarantee.epsilon


@pytest.mark.parametrize(
    "change",
    [
        {"users": 500},
        {"budgets_sha256": "00" * 32},
        {"smallest_budget": 0.01},
        {"largest_budget": 0.5},
        {"neighbours": "add-or-remove-one-user"},
        {"epsilon": 0.1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_line_of_a_log_that_says_what_its_budgets_do_not_is_refused(change):
    line = EVERYBODY.as_dict()
    assert Exposure.from_dict(line, BUDGETS).as_dict() == line
    with pytest.raises(DataError, match="was charged for other budgets than those that were kept of it"):
        Exposure.from_dict(line | change, BUDGETS)
    with pytest.raises(DataError, match="was charged for other budgets"):
        Exposure.from_dict({name: value for name, value in line.items() if name != "users"}, BUDGETS)


def test_users_who_choose_first_reveal_both_choices_locally():
    """Two updates of a user may keep other coordinates, b each: whoever sees who sent what may see 2 b differ."""
    for charged, b, expected in ((20, 3, 6), (6, 3, 6), (5, 3, 5)):
        exposure = Exposure(np.full(4, 0.5), charged, 16, b, sparsifier="top-b-first")
        assert exposure.local() == pytest.approx(0.5 * expected)


def test_of_many_targets_none_allows_more_than_it_says():
    """Of more than a few hundred different ones, each is taken for the next smaller one of a grid."""
    targets = np.geomspace(0.3, 6, 1_000)
    limits = _limits(targets, 1e-6)
    for place in range(0, 1_000, 37):
        own = _accountant(target=float(targets[place])).limit.mu_squared
        assert 0.9 * own < limits[place] <= own * (1 + 1e-9)
    assert np.unique(limits).size < 300


def test_a_limit_leaves_room_for_rounding_and_no_more():
    limit = Cost(2.0, 1e-6)
    assert Cost(2.0 * (1 + 1e-12), 1e-6 * (1 + 1e-12)).fits(limit)
    assert not Cost(2.0 * (1 + 1e-8), 1e-6).fits(limit)
    assert not Cost(2.0, 1e-6 * (1 + 1e-8)).fits(limit)


def test_rounds_are_charged_in_order_and_none_is_left_out():
    accountant, one = _accountant(), of(BUDGETS[:3], charged=2)
    accountant.charge(replace(one, round=1))
    spent = accountant.epsilon
    for wrong in (1, 3):
        for ask in (accountant.charge, accountant.record, accountant.allows, accountant.after):
            with pytest.raises(ParameterError, match=f"round must be 2, the next to be charged; got {wrong}"):
                ask(replace(one, round=wrong))
    assert (accountant.rounds, accountant.epsilon) == (1, spent)
    accountant.charge(replace(one, round=2))


def test_a_limit_caps_both_parts_of_a_cost():
    """The sum of mu^2, and the sum of what is left uncovered: three rounds of the one, four of the other."""
    one = _accountant(settled=False).cost(EVERYBODY)
    for limit in (Cost(3.5 * one.mu_squared, 4.5 * one.delta), Cost(4.5 * one.mu_squared, 3.5 * one.delta)):
        limited = _accountant(settled=False, limit=limit)
        limited.charge(EVERYBODY, 3)
        assert not limited.allows(EVERYBODY)
        with pytest.raises(BudgetExceeded):
            limited.charge(EVERYBODY)
        limited.record(EVERYBODY)
        assert limited.guarantee.epsilon == math.inf


def test_colluders_cost():
    assert _accountant(colluders=50).charge(EVERYBODY) > _accountant().charge(EVERYBODY)
    with pytest.raises(ParameterError, match="colluders"):
        _accountant(colluders=400).charge(EVERYBODY)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"expected_rounds": 0}, "expected_rounds"),
        ({"colluders": -1}, "colluders"),
        ({"target": 0.0}, "target_epsilon"),
    ],
)
def test_refused(changes, name):
    with pytest.raises(ParameterError, match=name):
        _accountant(**changes)


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"charged": 0}, "dimensions"), ({"levels": 1}, "levels"), ({"budgets": np.array([np.nan])}, "budgets")],
)
def test_exposures_refused(changes, name):
    with pytest.raises(ParameterError, match=name):
        of(**({"budgets": BUDGETS} | changes))


def test_nothing_charged_is_nothing_spent():
    assert _accountant().epsilon == 0
    assert _accountant().guarantee.epsilon == 0


def test_a_round_without_a_certificate_spoils_the_run_also_among_the_same_people():
    accountant, plain = _accountant(), EVERYBODY
    before = accountant.charge(plain)
    assert accountant.after(replace(plain, why_not_certified="seen in the clear")) == np.inf
    assert accountant.charge(replace(plain, why_not_certified="seen in the clear"), 2) == np.inf
    assert before < accountant.guarantee.epsilon == accountant.guarantee.of(0.5).epsilon == np.inf
    assert accountant.guarantee.why_not_certified == "seen in the clear"


def test_large_budgets_that_choose_first_are_charged_for_both_updates():
    """Couples have no curve of their own there: 2 b uses of the whole coordinate's."""
    first = Exposure(np.full(50, 10.1), 20, 16, 10, dimensions=40)
    plain = Exposure(np.full(50, 10.1), 20, 16)
    assert _accountant().cost(first).mu_squared == pytest.approx(_accountant().cost(plain).mu_squared, rel=1e-6)
