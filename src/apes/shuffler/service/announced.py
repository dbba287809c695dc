"""Announced rounds: what the shuffler takes as a round's announcement; one per round, for ever."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from apes.errors import ProtocolError
from apes.shuffler.service.ledger import ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.store import LedgerConflict
from apes.wire.announcement import FIRST, Announcement, parse_announcement
from apes.wire.release import receipt_of


class Announced:
    """The announcements of a ledger's runs.

    Guarantee:
        Reports are opened for what is announced here alone; a round has one announcement, which the analyzer signed,
        and which follows on the run's last release. So rounds are released in increasing order, each on one model.
    """

    def __init__(self, policy: Policy, ledger: ShufflerLedger) -> None:
        self._policy, self._ledger = policy, ledger
        self._analyzer = Ed25519PublicKey.from_public_bytes(bytes.fromhex(policy.analyzer))

    def take(self, run: str, number: int, data: bytes) -> None:
        """Take a round's announcement; the same one again changes nothing, ProtocolError for any other."""
        announcement = parse_announcement(data, self._analyzer)
        named = announcement.run.hex(), announcement.round, announcement.terms.hex()
        if named != (run, number, self._policy.terms):
            raise ProtocolError(f"the announcement is not of round {number} of this run under these terms")
        if self._ledger.announcement(run, number) is None:
            self.check_next(announcement)
            try:
                self._ledger.announce(run, number, data)
            except LedgerConflict:
                # Somebody came first; whether with the same is seen below.
                pass
        if self.of(run, number) != announcement:
            raise ProtocolError(f"round {number} was announced otherwise before")

    def of(self, run: str, number: int) -> Announcement:
        """What was announced of a round."""
        data = self._ledger.announcement(run, number)
        if data is None:
            raise ProtocolError(f"round {number} is not announced")
        return parse_announcement(data, self._analyzer)

    def check_next(self, announcement: Announcement) -> None:
        """Raise unless an announcement is of a round after the last one released, and names that release."""
        last = self._ledger.last(announcement.run.hex())
        before = None if last is None else receipt_of(last)
        digest, number = (FIRST.hex(), 0) if before is None else (before.digest, before.round)
        if announcement.previous.hex() != digest or announcement.round <= number:
            what = f"the announcement of round {announcement.round} does not follow on"
            raise ProtocolError(f"{what} {f'the release of round {number}' if number else 'a run without a release'}")
