"""The search for both sides of the frontier: alike, on training people alone, within the target."""

import json
from dataclasses import fields, replace

import pytest

import apes
from apes.data import Dataset
from apes.paper.frontier import search as search_module
from apes.paper.frontier.search import KNOBS, HeldOut, OneBitSide, TrustedSide, first_settings, search
from apes.paper.frontier.trusted_server import TrustedServer
from apes.paper.frontier.tuned import choices_at
from apes.terms.fitting import fitted
from apes.training.knob_search import Knob

DELTA = 1e-3
SIMULATION = apes.Simulation(features="pixels", users=96, budgets="0.5:50%,1:50%", seed=5)
SIDES = [TrustedSide, OneBitSide]


class Sealed:
    """Stands for what must not be looked at, at all."""

    def __getattribute__(self, name):
        raise AssertionError(f"the test part was touched: {name}")

    def __getitem__(self, key):
        raise AssertionError("the test part was touched")

    def __len__(self):
        raise AssertionError("the test part was touched")


@pytest.fixture(scope="module")
def held(small_digits):
    known = {field.name: getattr(small_digits, field.name) for field in fields(Dataset)}
    known |= {"train_images": small_digits.train_images[:600], "train_labels": small_digits.train_labels[:600]}
    return HeldOut.of(Dataset(**known | {"test_images": Sealed(), "test_labels": Sealed()}), SIMULATION)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(search_module, "usual_rounds", lambda target: 6)


def test_images_are_mapped_once_as_users_would_map_them(small_digits):
    simulation = replace(SIMULATION, features="oriented-gradients:3")
    held, bare = HeldOut.of(small_digits, simulation), HeldOut.of(small_digits, SIMULATION)
    rows, images = held.people.block(0, 5).features, bare.people.block(0, 5).features
    assert (rows == apes.OrientedGradients(cells=3)(images)).all()
    assert held.simulation.model(held.dataset).dimensions == simulation.model(small_digits).dimensions


@pytest.mark.parametrize("kind", SIDES)
def test_without_a_turn_a_side_is_what_is_used_without_a_search(kind, held):
    side = kind(held, 1.0, DELTA)
    choices = side.choices(tuple(knob.default for knob in side.knobs))
    assert (choices["rounds"], choices["norm"], choices["momentum"], choices["last_step"]) == (6, 1.0, 0.8, 0.3)
    people, model = held.people, held.simulation.model(held.dataset)
    if kind is OneBitSide:
        plan = fitted(apes.Plan(rounds=6, norm=1.0, target_epsilon=1.0, delta=DELTA, seed=1), people.budgets, model)
        assert choices["cap"] == pytest.approx(plan.cap, rel=0.05)
        terms, schedule = plan.terms, plan.schedule
        noise = terms.calibrator().standard_error(terms.applied(people.budgets))
    else:
        server = TrustedServer(1.0, 6, 1.0, DELTA)
        terms, schedule, noise = apes.Terms(clip=1.0, norm=1.0, rounds=6), server.schedule, server.noise(96)
    assert choices["learning_rate"] == pytest.approx(schedule.steps(terms, model, noise).learning_rate, rel=0.05)


@pytest.mark.parametrize("name", [knob.name for knob in KNOBS])
@pytest.mark.parametrize("kind", SIDES)
def test_every_knob_turns_its_own_choice(kind, name, held):
    side = kind(held, 1.0, DELTA)
    defaults = tuple(knob.default for knob in side.knobs)
    turned = tuple(knob.places[0] if knob.name == name else knob.default for knob in side.knobs)
    before, after = side.choices(defaults), side.choices(turned)
    assert after[name] != before[name]
    # Rounds and norm decide the noise, and so the usual step; all else stays.
    may_follow = {"rounds": {"learning_rate", "cap"}, "norm": {"learning_rate"}}.get(name, set())
    assert {other for other in before if before[other] != after[other]} <= {name} | may_follow


def test_both_sides_begin_with_the_same_settings():
    """Each place is one of its knob's; ours has its usual cap."""
    trusted, ours = first_settings(TrustedSide.knobs), first_settings(OneBitSide.knobs)
    assert ours == [(*setting, 1.0) for setting in trusted]
    assert len(set(trusted)) == 4
    for setting in trusted:
        assert all(place in knob.places for knob, place in zip(TrustedSide.knobs, setting, strict=True))
        assert set(setting) != {1.0}


