"""Threads of this process: a block that fails ends the round, and always the same one is told."""

import threading
import time

import pytest

import apes
from apes.budgets import make_budgets
from apes.data import load
from apes.mathematics.randomness import SimulationSource
from apes.models.logistic import LogisticRegression
from apes.people.people import People
from apes.terms.terms import Terms
from apes.training.round import run_round
from apes.training.workers import Workers

USERS, AT_ONCE = 400, 10


class Broken:
    """People of whom some blocks cannot be read; the first of those takes longest to say so."""

    def __init__(self, broken, error=apes.ParameterError):
        digits = load("digits")
        offsets = range(USERS + 1)
        self._people = People(digits.train_images[:USERS], digits.train_labels[:USERS], list(offsets), BUDGETS)
        self.budgets, self._broken, self._error = BUDGETS, broken, error
        self.read = []
        self._lock = threading.Lock()

    def block(self, start, stop):
        with self._lock:
            self.read.append(start)
        if start in self._broken:
            time.sleep(0.2 if start == min(self._broken) else 0)
            raise self._error(f"block {start}")
        return self._people.block(start, stop)


BUDGETS = make_budgets("uniform2", USERS, 1)


def round_of(people, threads):
    model = LogisticRegression(784, 10)
    workers = Workers(threads=threads, users_at_once=AT_ONCE)
    return run_round(Terms(clip=0.1), model, model.start(), people, SimulationSource(1, 1), workers=workers)


@pytest.mark.parametrize("threads", [1, 2, 3])
# An error of the kind that tells a thread that nothing is left to do, too.
@pytest.mark.parametrize("error", [apes.ParameterError, IndexError])
def test_the_first_of_blocks_that_fail_is_told(threads, error):
    people = Broken({50, 60}, error)
    with pytest.raises(error, match=r"^block 50$"):
        round_of(people, threads)
    # Nothing is begun after it, but for what other threads had in hand.
    assert max(people.read) < 50 + 2 * AT_ONCE * threads


@pytest.mark.parametrize("threads", [1, 3])
def test_every_block_is_read_once(threads):
    people = Broken(set())
    assert (round_of(people, threads).counts.sum(axis=1) == USERS).all()
    assert sorted(people.read) == sorted(set(people.read))
    assert people.read[0] == 0


def test_more_threads_than_blocks():
    assert (round_of(Broken(set()), 64).counts.sum(axis=1) == USERS).all()
