"""What one user is told: of the rounds that were planned, and at most what everybody is told."""

from dataclasses import replace

import numpy as np
import pytest

import apes

USERS, BUDGET, PLANNED, DONE = 1001, 6.25, 7, 5
DELTA = 1 / (10 * USERS)
# What five rounds of seven that were planned cost, rounded up: the target of somebody who left then.
TARGET = 12.783
# Continuous reports: what a round costs depends on the part of delta that is set aside for it.
EXPOSURES = tuple(apes.Exposure(np.full(USERS, BUDGET), 4, None, round=number) for number in range(1, DONE + 1))


def account(expected, rounds=DONE):
    accountant = apes.Accountant(DELTA, expected_rounds=expected, keep_budgets=True)
    for exposure in EXPOSURES[:rounds]:
        accountant.charge(exposure)
    return accountant.guarantee


@pytest.fixture(scope="module")
def result():
    plan = apes.Plan(levels="continuous", rounds=PLANNED, delta=DELTA, seed=1)
    rounds = np.full(USERS, DONE)
    rounds[-2:] = 3, 0
    budgets, weights = np.full(USERS, BUDGET), np.zeros(4)
    model = apes.Trained(apes.LogisticRegression(1, 2), weights, None, None)
    return apes.TrainingResult(weights, account(PLANNED), (), EXPOSURES, budgets, plan, model, rounds, "own targets")


def test_the_figure_is_of_the_rounds_that_were_planned(result):
    assert result.of_user(0).epsilon <= TARGET
    # Were it of those that took place, it would be another one, and pass the target.
    assert account(DONE).of(BUDGET).epsilon > 1.2 * TARGET


def test_the_figure_is_at_most_that_of_everybody_with_this_budget(result):
    assert 0 < result.of_user(0).epsilon <= result.guarantee.of(BUDGET).epsilon
    # Something else may have covered everybody by less.
    less = replace(result.guarantee, epsilon=1.0, account=None)
    assert replace(result, guarantee=less).of_user(0).epsilon == 1.0


def test_of_a_user_who_left_earlier_fewer_rounds_count(result):
    own = result.of_user(USERS - 2).epsilon
    assert own == account(PLANNED, 3).of(BUDGET).epsilon < result.of_user(0).epsilon
    assert own != account(DONE, 3).of(BUDGET).epsilon


def test_of_a_user_who_was_in_no_round_nothing_was_released(result):
    assert result.of_user(USERS - 1).epsilon == 0
