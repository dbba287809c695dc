"""The policy's file: read again when it has changed, so that members come and go while the shuffler runs."""

import threading
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

    The file is looked at when a request begins, which is then under that policy; and when a round is closed, of which
    everybody who counts has to be a member still. ``make`` gets the policy, and what says which is in force.
    """

    def __init__(self, path: Path, make: Callable[[Policy, Callable[[], Policy]], Rounds]) -> None:
        # Rounds are closed in threads; who asks while another one reads waits for what is read.
        self._lock = threading.Lock()
        # Looked at before it is read: what is written in between is seen later.
        self._path, self._seen = path, _stamp(path)
        self._policy = read_settings(path, Policy)
        self._rounds = make(self._policy, self.policy)

    @property
    def senders(self) -> int:
        """How many may report."""
        return len(self._policy.senders)

    def rounds(self) -> Rounds:
        """The rounds, for a request that begins now."""
        return self._latest()[1]

    def policy(self) -> Policy:
        """The policy in force now."""
        return self._latest()[0]

    def _latest(self) -> tuple[Policy, Rounds]:
        with self._lock:
            found = _stamp(self._path)
            if found != self._seen:
                self._seen = found
                self._look_again()
            return self._policy, self._rounds

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
