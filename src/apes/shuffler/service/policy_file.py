"""The policy's file: read again when it has changed, so that members come and go while the shuffler runs."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from apes.errors import DataError
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.rounds import Rounds
from apes.storage.json_logs import log
from apes.storage.settings import read_settings

# What a running shuffler takes over; for everything else that changes, it is started again.
_OF_MEMBERS = {"senders", "budgets"}


class PolicyFile:
    """Rounds under the policy that is in force: the file's, or the last that could be used.

    A request is under one policy from its beginning to its end; a file that is written meanwhile is for those after it.
    """

    def __init__(self, path: Path, make: Callable[[Policy], Rounds]) -> None:
        # Looked at before it is read: what is written in between is seen later.
        self._path, self._seen = path, _stamp(path)
        self._policy = read_settings(path, Policy)
        self._rounds = make(self._policy)

    @property
    def senders(self) -> int:
        """How many may report."""
        return len(self._policy.senders)

    def rounds(self) -> Rounds:
        """The rounds, for a request that begins now."""
        found = _stamp(self._path)
        if found != self._seen:
            self._seen = found
            self._look_again()
        return self._rounds

    def _look_again(self) -> None:
        try:
            policy = read_settings(self._path, Policy)
            _check_same_but_members(self._policy, policy)
        except DataError as error:
            # Its words are about the operator's own file.
            log("policy-kept", error=str(error), senders=self.senders)
            return
        self._policy, self._rounds = policy, self._rounds.under(policy)
        log("policy", senders=self.senders)


def _check_same_but_members(old: Policy, new: Policy) -> None:
    for entry in fields(Policy):
        if entry.name not in _OF_MEMBERS and getattr(old, entry.name) != getattr(new, entry.name):
            raise DataError(f"{entry.name} is another than before; start the shuffler again to change it")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever the file does; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
