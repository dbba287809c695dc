"""The whole flow: every framework trains, and the same seed gives the same model whatever the machine does."""

import dataclasses
import os

import numpy as np
import pytest

from apes import FRAMEWORKS, ParameterError, Plan, train
from apes.training.analysis import Progress
from apes.training.train import spread

SMALL = Plan(users=600, rounds=3, seed=5)


def weights(plan, data, **options):
    return train(plan, data, **options).weights


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_every_framework_learns_something(framework, small_digits):
    # Generous budgets, so that even the Laplace baselines beat guessing (10 %) by far with 600 users.
    plan = Plan(framework=framework, budgets="constant:4", users=600, rounds=15)
    result = train(plan, small_digits)
    assert result.accuracy > 0.5
    assert [entry.round for entry in result.metrics] == list(range(1, 16))
    assert {event.mechanism for event in result.events} == {FRAMEWORKS[framework].mechanism}


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"framework": "apes", "levels": "continuous"},
        {"framework": "apes", "levels": 16, "calibration": "inverse"},
        {"framework": "unis"},
        {"framework": "pldp"},
        {"framework": "s-apes"},
        {"framework": "s-apes", "sparsifier": "random-b", "levels": "continuous"},
        {"framework": "s-apes-threshold"},
        {"framework": "s-apes-first"},
        {"framework": "non-private"},
        {"update": "fedprox", "local_epochs": 3},
    ],
    ids=str,
)
def test_same_seed_same_model_for_any_threads_and_blocks(choice, small_digits):
    plan = dataclasses.replace(SMALL, rounds=2, **choice)
    expected = weights(plan, small_digits, threads=1, users_at_once=600)
    assert np.abs(expected).max() > 0
    for threads, users_at_once in ((2, 128), (2, 7), (1, 1), (3, 599)):
        got = weights(plan, small_digits, threads=threads, users_at_once=users_at_once)
        assert np.array_equal(got, expected), (threads, users_at_once)


def test_another_seed_gives_another_model(small_digits):
    assert not np.array_equal(weights(SMALL, small_digits), weights(dataclasses.replace(SMALL, seed=6), small_digits))


def test_going_on_from_any_round_gives_the_same_model(small_digits):
    reached: list[Progress] = []
    plan = dataclasses.replace(SMALL, momentum=0.5, averaging=1.0, decay=0.1)
    expected = train(plan, small_digits, after_round=reached.append)
    for progress in reached:
        again = train(plan, small_digits, resume=progress)
        assert np.array_equal(again.weights, expected.weights)
        assert [entry.accuracy for entry in again.metrics] == [entry.accuracy for entry in expected.metrics]
        assert again.events == expected.events


def test_everyone_uses_the_smallest_budget_in_ldp_min(small_digits):
    plan = dataclasses.replace(SMALL, framework="ldp-min")
    budgets = spread(plan, small_digits).budgets
    assert budgets.size == 600
    assert len(set(budgets)) == 1
    assert budgets[0] == dataclasses.replace(SMALL, framework="pldp").population_budgets().min()


def test_more_users_than_images(small_digits):
    with pytest.raises(ParameterError, match=r"users.*3000.*got 3001"):
        train(Plan(users=3001, rounds=1), small_digits)


@pytest.mark.parametrize("option", ["threads", "users_at_once"])
def test_bad_options(option, small_digits):
    with pytest.raises(ParameterError, match=option):
        train(SMALL, small_digits, **{option: 0})


def test_a_diverging_model_is_an_error_not_a_release(small_digits):
    plan = Plan(framework="apes", users=600, rounds=30, update="fedprox", local_learning_rate=1e30, learning_rate=1e30)
    with pytest.raises(ParameterError, match="finite"):
        train(plan, small_digits)


@pytest.mark.slow
@pytest.mark.mnist
@pytest.mark.skipif(os.environ.get("CI") == "true", reason="a minute of training; run by hand, see README")
def test_mnist_at_the_papers_scale(mnist):
    apes = train(Plan(framework="apes", data="mnist"), mnist).accuracy
    free = train(Plan(framework="non-private", data="mnist"), mnist).accuracy
    assert apes >= 0.88
    assert free - 0.015 <= apes < free


@pytest.mark.parametrize("framework", ["apes", "unis"])
def test_sums_give_the_model_of_permuted_reports(small_digits, framework):
    levels = {"levels": "continuous"} if framework == "apes" else {}
    plan = Plan(framework=framework, users=200, rounds=2, **levels)
    permuted, added = (train(plan, small_digits, only_sums=only_sums).weights for only_sums in (False, True))
    np.testing.assert_allclose(added, permuted, atol=1e-5)
    assert np.abs(permuted).max() > 0.01
