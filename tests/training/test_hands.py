"""Whoever does the work, and dies of it, changes no bit: workers of this process, who can be lost where a test says.

Those of other processes have to do the same (test_crews.py); what they are sent and who does it again is the same code.
"""

import pickle
from concurrent.futures import Executor, Future

import numpy as np
import pytest

import apes
from apes.training.crews.crew import in_tree
from apes.training.crews.hands import HandLost, Hands
from apes.training.crews.kept import Failed, Shelf
from apes.training.crews.spread import Spread
from apes.training.crews.work import gather

pytestmark = pytest.mark.service

USERS = 300


def people_of(users=USERS, **options):
    rng = np.random.default_rng(1)
    ids = np.concatenate([np.arange(users), rng.integers(0, users, users)])
    labels = rng.integers(0, 3, ids.size)
    rows = rng.normal(0, 1, (ids.size, 6)) + labels[:, None]
    return apes.People.from_arrays(rows, labels, users=ids, budgets="uniform2", classes=3, **options)


PEOPLE = people_of()
MODEL = apes.LogisticRegression.of(PEOPLE)
PLAN = apes.Plan(clip=0.1, rounds=3, seed=2)
ONE_THREAD = apes.Workers(threads=1)
PLANS = {
    "apes": PLAN,
    "one-bit with norm": apes.Plan(norm=0.5, clip=0.1, rounds=2, seed=1),
    "continuous": apes.Plan(levels="continuous", clip=0.1, rounds=2, seed=1),
    "sums": apes.Plan(framework="pldp", clip=0.1, rounds=2, seed=1),
}


class Hand:
    """A worker: keeps what it was sent under a shelf of its own, as another process would."""

    def __init__(self, hall):
        self._hall, self._shelf, self.calls = hall, Shelf(), 0

    def do(self, call):
        self.calls += 1
        if self._hall.doomed > 0:
            self._hall.doomed -= 1
            raise HandLost
        if self._hall.fails:
            raise ZeroDivisionError("a bad day")
        return pickle.loads(pickle.dumps(gather(*(self._shelf.value(kept) for kept in call))))

    def end(self):
        self._hall.ended.append(self)


class Hall:
    """Hires as many as are wanted; the next so many calls take their worker along."""

    way = "processes"

    def __init__(self):
        self.hired, self.ended, self.sent = [], [], []
        self.doomed, self.fails = 0, False

    def hire(self, count):
        hands = [Hand(self) for _ in range(count)]
        self.hired += hands
        return hands

    def send(self, slot, value):
        packed = pickle.dumps(value)
        self.sent.append(slot)
        return lambda: pickle.loads(packed)

    def add(self, parts, hands):
        return in_tree(parts, lambda one, other: one.plus(other))

    def close(self):
        self.ended.append(self)


class Crew:
    """A crew of so many such workers."""

    def __init__(self, count=3):
        self.hall = Hall()
        self.crew = Spread(Hands(self.hall, count), 64, 2)

    def train(self, people=PEOPLE, plan=PLAN, model=MODEL, **options):
        return apes.train(model, people, plan, workers=self.crew, **options).model_sha256


class Inline(Executor):
    """Does every call at once, of what came through pickle."""

    def submit(self, function, *given):
        future = Future()
        future.set_result(pickle.loads(pickle.dumps(function))(*pickle.loads(pickle.dumps(given))))
        return future


@pytest.fixture(scope="module")
def expected():
    """What one thread comes to, by plan."""
    return {name: apes.train(MODEL, PEOPLE, plan, workers=ONE_THREAD).model_sha256 for name, plan in PLANS.items()}


@pytest.mark.parametrize("name", PLANS)
def test_the_same_model_whoever_does_the_work(name, expected):
    plan = PLANS[name]
    assert Crew().train(plan=plan) == expected[name]
    for workers in (apes.Workers(threads=2), apes.Workers(executor=Inline())):
        assert apes.train(MODEL, PEOPLE, plan, workers=workers).model_sha256 == expected[name]


def test_data_are_sent_once(expected):
    crew = Crew()
    assert crew.train() == expected["apes"]
    assert sorted(slot for slot in crew.hall.sent if slot != "order") == [
        "client",
        *(f"present {share}" for share in range(3)),
        *(f"share {share}" for share in range(3)),
    ]
    assert crew.hall.sent.count("order") == PLAN.rounds


@pytest.mark.parametrize("lost", [1, 2, 3, 5])
def test_work_of_those_who_die_is_done_again(lost, expected):
    crew = Crew()

    def doom(progress):
        if progress.rounds == 1:
            crew.hall.doomed = lost

    assert crew.train(after_round=doom) == expected["apes"]
    assert crew.crew.facts.lost == lost
    assert crew.crew.facts.count == 3
    assert len(crew.hall.hired) == 3 + lost
    # And once more, with those who took their place.
    assert crew.train() == expected["apes"]


def test_workers_who_die_over_and_over_are_an_error():
    crew = Crew(1)
    crew.hall.doomed = 1000
    with pytest.raises(apes.WorkersError, match=r"died 4 times over the same users \(4 in all\)"):
        crew.train()


def test_a_crew_goes_on_after_a_round_that_failed(expected):
    crew = Crew()
    assert crew.train() == expected["apes"]
    crew.hall.fails = True
    with pytest.raises(ZeroDivisionError, match="a bad day"):
        crew.train()
    crew.hall.fails = False
    assert crew.train() == expected["apes"]
    # Nobody died of it.
    assert crew.crew.facts.lost == 0


def test_a_crew_of_one_run_does_another_ones_work(expected):
    crew = Crew()
    others = apes.People.from_arrays(np.ones((USERS, 6)), np.arange(USERS) % 3, budgets="uniform2")
    assert crew.train() == expected["apes"]
    assert crew.train(people=others) == apes.train(MODEL, others, PLAN, workers=ONE_THREAD).model_sha256
    assert crew.train(plan=PLANS["sums"]) == expected["sums"]


def test_those_who_leave_are_left_out_elsewhere_too():
    people = people_of()
    people.targets = np.linspace(0.2, 2, USERS)
    plan = apes.Plan(clip=0.1, levels=2, rounds=4, seed=1)
    here = apes.train(MODEL, people, plan, workers=apes.Workers(threads=1, users_at_once=7))
    assert len(set(here.rounds_by_user)) > 2
    assert Crew().train(people=people, plan=plan) == here.model_sha256
    executor = apes.Workers(executor=Inline(), users_at_once=64)
    assert apes.train(MODEL, people, plan, workers=executor).model_sha256 == here.model_sha256


def test_going_on_with_other_workers(expected):
    reached = []
    apes.train(MODEL, PEOPLE, PLAN, workers=ONE_THREAD, after_round=reached.append)
    for progress in reached[:2]:
        assert Crew().train(resume=progress) == expected["apes"]


def test_an_answer_that_is_an_error_is_raised():
    class Failing(Inline):
        def submit(self, function, *given):
            future = Future()
            future.set_result(Failed(ZeroDivisionError("a bad day")))
            return future

    with pytest.raises(ZeroDivisionError, match="a bad day"):
        apes.train(MODEL, PEOPLE, PLAN, workers=apes.Workers(executor=Failing()))
