"""The gate of a run cannot be forgotten: targets, resumed runs; from outside, as a stranger would."""

import copy
from dataclasses import fields, replace

import numpy as np
import pytest

import apes
from apes.training.run import RoundMetrics

DATA = np.random.default_rng(1).random((600, 5), dtype=np.float32)
LABELS = (DATA[:, 0] > 0.5).astype(int)


def people(budgets=0.5, data=DATA):
    return apes.People.from_arrays(data, LABELS, budgets=np.full(600, budgets))


MODEL = apes.LogisticRegression(5, 2)
PLAN = apes.Plan(clip=0.1, rounds=4, delta=1e-5, seed=1)


@pytest.fixture(scope="module")
def free():
    """A run without a target, and where it stood after every round."""
    reached = []
    return apes.train(MODEL, people(), PLAN, after_round=reached.append), reached


def epsilons(run):
    return [entry.epsilon for entry in run.metrics]


def test_a_run_carries_its_guarantee(free):
    run, _ = free
    assert run.guarantee.epsilon == epsilons(run)[-1] == max(epsilons(run))
    assert (run.guarantee.delta, run.guarantee.neighbours) == (1e-5, "replace-one-user")
    assert run.guarantee.why_not_certified is None


def test_a_target_stops_training_before_the_round_that_would_pass_it(free):
    spent = epsilons(free[0])
    limited = apes.train(MODEL, people(), replace(PLAN, target_epsilon=(spent[1] + spent[2]) / 2))
    assert epsilons(limited) == spent[:2]
    assert limited.guarantee.epsilon == spent[1]


def test_a_target_below_the_first_round_is_an_error_before_it(free):
    reached = []
    with pytest.raises(apes.BudgetExceeded, match="not even one round"):
        apes.train(
            MODEL, people(), replace(PLAN, target_epsilon=epsilons(free[0])[0] * 0.99), after_round=reached.append
        )
    assert reached == []


@pytest.mark.service
def test_a_guarantee_by_budget():
    mixed = apes.People.from_arrays(DATA, LABELS, budgets=np.repeat([0.1, 0.5, 1.0], 200))
    guarantee = apes.train(MODEL, mixed, PLAN).guarantee
    own = [guarantee.of(budget).epsilon for budget in (0.1, 0.5, 1.0)]
    assert own[0] < own[1] / 3 < own[2] / 5
    assert own[2] == guarantee.epsilon
    alone = apes.certify(mixed.budgets, delta=1e-5, dimensions=MODEL.dimensions, rounds=4)
    assert own[0] == pytest.approx(alone.of(0.1).epsilon, rel=0.02)
    for bad in (1.01, 0.0, np.nan):
        with pytest.raises(apes.ParameterError, match="budget must be in"):
            guarantee.of(bad)


def test_resumed_runs_charge_what_was_recorded(free):
    run, reached = free
    for progress in reached[:-1]:
        again = apes.train(MODEL, people(), PLAN, resume=progress)
        assert epsilons(again) == epsilons(run)
        assert again.model_sha256 == run.model_sha256


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"people": people(0.1)}, "people"),
        ({"people": people(data=DATA[::-1])}, "people"),
        ({"plan": replace(PLAN, delta=1e-3)}, "terms"),
        ({"plan": replace(PLAN, clip=0.2)}, "terms"),
        ({"plan": replace(PLAN, target_epsilon=1e9)}, "terms"),
        ({"plan": replace(PLAN, rounds=5)}, "terms"),
        ({"plan": replace(PLAN, seed=2)}, "seed"),
        ({"plan": replace(PLAN, learning_rate=0.5)}, "schedule"),
        ({"model": apes.LogisticRegression(5, 2, apes.FedProx())}, "terms"),
    ],
    ids=["budgets", "data", "delta", "clip", "target", "rounds", "seed", "rate", "model"],
)
def test_a_run_is_resumed_as_what_it_began(free, change, what):
    given = {"model": MODEL, "people": people(), "plan": PLAN} | change
    with pytest.raises(apes.ParameterError, match=f"resume must be of the same {what}"):
        apes.train(given["model"], given["people"], given["plan"], resume=free[1][1])


