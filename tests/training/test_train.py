"""The whole flow: every framework trains, and the same seed gives the same model whatever the machine does."""

import dataclasses

import numpy as np
import pytest
from few import patterns

from apes import FRAMEWORKS, ParameterError, Plan, Progress, Simulation, Workers, make_budgets, train

SMALL = Plan(clip=0.1, rounds=3, seed=5)
IMAGES = patterns(side=12)
PEOPLE = Simulation(users=100, seed=5, features="pixels")


def trained(plan=SMALL, simulation=PEOPLE, data=IMAGES, **options):
    model, people, features = simulation.model(data), simulation.people(data), simulation.feature_map()
    return train(model, people, plan, features=features, **options)


@pytest.mark.service
@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_every_framework_learns_something(framework, small_digits):
    # Generous budgets, so that even the Laplace baselines beat guessing (10 %) by far with 600 users.
    plan, people = Plan(framework=framework, clip=0.1, rounds=15, seed=1), Simulation(budgets="constant:4", users=600)
    result = trained(plan, people, small_digits)
    assert result.accuracy > 0.5
    assert [entry.round for entry in result.metrics] == list(range(1, 16))
    mechanism = FRAMEWORKS[framework].mechanism(0.1, None, None).name
    assert {exposure.mechanism for exposure in result.exposures} == {mechanism}


@pytest.mark.service
def test_one_bit_learns_something(small_digits):
    plan, people = Plan(norm=1.0, clip=0.1, rounds=15, seed=1), Simulation(budgets="constant:4", users=600)
    result = trained(plan, people, small_digits)
    assert result.accuracy > 0.5
    assert {(exposure.levels, exposure.norm, exposure.clip) for exposure in result.exposures} == {(2, 1.0, 0.1)}


def test_patterns_are_learned():
    """Ten patterns under noise, by a hundred people with generous budgets; guessing gets 10 % right."""
    result = trained(Plan(clip=0.1, rounds=8, seed=1), dataclasses.replace(PEOPLE, budgets="constant:4"))
    assert result.accuracy > 0.5
    assert [entry.round for entry in result.metrics] == list(range(1, 9))


@pytest.mark.service
@pytest.mark.parametrize(
    ("choice", "simulation"),
    [
        *(
            (choice, PEOPLE)
            for choice in (
                {},
                {"framework": "apes", "levels": "continuous"},
                {"framework": "apes", "norm": 0.5},
                {"framework": "unis"},
                {"framework": "pldp"},
                {"framework": "s-apes"},
                {"framework": "s-apes-threshold"},
                {"framework": "non-private"},
            )
        ),
        ({}, dataclasses.replace(PEOPLE, update="fedprox", local_epochs=3)),
        # Whose certificate takes longest.
        *(
            pytest.param(choice, PEOPLE, marks=pytest.mark.service)
            for choice in (
                {"levels": 16, "calibration": "inverse"},
                {"framework": "s-apes", "sparsifier": "random-b", "levels": "continuous"},
                {"framework": "s-apes-first"},
            )
        ),
        # Of so many coordinates that loops take them in several parts.
        pytest.param({}, Simulation(users=100, seed=5, features="pixels", data="mnist"), marks=pytest.mark.service),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else f"{value.update} on {value.data}",
)
def test_same_seed_same_model_for_any_threads_and_blocks(choice, simulation):
    plan = dataclasses.replace(SMALL, rounds=2, **choice)
    images = IMAGES if simulation.data == "digits" else patterns()
    expected = trained(plan, simulation, images, workers=Workers(threads=1, users_at_once=100)).weights
    assert np.abs(expected).max() > 0
    for threads, users_at_once in ((2, 32), (2, 7), (1, 1), (3, 99)):
        workers = Workers(threads=threads, users_at_once=users_at_once)
        got = trained(plan, simulation, images, workers=workers).weights
        assert np.array_equal(got, expected), (threads, users_at_once)


@pytest.mark.service
def test_another_seed_gives_another_model():
    one, other = (trained(dataclasses.replace(SMALL, seed=seed)) for seed in (5, 6))
    assert not np.array_equal(one.weights, other.weights)
    assert one.model_sha256 != other.model_sha256


@pytest.mark.service
def test_going_on_from_any_round_gives_the_same_model():
    reached: list[Progress] = []
    plan = dataclasses.replace(SMALL, momentum=0.5, averaging=1.0, decay=0.1)
    expected = trained(plan, after_round=reached.append)
    for progress in reached:
        again = trained(plan, resume=progress)
        assert np.array_equal(again.weights, expected.weights)
        assert [entry.accuracy for entry in again.metrics] == [entry.accuracy for entry in expected.metrics]
        assert [one.as_dict() for one in again.exposures] == [one.as_dict() for one in expected.exposures]
        assert again.guarantee == expected.guarantee


def test_everyone_uses_the_smallest_budget_in_ldp_min():
    own = PEOPLE.people(IMAGES).budgets
    for budgets in (
        dataclasses.replace(SMALL, framework="ldp-min").terms.applied(own),
        trained(Plan(framework="ldp-min", rounds=1, seed=1)).exposures[0].budgets,
    ):
        assert budgets.size == 100
        assert len(set(budgets)) == 1
        assert budgets[0] == make_budgets("uniform2", 100, 5).min() < own.max()
    assert (dataclasses.replace(SMALL, framework="pldp").terms.applied(own) == own).all()


def test_more_users_than_images():
    with pytest.raises(ParameterError, match=r"users.*400.*got 401"):
        trained(simulation=dataclasses.replace(PEOPLE, users=401))


@pytest.mark.parametrize("option", ["threads", "users_at_once"])
def test_bad_options(option):
    with pytest.raises(ParameterError, match=option):
        Workers(**{option: 0})


def test_a_diverging_model_is_an_error_not_a_release():
    simulation = dataclasses.replace(PEOPLE, update="fedprox", local_learning_rate=1e30)
    with pytest.raises(ParameterError, match="finite"):
        trained(Plan(clip=0.1, rounds=30, learning_rate=1e30, seed=1), simulation)


@pytest.mark.exhaustive
@pytest.mark.mnist
def test_mnist_at_the_papers_scale(mnist):
    apes, free = (
        trained(Plan(framework=name, clip=0.1, seed=1), Simulation(features="pixels"), mnist).accuracy
        for name in ("apes", "non-private")
    )
    assert apes >= 0.88
    assert free - 0.015 <= apes < free


@pytest.mark.service
@pytest.mark.parametrize("framework", ["apes", "unis"])
def test_sums_give_the_model_of_permuted_reports(small_digits, framework):
    levels = {"levels": "continuous"} if framework == "apes" else {}
    plan, people = Plan(framework=framework, clip=0.1, rounds=2, seed=1, **levels), PEOPLE
    permuted, added = (trained(plan, people, only_sums=sums).weights for sums in (False, True))
    np.testing.assert_allclose(added, permuted, atol=1e-5)
    assert np.abs(permuted).max() > 0.01
