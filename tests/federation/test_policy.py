"""The shuffler's policy takes no value outside its range, and says which."""

from dataclasses import FrozenInstanceError, replace

import pytest
from parties import BUDGETS

from apes.errors import ParameterError
from apes.shuffler.service.policy import Limits, Policy

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("terms", ["", "ab", "g" * 64, "A" * 64, "a" * 63, 7, None]),
        ("runs", [(), [], "0" * 32, ("0" * 31,), ("0" * 32, 5), ("0" * 32, "0" * 32), None]),
        ("rounds", [0, -1, 10**6 + 1, 1.5, True, "3", NAN, None]),
        ("dimensions", [0, -1, 2**31 + 1, 1.5, True, "3", None]),
        ("levels", [1, 0, -1, 257, 16.0, True, "16", None]),
        ("charged", [0, -1, 16, 1.5, True, "3", None]),
        ("delta", [0, 1e-101, -1, 0.6, 1, NAN, INF, "1e-3", True, None]),
        ("top_b_first", [0, -1, 16, 1.5, True, "3"]),
        ("target_epsilon", [0, -1, NAN, INF, "1", True]),
        ("smallest_budget", [0, -1, NAN, INF, -INF, "1", True, None, 1.1]),
        ("largest_budget", [0, -1, NAN, INF, -INF, "1", True, None, 0.01]),
        ("smallest_cohort", [0, -1, 10**7 + 1, 1.5, True, "3", NAN, None]),
        ("largest_card", [0, -1, 1.5, True, "3", None]),
        ("colluding", [-1, 1.5, True, "3"]),
        ("analyzer", ["", "A" * 64, "a" * 63, 7, None]),
        ("budgets", [(), (0.5,), 8 * (0.04,), 8 * (1.1,), (*7 * (0.5,), NAN), None]),
        ("senders", [(), "ab", ("0" * 63,), ("0" * 64, "0" * 64), ("0" * 64, b"0" * 64), None]),
    ],
)
def test_bad_values_are_named(small, field, values):
    for value in values:
        with pytest.raises(ParameterError, match=field):
            replace(small.policy, **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", 1),
        ("rounds", 10**6),
        ("dimensions", 15),
        ("dimensions", 2**31),
        ("levels", 2),
        ("levels", 256),
        ("charged", 1),
        ("charged", 15),
        ("delta", 1e-100),
        ("delta", 0.5),
        ("top_b_first", 1),
        ("top_b_first", 15),
        ("target_epsilon", 1e-300),
        ("smallest_budget", BUDGETS.min()),
        ("largest_budget", BUDGETS.max()),
        ("largest_card", 1),
        ("colluding", 0),
        ("colluding", 5),
        ("smallest_cohort", 1),
        ("smallest_cohort", 8),
    ],
)
def test_ends_of_the_ranges_are_inside(small, field, value):
    assert getattr(replace(small.policy, **{field: value}), field) == value


def test_a_policy_is_frozen(small):
    with pytest.raises(FrozenInstanceError):
        small.policy.smallest_cohort = 1


def test_what_is_wrong_with_a_cohort_is_said(small):
    """Once it was 'smallest_cohort must be in [1, 1], got 8'."""
    policy = replace(small.policy, smallest_cohort=7, colluding=2)
    with pytest.raises(ParameterError) as error:
        policy.check_enrolled(len(policy.senders))
    told = "smallest_cohort 7 of honest senders beside colluding 2 needs at least 9 senders in all, got 8"
    assert str(error.value) == told


def test_as_many_may_collude_as_a_card_has_unless_it_is_said():
    assert [Limits(0.1, 1, 2, card).distrusted for card in (1, 5)] == [1, 5]
    assert Limits(0.1, 1, 2, 5).needed == 7
    assert Limits(0.1, 1, 2, 5, 0).needed == 2


def test_every_field_is_needed():
    with pytest.raises(TypeError, match="smallest_cohort"):
        Policy(terms="0" * 64)
