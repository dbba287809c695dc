"""The accountant of a run: rounds with the same and with different participants."""

import numpy as np
import pytest

from apes.accounting.accountant import Accountant
from apes.accounting.guarantee import certify
from apes.errors import BudgetExceeded, ParameterError

BUDGETS = np.linspace(0.1, 1, 400)


def _accountant(**changes):
    return Accountant(**({"dimensions": 50, "delta": 1e-6, "levels": 16, "expected_rounds": 4} | changes))


def test_same_participants_cost_what_certify_says():
    accountant = _accountant()
    spent = [accountant.charge(BUDGETS) for _ in range(4)]
    assert spent == sorted(spent)
    assert spent[3] == pytest.approx(certify(BUDGETS, delta=1e-6, dimensions=50, rounds=4, levels=16).epsilon, rel=1e-6)
    assert accountant.epsilon == spent[3]


def test_rounds_at_once_or_one_by_one():
    one_by_one, at_once = _accountant(), _accountant()
    for _ in range(3):
        one_by_one.charge(BUDGETS)
    assert at_once.charge(BUDGETS, 3) == one_by_one.epsilon


def test_the_order_of_users_and_rounds_does_not_matter():
    one, other = _accountant(), _accountant()
    one.charge(BUDGETS)
    one.charge(BUDGETS[:300])
    other.charge(BUDGETS[299::-1])
    other.charge(BUDGETS[::-1])
    assert one.epsilon == other.epsilon


def test_changing_participants_lie_between_the_extremes():
    """Four rounds with 400 or 300 users cost more than four with 400, less than four with 300."""
    # The same largest budget: only the number of echoes differs.
    fewer = BUDGETS[100:]
    mixed = _accountant()
    for participants in (BUDGETS, fewer, BUDGETS, fewer):
        mixed.charge(participants)
    best, worst = _accountant().charge(BUDGETS, 4), _accountant().charge(fewer, 4)
    assert best < mixed.epsilon < worst
    assert mixed.epsilon == pytest.approx((best + worst) / 2, rel=0.02)


def test_one_lonely_round_among_many():
    """A round in which hardly anybody took part costs its local budget, and does not spoil the others' lattice."""
    accountant = _accountant(dimensions=1)
    accountant.charge(np.full(20_000, 0.5), 3)
    before = accountant.epsilon
    after = accountant.charge(np.array([0.5]))
    assert before < 0.1
    assert 0.5 <= after <= 0.5 + 1.05 * before


def test_target():
    spent = [_accountant().charge(BUDGETS, rounds) for rounds in (1, 2, 3)]
    limited = _accountant(target=spent[1])
    assert limited.allows(BUDGETS, 2)
    assert not limited.allows(BUDGETS, 3)
    limited.charge(BUDGETS, 2)
    with pytest.raises(BudgetExceeded, match="beyond the target"):
        limited.charge(BUDGETS)
    assert limited.epsilon == spent[1]


def test_colluders_cost():
    assert _accountant(colluders=50).charge(BUDGETS) > _accountant().charge(BUDGETS)
    with pytest.raises(ParameterError, match="colluders"):
        _accountant(colluders=400).charge(BUDGETS)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"dimensions": 0}, "dimensions"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"levels": 1}, "levels"),
        ({"expected_rounds": 0}, "expected_rounds"),
        ({"colluders": -1}, "colluders"),
        ({"target": 0.0}, "target_epsilon"),
    ],
)
def test_refused(changes, name):
    with pytest.raises(ParameterError, match=name):
        _accountant(**changes)


def test_nothing_charged_is_nothing_spent():
    assert _accountant().epsilon == 0
    with pytest.raises(ParameterError, match="budgets"):
        _accountant().charge(np.array([np.nan]))