def test_both_sides_have_the_same_knobs_but_for_the_cap():
    assert OneBitSide.knobs[:-1] == TrustedSide.knobs
    assert OneBitSide.knobs[-1].name == "cap"


def test_the_cap_is_turned_and_the_target_kept(held):
    side = OneBitSide(held, 0.5, DELTA)
    defaults = [knob.default for knob in side.knobs]
    wide = side.choices((*defaults[:-1], 2.0))
    assert wide["cap"] == pytest.approx(2 * side.choices(tuple(defaults))["cap"], rel=0.05)
    people = held.people
    plan = fitted(
        apes.Plan(**wide, target_epsilon=0.5, delta=DELTA), people.budgets, held.simulation.model(held.dataset)
    )
    assert plan.cap == wide["cap"]
    exposure = plan.terms.exposure(0, plan.terms.applied(people.budgets), 7850)
    assert plan.terms.accountant(96, settled=True).after(exposure, 6) <= 0.5


@pytest.mark.service
@pytest.mark.parametrize("kind", SIDES)
def test_a_search_is_of_training_people_alone_and_is_taken_up_where_it_was(kind, held):
    """No image of the test part is looked at; results that are kept are not run again."""
    kept = {}

    def ran(place, choices, seed, run):
        name = json.dumps([place, choices, seed])
        if name not in kept:
            kept[name] = run()
        return kept[name]

    sides = [kind(held, target, DELTA) for target in (0.5, 1.0, 4.0, 8.0)]
    found = search(sides, runs=(0, 8, 8, 0), seed=3, ran=ran)
    assert [point.runs for point in found] == [0, 8, 8, 0]
    for point in found[1:3]:
        assert 0.1 < point.usual <= point.accuracy <= 1
    # As many runs at either target; a setting whose cap is cut to the largest budget may be another one's run.
    assert {json.loads(name)[0] for name in kept} == {1, 2}
    assert 12 <= len(kept) <= 16
    assert {json.loads(name)[2] for name in kept} == {3, 4}
    again = search(sides, runs=(0, 8, 8, 0), seed=3, ran=lambda p, c, s, run: kept[json.dumps([p, c, s])])
    assert again == found


class Counted:
    """A way to train whose accuracy is known: it has one knob, and a target that choices are in proportion to."""

    knobs = (Knob("rounds", (0.25, 0.5, 1.0, 2.0)),)

    def __init__(self, usual, best):
        self.usual, self.best = usual, best

    def choices(self, setting):
        return {"rounds": self.usual * setting[0]}

    def accuracies(self, choices, seed):
        return [0.0, *[1 - abs(choices["rounds"] - self.best) / 100] * 3]


def test_targets_that_are_not_searched_for_take_over_in_proportion():
    sides = [Counted(10, 0), Counted(20, 40), Counted(30, 0), Counted(40, 10), Counted(60, 0)]
    found = search(sides, runs=(0, 24, 0, 24, 0), seed=1)
    # Twice the usual at the second target, a quarter of it at the fourth.
    assert [point.choices["rounds"] for point in found] == [20, 40, 60, 10, 15]
    assert [point.runs for point in found] == [0, 24, 0, 24, 0]
    assert (found[1].accuracy, found[1].usual) == (1.0, 0.8)
    assert (found[3].accuracy, found[3].usual) == (1.0, 0.7)
    assert found[0].accuracy is None
    assert [point.setting for point in found] == [(2.0,)] * 3 + [(0.25,)] * 2


def test_a_search_begins_with_what_it_is_given():
    asked = []

    def ran(place, choices, seed, run):
        asked.append((place, choices["rounds"]))
        return run()

    search([Counted(10, 0), Counted(10, 20)], runs=(8, 8), seed=1, first=[(0.25,)], ran=ran)
    assert [rounds for place, rounds in asked if place == 0][:2] == [10, 2.5]
    # At the next target with what was best at the one before.
    assert [rounds for place, rounds in asked if place == 1][:2] == [10, 2.5]


POINTS = [{"target": target, "choices": {"rounds": int(10 * target)}} for target in (1.0, 0.5, 4.0)]


@pytest.mark.parametrize(
    ("target", "rounds"), [(0.25, 5), (0.5, 5), (0.9, 5), (1.0, 10), (3.9, 10), (4.0, 40), (8.0, 40)]
)
def test_between_targets_what_was_found_at_the_one_below(target, rounds):
    assert choices_at(POINTS, target) == {"rounds": rounds}
