"""What a worker keeps: values that were sent once, by name, so that calls need only name them.

A value stands in a slot of a run; the next value of the slot (the next round's weights) takes its place.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from apes.errors import ParameterError, WorkersError
from apes.shuffler.parts import Part
from apes.training.crews.work import gather

# A stranger's workers are not ours to end: what they keep of a run goes when so many others came.
_RUNS_KEPT = 2


@dataclass(frozen=True)
class Kept:
    """A value that a worker has, or can get.

    Attributes:
        run: Name of the run.
        slot: Where it stands.
        version: Which of the slot's values it is.
        fetch: Gets the value where it is not there yet.
    """

    run: str
    slot: str
    version: int
    fetch: Callable[[], Any]


Call = tuple[Kept, ...]
"""What `gather` takes, kept: client, users, who is present, order."""


class Shelf:
    """The values that a process keeps, for all of its threads."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, tuple[int, Any]]] = {}
        self._lock = Lock()

    def value(self, kept: Kept) -> Any:
        """The value: kept from before, or fetched now."""
        with self._lock:
            version, value = self._runs.get(kept.run, {}).get(kept.slot, (-1, None))
        if version == kept.version:
            return value
        value = kept.fetch()
        with self._lock:
            slots = self._runs.pop(kept.run, {})
            slots[kept.slot] = kept.version, value
            # The latest run is the last one.
            self._runs[kept.run] = slots
            for run in list(self._runs)[:-_RUNS_KEPT]:
                del self._runs[run]
        return value

    def forget(self, run: str) -> None:
        """Let go of everything of a run."""
        with self._lock:
            self._runs.pop(run, None)


SHELF = Shelf()


@dataclass(frozen=True)
class Failed:
    """What went wrong on a worker, to be raised where the call came from."""

    error: Exception


def attempt(call: Call) -> Part | Failed:
    """Do a call; what goes wrong in it is its answer."""
    try:
        return gather(*(SHELF.value(kept) for kept in call))
    except Exception as error:
        return failed(error)


def failed(error: Exception) -> Failed:
    """An error as an answer; a stranger's exception may be anything, and one that cannot travel is told instead."""
    try:
        again = pickle.loads(pickle.dumps(error))
        return Failed(error if type(again) is type(error) else WorkersError(repr(error)))
    except Exception:
        return Failed(WorkersError(f"a worker failed: {type(error).__name__}: {error}"))


def cannot_travel(value: object, error: BaseException) -> ParameterError:
    """What to say of a value that cannot be pickled."""
    what = f"model, people and features must be such that pickle takes them to other processes, {type(value).__name__}"
    return ParameterError(f"{what} is not: {error}")
