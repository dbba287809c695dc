"""Anybody's executor: a value is sent with the first call that needs it, and again when a worker says it is missing."""

import os
import pickle
import uuid
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from dataclasses import dataclass, replace
from typing import Any

from apes.errors import WorkersError
from apes.shuffler.parts import Part
from apes.training.crews.crew import Facts, in_tree
from apes.training.crews.kept import SHELF, Call, Failed, Kept, cannot_travel, failed
from apes.training.crews.work import gather

# Enough for an executor of unknown size to balance its workers; each call brings one table of counts back.
_SHARES_PER_CORE = 4


@dataclass(frozen=True)
class _Missing:
    """Slots of which a worker does not have what a call names."""

    slots: frozenset[str]


class _NotSent(LookupError):  # noqa: N818 - caught here
    """A call names a value that did not come with it, and is not here."""


def _nothing() -> Any:
    raise _NotSent


class _Sent:
    """The value itself, sent along; to another process it goes packed, and is unpacked only where it is missing."""

    def __init__(self, value: Any) -> None:
        self._value, self._packed = value, b""

    def __call__(self) -> Any:
        return pickle.loads(self._packed) if self._packed else self._value

    def __getstate__(self) -> dict[str, Any]:
        return {"_value": None, "_packed": self._packed or pickle.dumps(self._value, protocol=5)}


def _attempt(call: Call) -> Part | Failed | _Missing:
    """Do a call, on a worker; or keep what came with it, and say what is missing."""
    values, missing = [], set()
    try:
        for kept in call:
            try:
                values.append(SHELF.value(kept))
            except _NotSent:
                missing.add(kept.slot)
        return _Missing(frozenset(missing)) if missing else gather(*values)
    except Exception as error:
        return failed(error)


_Answer = Part | Failed | _Missing


class AnyExecutor:
    """Work by an executor that is not ours: whoever made it closes it.

    It does not say which worker does what, so a value may be needed by all of them. It is sent again when a worker says
    that it is missing; whoever takes it then may be another one, who has it, and leaves it packed. Until all have all,
    some rounds send some shares again.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor, self._run = executor, uuid.uuid4().hex
        self._values: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._was_sent: set[tuple[str, int]] = set()

    @property
    def facts(self) -> Facts:
        """Not much is known."""
        return Facts("executor", None)

    @property
    def shares(self) -> int:
        """A few per core."""
        return _SHARES_PER_CORE * (os.cpu_count() or 1)

    def keep(self, slot: str, value: object, share: int | None = None) -> Kept:
        """Remember a value, to be sent with the first call that names it."""
        slot = slot if share is None else f"{slot} {share}"
        self._values[slot], self._versions[slot] = value, self._versions.get(slot, 0) + 1
        return Kept(self._run, slot, self._versions[slot], _nothing)

    def run(self, calls: list[tuple[Any, ...]]) -> Part:
        """Do the calls; those of workers who lack something once more, with everything."""
        futures: list[Future[_Answer]] = []
        try:
            for call in calls:
                futures.append(self._submit([kept if self._is_there(kept) else self._whole(kept) for kept in call]))
            self._was_sent = {(kept.slot, kept.version) for call in calls for kept in call if kept.slot != "order"}
            parts = [self._answer(future, call) for future, call in zip(futures, calls, strict=True)]
        except BaseException as error:
            # Nothing is released of a round that fails: what has not begun need not.
            for future in futures:
                future.cancel()
            if (said := self._said(error)) is not None:
                raise said from None
            raise
        return in_tree(parts, lambda one, other: one.plus(other))

    def _said(self, error: BaseException) -> Exception | None:
        """What an error of the executor means for whoever trains; None for what went wrong in a call."""
        must = "executor must outlive the run"
        if isinstance(error, BrokenExecutor):
            return WorkersError(f"{must}: a worker of it died, and a new one is its owner's to make ({error})")
        if isinstance(error, CancelledError) or (isinstance(error, RuntimeError) and "shutdown" in str(error)):
            return WorkersError(f"{must}: it was shut down, or let go of the work ({type(error).__name__})")
        is_of_pickle = isinstance(error, pickle.PicklingError | AttributeError | TypeError)
        if is_of_pickle and "pickle" in str(error).lower():
            return cannot_travel(self._values["client"].model, error)
        return None

    def close(self) -> None:
        """Let go of what is kept in this process, where the executor's workers are threads of it."""
        SHELF.forget(self._run)

    def _answer(self, future: "Future[_Answer]", call: Call) -> Part:
        answer, whole = future.result(), {"order"}
        while isinstance(answer, _Missing):
            # Perhaps another worker takes it now, and lacks more: in the end everything goes with it.
            whole |= answer.slots
            again = [self._whole(kept) if kept.slot in whole else kept for kept in call]
            answer = self._submit(again).result()
        if isinstance(answer, Failed):
            raise answer.error
        if not hasattr(answer, "spans"):
            raise WorkersError(f"executor must bring back what its calls return, got {type(answer).__name__}")
        return answer

    def _submit(self, call: list[Kept]) -> "Future[_Answer]":
        return self._executor.submit(_attempt, tuple(call))

    def _is_there(self, kept: Kept) -> bool:
        """Whether some worker has it; this one is asked, then."""
        return (kept.slot, kept.version) in self._was_sent

    def _whole(self, kept: Kept) -> Kept:
        return replace(kept, fetch=_Sent(self._values[kept.slot]))
