"""What all programs share: who holds which rows, and rounds of more and more users until the time is over."""

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PER_USER = 6
NORM, EPSILON, DELTA = 1.0, 0.5, 1e-5
"""Bound of an update's L2 norm; what peers are asked for, per round. Epsilon below 1: Flower's formula needs it."""

_FIRST, _GROWTH, _REPEATS = 100, 10, 3
# A round may take longer than the last one let expect.
_SHARE = 0.7


class Stage(NamedTuple):
    """A round of some users, and its wall time."""

    users: int
    seconds: float


class Task(NamedTuple):
    """A folder with rows and classes, and how many users within how many seconds.

    It may be sent to other processes (Flower's does it with every message): so it names its files, and holds none.
    """

    folder: str
    users: int
    seconds: float
    variant: str

    @property
    def images(self) -> NDArray[np.float32]:
        """Rows (users * PER_USER, features)."""
        return np.asanyarray(_mapped(f"{self.folder}/images.npy"), dtype=np.float32)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Their classes."""
        return np.asanyarray(_mapped(f"{self.folder}/labels.npy"), dtype=np.int64)

    def rows(self, user: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """A user's rows, copied: the file is only mapped."""
        part = slice(user * PER_USER, (user + 1) * PER_USER)
        return np.array(self.images[part]), np.array(self.labels[part])


@cache
def _mapped(file: str) -> NDArray[Any]:
    return np.asanyarray(np.load(file, mmap_mode="r"))


def read_task() -> Task:
    """The task that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="folder with images.npy and labels.npy")
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--variant", default="")
    given = parser.parse_args()
    return Task(given.data, given.users, given.seconds, given.variant)


def upcoming(last: Stage, full_rounds: int, users: int, left: float) -> int:
    """How many users the next round has; 0 if the time does not allow for one that tells more."""
    affordable = int(_SHARE * left * last.users / last.seconds)
    if last.users == users:
        return users if full_rounds < _REPEATS and affordable >= users else 0
    count = min(users, _GROWTH * last.users, affordable)
    return count if count == users or count >= 2 * last.users else 0


def measure(
    run_round: Callable[[int], object],
    task: Task,
    clock: Callable[[], float] = time.perf_counter,
    say: Callable[[Stage], None] | None = None,
) -> None:
    """Run rounds of more and more users; the first, which loads and compiles, does not count."""
    users, full_rounds = min(_FIRST, task.users), 0
    run_round(users)
    began = clock()
    while users:
        start = clock()
        run_round(users)
        end = clock()
        stage = Stage(users, end - start)
        (say or print_stage)(stage)
        full_rounds += users == task.users
        users = upcoming(stage, full_rounds, task.users, task.seconds - (end - began))


def print_stage(stage: Stage) -> None:
    """One line of JSON, at once: what is printed counts even if the program is stopped."""
    print(json.dumps(stage._asdict()), flush=True)
