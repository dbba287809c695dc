"""A private mean is charged before it is released, call after call, on one account."""

import numpy as np
import pytest

import apes

VECTORS, BUDGETS = np.full((200, 3), 0.05), np.full(200, 0.5)
ONE_THREAD = apes.Workers(threads=1)


def mean_of(terms, **options):
    return apes.PrivateMean(terms, 3, delta=1e-4, workers=ONE_THREAD, **options)


def test_every_call_is_charged_to_one_account():
    mean = mean_of(apes.Terms(clip=0.1, rounds=3))
    spent = []
    estimates = []
    for _ in range(3):
        estimates.append(mean(VECTORS, BUDGETS))
        spent.append(mean.guarantee.epsilon)
    assert spent[0] < spent[1] < spent[2]
    assert spent[2] == pytest.approx(apes.certify(BUDGETS, delta=1e-4, dimensions=3, rounds=3).epsilon, rel=1e-6)
    assert mean.guarantee.delta == 1e-4
    # Every call has noise of its own.
    assert not np.array_equal(estimates[0], estimates[1])


def test_nothing_is_released_beyond_the_target():
    target = 2 * apes.certify(BUDGETS, delta=1e-4, dimensions=3, rounds=2).epsilon
    mean, calls = mean_of(apes.Terms(clip=0.1, rounds=3), target_epsilon=target), []

    def go_on():
        for number in range(1000):
            mean(VECTORS, BUDGETS)
            calls.append(number)

    with pytest.raises(apes.BudgetExceeded):
        go_on()
    assert 1 <= len(calls) < 1000
    assert mean.guarantee.epsilon <= target
    # What is refused once is refused again, and costs nothing.
    with pytest.raises(apes.BudgetExceeded):
        mean(VECTORS, BUDGETS)
    assert mean.guarantee.epsilon <= target


@pytest.mark.parametrize("target", [None, 5.0])
def test_with_a_target_the_guarantee_is_the_target_and_covers_choices_on_the_way(target):
    """Whose vectors come next may then depend on what came out: what was spent is no guarantee in that case."""
    mean = mean_of(apes.Terms(clip=0.1, rounds=3), target_epsilon=target)
    mean(VECTORS, BUDGETS)
    assert mean.guarantee.is_adaptive is (target is not None)
    spent = apes.certify(BUDGETS, delta=1e-4, dimensions=3).epsilon
    assert mean.guarantee.epsilon == pytest.approx(spent if target is None else target, rel=1e-2)


@pytest.mark.parametrize(
    ("vectors", "budgets", "said"),
    [
        (np.full((200, 3), np.nan), BUDGETS, r"updates\[0, 0\] must be finite, got nan"),
        (np.full((200, 3), 1e39), BUDGETS, "updates"),
        (np.zeros((200, 2)), BUDGETS, r"updates must be users x 3 numbers, got \(200, 2\)"),
        (VECTORS, np.zeros(200), r"budgets\[0\] must be in \(0, inf\)"),
        (VECTORS, np.full(200, np.nan), r"budgets\[0\] must be in \(0, inf\)"),
        (VECTORS, BUDGETS[1:], "budgets must have one entry per row of updates, 200, got 199"),
    ],
)
def test_what_is_refused_is_not_charged(vectors, budgets, said):
    mean = mean_of(apes.Terms(clip=0.1))
    with pytest.raises(apes.ParameterError, match=said):
        mean(vectors, budgets)
    with pytest.raises(apes.ParameterError, match="guarantee must be asked for after a call"):
        mean.guarantee  # noqa: B018 - raises: nothing was charged