def altered(thing, **changes):
    """A copy of something frozen, unchecked."""
    thing = copy.copy(thing)
    for name, value in changes.items():
        object.__setattr__(thing, name, value)
    return thing


class Cheap(apes.Exposure):
    def curves(self, *others):
        return replace(apes.Exposure(np.full(600, 0.001), 1)).curves(*others)


def cheaper(e):
    """Other budgets under the name of those that were charged."""
    return altered(e, budgets=e.budgets / 10, budgets_sha256=e.budgets_sha256)


def broken(p, **changes):
    return replace(p, state=replace(p.state, **changes))


@pytest.mark.parametrize(
    "forged",
    [
        lambda p: "abc",
        lambda p: replace(p, exposures=tuple(cheaper(e) for e in p.exposures)),
        lambda p: replace(p, exposures=p.exposures[::-1]),
        lambda p: broken(p, weights=np.full(12, np.nan)),
        lambda p: broken(p, velocity=np.zeros(11)),
        lambda p: broken(p, average=np.zeros(12, dtype="<U3")),
        lambda p: broken(p, step=np.inf),
        lambda p: replace(p, exposures=()),
        lambda p: replace(p, exposures=p.exposures[:1]),
        lambda p: replace(p, metrics=p.metrics[:1]),
        lambda p: replace(p, exposures=tuple(altered(e, charged=1) for e in p.exposures)),
        lambda p: replace(p, exposures=tuple(replace(e, budgets=e.budgets / 10) for e in p.exposures)),
    ],
)
def test_a_run_whose_charges_were_forged_is_not_resumed(free, forged):
    with pytest.raises(apes.ParameterError, match=r"^resume(\.state\.\w+)? must|^resume\.state\.weights\[0\] must"):
        apes.train(MODEL, people(), PLAN, resume=forged(free[1][1]))


def test_what_recorded_exposures_say_of_themselves_is_not_believed(free):
    reached = free[1][1]
    cheap = [Cheap(**{field.name: getattr(e, field.name) for field in fields(e)}) for e in reached.exposures]
    with pytest.raises(apes.ParameterError, match=r"exposure must be of apes's own class Exposure, got Cheap"):
        apes.train(MODEL, people(), PLAN, resume=replace(reached, exposures=tuple(cheap)))
    honest = tuple(altered(e, budgets_sha256="0" * 64) for e in reached.exposures)
    again = apes.train(MODEL, people(), PLAN, resume=replace(reached, exposures=honest))
    assert epsilons(again) == epsilons(free[0])
    assert [e.as_dict() for e in again.exposures] == [e.as_dict() for e in free[0].exposures]


@pytest.mark.parametrize("change", [{"seconds": None}, {"accuracy": "0.5"}, {"loss": [1.0]}, {"round": None}])
def test_metrics_are_numbers(change):
    with pytest.raises(apes.ParameterError, match=f"{next(iter(change))} must be a number"):
        RoundMetrics(**({"round": 1, "accuracy": None, "loss": None, "seconds": 0.0} | change))


@pytest.mark.parametrize(
    ("form", "least"),
    [({}, 50), ({"sparsifier": "threshold"}, 50), ({"top_b_first": 3, "sparsifier": "top-b-first"}, 6)],
)
def test_no_fewer_coordinates_are_charged_than_can_differ(form, least):
    budgets = np.full(100, 0.5)
    assert apes.Exposure(budgets, least, dimensions=50, **form).charged == least
    with pytest.raises(apes.ParameterError, match=rf"charged must be in \[{least}, 50\]"):
        apes.Exposure(budgets, least - 1, dimensions=50, **form)
    assert apes.Exposure(budgets, 3, dimensions=50, sparsifier="random-b").charged == 3


class Fewer(apes.Terms):
    def charged(self, dimensions):
        return 1


class Other(apes.Plan):
    terms = Fewer()


