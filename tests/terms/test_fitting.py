"""Open plans: what is found spends the target, never more, and follows from budgets alone."""

from dataclasses import replace

import numpy as np
import pytest

import apes
from apes import LogisticRegression, ParameterError, Plan, make_budgets
from apes.accounting.guarantee import certify_rounds
from apes.defaults import NORM, ROUNDS, TARGET_EPSILON
from apes.terms import fitting
from apes.terms.fitting import fitted

pytestmark = pytest.mark.service


def total(plan, budgets, dimensions):
    """Certified epsilon of all rounds, by another road than the fitting's own."""
    terms = plan.terms
    exposure = terms.exposure(0, terms.applied(budgets), dimensions)
    return certify_rounds(exposure, terms.central_delta(budgets.size), terms.rounds).epsilon


@pytest.mark.parametrize(
    ("users", "law", "target"),
    [
        (5, "uniform2", 1.0),
        pytest.param(300, "uniform2", 1.0, marks=pytest.mark.service),
        pytest.param(200, "constant:0.05", 0.3, marks=pytest.mark.service),
        pytest.param(200, "uniform3", 2.0, marks=pytest.mark.service),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in ((2_000, "uniform2", 1.0), (2_000, "constant:0.05", 0.3), (1_500, "uniform3", 2.0))
        ),
    ],
)
def test_all_rounds_together_spend_the_target(users, law, target):
    budgets, model = make_budgets(law, users, 1), LogisticRegression(20, 3)
    plan = fitted(Plan(target_epsilon=target, delta=1e-5), budgets, model)
    epsilon = total(plan, budgets, model.dimensions)
    assert epsilon <= target
    # It is not bought by a clip bound larger than it has to be; beyond sqrt(d) a smaller one would change nothing.
    bolder = replace(plan, clip=0.97 * plan.clip)
    ratio = plan.norm / plan.clip
    assert ratio == pytest.approx(63**0.5, rel=0.03) or total(bolder, budgets, model.dimensions) > target
    assert (plan.rounds, plan.norm, plan.target_epsilon) == (ROUNDS, NORM, target)


def test_a_clip_bound_that_is_a_hair_too_small_is_widened(monkeypatch):
    """What was found is certified once more, and not believed."""
    ratio = fitting._ratio
    monkeypatch.setattr(fitting, "_ratio", lambda *given: ratio(*given) * 1.02)
    budgets, model = make_budgets("uniform2", 5, 1), LogisticRegression(20, 3)
    plan = Plan(target_epsilon=1.0, delta=1e-5, norm=1.0, cap=0.05, rounds=60)
    monkeypatch.setattr(fitting, "_HAIR", 1e-3)
    found = fitted(plan, budgets, model)
    assert total(found, budgets, model.dimensions) <= 1.0
    # That is more than it was taken for.
    settled = replace(plan, clip=1.0).terms
    assert found.norm / found.clip < ratio(
        settled, settled.accountant(5, settled=True), budgets, model.dimensions
    ) * 1.02 * (1 - 1e-4)


@pytest.mark.service
def test_without_a_target_it_is_one():
    budgets = make_budgets("uniform2", 300, 1)
    plan = fitted(Plan(delta=1e-5), budgets, LogisticRegression(20, 3))
    assert plan.target_epsilon == TARGET_EPSILON == 1.0
    assert 0.97 < total(plan, budgets, 63) <= 1
    assert plan.cap < budgets.max()


@pytest.mark.service
def test_what_was_chosen_stays():
    budgets, model = make_budgets("uniform2", 200, 1), LogisticRegression(20, 3)
    plan = fitted(Plan(norm=0.3, cap=0.7, rounds=5, target_epsilon=2.0, delta=1e-6), budgets, model)
    assert (plan.norm, plan.cap, plan.rounds, plan.target_epsilon, plan.delta) == (0.3, 0.7, 5, 2.0, 1e-6)
    assert total(plan, budgets, model.dimensions) <= 2
    settled = Plan(clip=0.1)
    assert fitted(settled, budgets, model) is settled


@pytest.mark.service
def test_many_people_need_no_cap_and_spend_less():
    budgets = np.full(5_000, 0.05)
    plan = fitted(Plan(delta=1e-5), budgets, LogisticRegression(40, 10))
    assert plan.cap is None
    assert plan.norm / plan.clip == pytest.approx(10)
    assert total(plan, budgets, 410) < 1


def test_the_cap_is_used_by_everybody_above_it():
    terms = Plan(clip=0.1, norm=1.0, cap=0.3).terms
    assert terms.applied([0.1, 0.3, 5.0]).tolist() == [0.1, 0.3, 0.3]
    assert Plan(framework="ldp-min", cap=0.3).terms.applied([0.5, 0.4]).tolist() == [0.3, 0.3]
    for cap in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match=r"cap must be in \(0, inf\), got"):
            Plan(cap=cap)


@pytest.mark.service
def test_a_run_is_charged_for_capped_budgets_and_reports_its_plan():
    rng = np.random.default_rng(1)
    people = apes.People.from_arrays(rng.random((100, 6)), rng.integers(0, 3, 100), budgets="uniform2")
    run = apes.train(apes.LogisticRegression.of(people), people, Plan(rounds=3, delta=1e-5, seed=1))
    assert not run.plan.is_open
    assert run.plan.cap is not None
    assert run.budgets.max() <= run.plan.cap < people.budgets.max()
    assert all((exposure.budgets <= run.plan.cap).all() for exposure in run.exposures)
    assert len(run.metrics) == 3
    assert run.guarantee.epsilon <= 1
    again = apes.train(apes.LogisticRegression.of(people), people, run.plan)
    assert again.model_sha256 == run.model_sha256


def test_nothing_is_found_from_data():
    rng, plans = np.random.default_rng(1), []
    for scale in (0.01, 100.0):
        people = apes.People.from_arrays(scale * rng.random((300, 4)), rng.integers(0, 2, 300), budgets="uniform2")
        plans.append(apes.train(apes.LogisticRegression.of(people), people, Plan(rounds=2, delta=1e-5, seed=1)).plan)
    assert plans[0] == plans[1]
