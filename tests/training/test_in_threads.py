"""Threads of this process: a block that fails ends the round, and always the same one is told."""

import threading
from collections import deque

import numpy as np
import pytest

import apes
from apes.budgets import make_budgets
from apes.mathematics.randomness import SimulationSource
from apes.models.logistic import LogisticRegression
from apes.people.people import People
from apes.terms.terms import Terms
from apes.training.crews.in_threads import Threads
from apes.training.round import run_round
from apes.training.workers import Workers

USERS, AT_ONCE = 400, 10
# Seconds that only a hang reaches.
LONG = 120.0
BUDGETS = make_budgets("uniform2", USERS, 1)
ROWS = np.random.default_rng(1).random((USERS, 4), dtype=np.float32)


class Broken:
    """People of whom some blocks cannot be read; with others beside it, the first of those says so last."""

    def __init__(self, broken=(), error=apes.ParameterError, threads=1):
        self._people = People(ROWS, np.arange(USERS) % 3, list(range(USERS + 1)), BUDGETS)
        self.budgets, self._broken, self._error = BUDGETS, broken, error
        self._waits_for_others, self._another_failed = threads > 1, threading.Event()
        self.read = []
        self._lock = threading.Lock()

    def block(self, start, stop):
        with self._lock:
            self.read.append(start)
        if start not in self._broken:
            return self._people.block(start, stop)
        if start != min(self._broken):
            self._another_failed.set()
        elif self._waits_for_others:
            assert self._another_failed.wait(LONG)
        raise self._error(f"block {start}")


def round_of(people, threads):
    model = LogisticRegression(4, 3)
    workers = Workers(threads=threads, users_at_once=AT_ONCE)
    return run_round(Terms(clip=0.1), model, model.start(), people, SimulationSource(1, 1), workers=workers)


@pytest.mark.parametrize("threads", [1, 2, 3])
# An error of the kind that tells a thread that nothing is left to do, too.
@pytest.mark.parametrize("error", [apes.ParameterError, IndexError])
def test_the_first_of_blocks_that_fail_is_told(threads, error):
    people = Broken({50, 60}, error, threads)
    with pytest.raises(error, match=r"^block 50$"):
        round_of(people, threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_nothing_is_begun_after_a_block_that_failed(threads):
    """But for what others had in hand: they are held up until nothing is left to begin."""
    blocks, begun = deque(range(100)), []
    failed = threading.Event()

    def work(block):
        begun.append(block)
        if block == 5:
            failed.set()
            raise ZeroDivisionError("a bad day")
        if block > 5:
            assert failed.wait(LONG)
            while blocks and not given_up.is_set():
                given_up.wait(0.001)

    given_up = threading.Event()
    timer = threading.Timer(LONG, given_up.set)
    timer.start()
    try:
        with pytest.raises(ZeroDivisionError, match="a bad day"):
            Threads(threads, None)._do(work, blocks)
    finally:
        timer.cancel()
        timer.join()
    assert max(begun) < 5 + threads
    assert len(set(begun)) == len(begun)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_block_is_read_once(threads):
    people = Broken()
    assert (round_of(people, threads).counts.sum(axis=1) == USERS).all()
    assert sorted(people.read) == sorted(set(people.read))
    assert min(people.read) == 0


def test_more_threads_than_blocks():
    assert (round_of(Broken(), 64).counts.sum(axis=1) == USERS).all()
