"""The whole flow: every framework trains, and the same seed gives the same model whatever the machine does."""

import dataclasses

import numpy as np
import pytest

from apes import FRAMEWORKS, ParameterError, Plan, Progress, Simulation, Workers, make_budgets, train

SMALL = Plan(clip=0.1, rounds=3, seed=5)
PEOPLE = Simulation(users=600, seed=5)


def trained(data, plan=SMALL, simulation=PEOPLE, **options):
    model, people, features = simulation.model(data), simulation.people(data), simulation.feature_map()
    return train(model, people, plan, features=features, **options)


@pytest.mark.slow
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_every_framework_learns_something(framework, small_digits):
    # Generous budgets, so that even the Laplace baselines beat guessing (10 %) by far with 600 users.
    plan, people = Plan(framework=framework, clip=0.1, rounds=15), Simulation(budgets="constant:4", users=600)
    result = trained(small_digits, plan, people)
    assert result.accuracy > 0.5
    assert [entry.round for entry in result.metrics] == list(range(1, 16))
    mechanism = FRAMEWORKS[framework].mechanism(0.1, None, None).name
    assert {exposure.mechanism for exposure in result.exposures} == {mechanism}


@pytest.mark.slow
def test_one_bit_learns_something(small_digits):
    plan, people = Plan(norm=1.0, clip=0.1, rounds=15), Simulation(budgets="constant:4", users=600)
    result = trained(small_digits, plan, people)
    assert result.accuracy > 0.5
    assert {(exposure.levels, exposure.norm, exposure.clip) for exposure in result.exposures} == {(2, 1.0, 0.1)}


@pytest.mark.parametrize(
    ("choice", "simulation"),
    [
        *(
            (choice, PEOPLE)
            for choice in (
                {},
                {"framework": "apes", "levels": "continuous"},
                {"framework": "apes", "levels": 16, "calibration": "inverse"},
                {"framework": "apes", "norm": 0.5},
                {"framework": "unis"},
                {"framework": "pldp"},
                {"framework": "s-apes"},
                {"framework": "s-apes", "sparsifier": "random-b", "levels": "continuous"},
                {"framework": "s-apes-threshold"},
                {"framework": "s-apes-first"},
                {"framework": "non-private"},
            )
        ),
        ({}, Simulation(users=600, seed=5, update="fedprox", local_epochs=3)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else value.update,
)
def test_same_seed_same_model_for_any_threads_and_blocks(choice, simulation, small_digits):
    plan = dataclasses.replace(SMALL, rounds=2, **choice)
    expected = trained(small_digits, plan, simulation, workers=Workers(threads=1, users_at_once=600)).weights
    assert np.abs(expected).max() > 0
    for threads, users_at_once in ((2, 128), (2, 7), (1, 1), (3, 599)):
        workers = Workers(threads=threads, users_at_once=users_at_once)
        got = trained(small_digits, plan, simulation, workers=workers).weights
        assert np.array_equal(got, expected), (threads, users_at_once)


def test_another_seed_gives_another_model(small_digits):
    one, other = (trained(small_digits, dataclasses.replace(SMALL, seed=seed)) for seed in (5, 6))
    assert not np.array_equal(one.weights, other.weights)
    assert one.model_sha256 != other.model_sha256


def test_going_on_from_any_round_gives_the_same_model(small_digits):
    reached: list[Progress] = []
    plan = dataclasses.replace(SMALL, momentum=0.5, averaging=1.0, decay=0.1)
    expected = trained(small_digits, plan, after_round=reached.append)
    for progress in reached:
        again = trained(small_digits, plan, resume=progress)
        assert np.array_equal(again.weights, expected.weights)
        assert [entry.accuracy for entry in again.metrics] == [entry.accuracy for entry in expected.metrics]
        assert [one.as_dict() for one in again.exposures] == [one.as_dict() for one in expected.exposures]
        assert again.guarantee == expected.guarantee


def test_everyone_uses_the_smallest_budget_in_ldp_min(small_digits):
    own = PEOPLE.people(small_digits).budgets
    for budgets in (
        dataclasses.replace(SMALL, framework="ldp-min").terms.applied(own),
        trained(small_digits, Plan(framework="ldp-min", rounds=1)).exposures[0].budgets,
    ):
        assert budgets.size == 600
        assert len(set(budgets)) == 1
        assert budgets[0] == make_budgets("uniform2", 600, 5).min() < own.max()
    assert (dataclasses.replace(SMALL, framework="pldp").terms.applied(own) == own).all()


def test_more_users_than_images(small_digits):
    with pytest.raises(ParameterError, match=r"users.*3000.*got 3001"):
        trained(small_digits, simulation=Simulation(users=3001))


@pytest.mark.parametrize("option", ["threads", "users_at_once"])
def test_bad_options(option):
    with pytest.raises(ParameterError, match=option):
        Workers(**{option: 0})


def test_a_diverging_model_is_an_error_not_a_release(small_digits):
    simulation = Simulation(users=600, update="fedprox", local_learning_rate=1e30)
    with pytest.raises(ParameterError, match="finite"):
        trained(small_digits, Plan(clip=0.1, rounds=30, learning_rate=1e30), simulation)


@pytest.mark.slow
@pytest.mark.mnist
def test_mnist_at_the_papers_scale(mnist):
    apes, free = (
        trained(mnist, Plan(framework=name, clip=0.1), Simulation(features="pixels")).accuracy
        for name in ("apes", "non-private")
    )
    assert apes >= 0.88
    assert free - 0.015 <= apes < free


@pytest.mark.parametrize("framework", ["apes", "unis"])
def test_sums_give_the_model_of_permuted_reports(small_digits, framework):
    levels = {"levels": "continuous"} if framework == "apes" else {}
    plan, people = Plan(framework=framework, clip=0.1, rounds=2, **levels), Simulation(users=200)
    permuted, added = (trained(small_digits, plan, people, only_sums=sums).weights for sums in (False, True))
    np.testing.assert_allclose(added, permuted, atol=1e-5)
    assert np.abs(permuted).max() > 0.01