def test_terms_with_methods_of_ones_own_are_not_believed():
    for given, kind in ((Fewer(), "Terms"), (None, "Terms"), (PLAN, "Terms")):
        with pytest.raises(apes.ParameterError, match=f"terms must be of apes's own class {kind}"):
            apes.PrivateMean(given, 3)
    for given in (Other(), None, apes.Terms()):
        with pytest.raises(apes.ParameterError, match="plan must be of apes's own class Plan"):
            apes.train(MODEL, people(), given)
    forged = altered(PLAN, terms=Fewer())
    assert apes.train(MODEL, people(), forged).exposures[0].charged == MODEL.dimensions


def test_what_is_no_model_and_who_are_no_people():
    with pytest.raises(apes.ParameterError, match=r"model must have start, .* got NoneType"):
        apes.train(None, people(), PLAN)
    with pytest.raises(apes.ParameterError, match="people must have block, got NoneType"):
        apes.train(MODEL, None, PLAN)


def test_an_accountant_belongs_to_one_run():
    accountant = apes.Accountant(1e-5, expected_rounds=3)
    first = apes.Exposure(np.full(100, 0.5), 10, round=1)
    accountant.charge(first)
    with pytest.raises(apes.ParameterError, match="round must be 2, the next to be charged; got 1"):
        accountant.charge(first)
    with pytest.raises(apes.ParameterError, match="exposure must have the form"):
        accountant.charge(apes.Exposure(np.full(100, 0.5), 7850, round=2))
    assert accountant.rounds == 1


def test_an_accountant_keeps_its_delta_and_target():
    accountant = apes.Accountant(1e-5, expected_rounds=1, target=1.0)
    for name in ("delta", "target"):
        with pytest.raises(AttributeError):
            setattr(accountant, name, 0.4)
    assert (accountant.delta, accountant.target) == (1e-5, 1.0)


def test_asking_about_one_form_does_not_change_what_another_costs():
    budgets = np.full(200, 0.5)
    asked, honest = (apes.Accountant(1e-5, expected_rounds=1) for _ in range(2))
    asked.after(apes.Exposure(budgets, 1))
    assert asked.charge(apes.Exposure(budgets, 1000)) == honest.charge(apes.Exposure(budgets, 1000))


def test_what_was_charged_cannot_be_changed_afterwards(free):
    for exposure in free[0].exposures:
        with pytest.raises(ValueError, match="read-only"):
            exposure.budgets[:] = 0.001
        with pytest.raises(ValueError, match="WRITEABLE"):
            exposure.budgets.setflags(write=True)


@pytest.mark.parametrize("change", [{"mechanism": "laplace"}, {"sparsifier": "top-b"}, {"shuffled": False}])
def test_only_what_is_proved_has_a_certificate(change):
    with pytest.raises(apes.ParameterError, match="why_not_certified must say why"):
        apes.Exposure(np.full(100, 0.5), 10, **change)
    assert apes.Exposure(np.full(100, 0.5), 10, why_not_certified="unproved", **change).why_not_certified


def test_top_b_cannot_be_resumed_as_certified():
    plan = apes.Plan(framework="s-apes", rounds=2, seed=1)
    reached = []
    apes.train(MODEL, people(), plan, after_round=reached.append)
    assert reached[0].exposures[0].why_not_certified is not None
    honest = apes.Exposure(np.full(600, 0.5), 12, round=1, clip=0.1, sparsifier="threshold")
    with pytest.raises(apes.ParameterError, match="resume must be of rounds under these terms"):
        apes.train(MODEL, people(), plan, resume=replace(reached[0], exposures=(honest,)))


def test_what_is_not_certified_costs_infinitely_much():
    accountant = apes.Accountant(1e-5, expected_rounds=3, target=1e6)
    unproved = apes.Exposure(np.full(100, 0.5), 10, why_not_certified="nobody knows")
    assert not accountant.allows(unproved)
    with pytest.raises(apes.BudgetExceeded):
        accountant.charge(unproved)
    with pytest.raises(apes.ParameterError, match="why_not_certified must say why"):
        apes.Exposure(np.full(100, 0.5), 10, shuffled=False)
