"""Intake of a round: verify, open, check and count sealed reports, one after another, holding only a few of them."""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from apes.errors import ProtocolError
from apes.mathematics.arrays import I64
from apes.shuffler.counts import LevelCounts
from apes.shuffler.service.policy import Policy
from apes.wire.announcement import Announcement
from apes.wire.envelope import Envelope, parse
from apes.wire.inclusion import report_digest
from apes.wire.packing import unpacked

# Reports wait in a block before they are counted; a block stays within these.
_REPORTS_AT_ONCE = 128
_BYTES_AT_ONCE = 4 << 20


class ReportRefusal(StrEnum):
    """Why a report does not count."""

    MALFORMED = "malformed"
    WRONG_RUN = "wrong-run"
    WRONG_ROUND = "wrong-round"
    WRONG_TERMS = "wrong-terms"
    ANNOUNCEMENT = "announcement"
    UNREGISTERED = "unregistered"
    DUPLICATE = "duplicate"
    SIGNATURE = "signature"
    SEAL = "seal"
    LEVEL = "level"
    BUDGET = "budget"


@dataclass(frozen=True, eq=False)
class Part:
    """What was taken of one round from some of its senders, by another process. Can be pickled."""

    counts: NDArray[Any]  # per coordinate and level, of as few bytes as will do
    reports: dict[bytes, bytes]  # digest of the sealed report of each sender
    refused: Counter[str]


class Intake:
    """Takes the sealed reports of one announced round, under a policy, with the key that opens them.

    Guarantee:
        What comes out depends on the accepted reports as a set: every sender counts at most once, and the counts do not
        tell who sent what or when. No budget comes out: a report counts only under the budget that its sender enrolled
        with, so what is refused tells nothing about the budgets of those who do as they should.
    """

    def __init__(self, policy: Policy, announcement: Announcement, key: X25519PrivateKey) -> None:
        self._policy, self._key, self._binding = policy, key, announcement.binding
        self._counts = LevelCounts(policy.dimensions, policy.levels)
        rows = max(1, min(_REPORTS_AT_ONCE, _BYTES_AT_ONCE // policy.dimensions))
        self._block = np.empty((rows, policy.dimensions), dtype=np.uint8)
        self._waiting = 0
        self.reports: dict[bytes, bytes] = {}
        self.refused: Counter[str] = Counter()

    @property
    def senders(self) -> Set[bytes]:
        """Those whose reports count."""
        return self.reports.keys()

    def take(self, reports: Iterable[bytes]) -> None:
        """Take sealed reports; each counts, or is dropped and its reason counted."""
        reasons = map(self._consider, reports)
        self.refused.update(reason.value for reason in reasons if reason is not None)

    def part(self) -> Part:
        """What was taken so far, for another intake of the same round."""
        self._count_waiting()
        kind = np.uint16 if len(self.senders) < 2**16 else np.int64
        return Part(self._counts.total().astype(kind), self.reports, self.refused)

    def join(self, part: Part) -> None:
        """Take over what was taken from other senders; counts are sums, so who counted which does not matter."""
        if not self.senders.isdisjoint(part.reports):
            raise ProtocolError("a part of a round holds senders who have counted already")
        if (part.counts.sum(axis=1, dtype=np.int64) != len(part.reports)).any():
            raise ProtocolError(f"counts of a part do not add up to its {len(part.reports)} senders")
        self._counts.join(part.counts.astype(np.int64))
        self.reports |= part.reports
        self.refused += part.refused

    def counts(self) -> I64:
        """How often each level occurs in each coordinate. The caller has checked that the cohort is large enough."""
        self._count_waiting()
        return self._counts.total()

    def _consider(self, report: bytes) -> ReportRefusal | None:
        try:
            envelope = parse(report, self._policy.dimensions, self._policy.levels)
        except ProtocolError:
            return ReportRefusal.MALFORMED
        # Cheap checks first; a sender is only marked as seen once a report of theirs counts, so nobody can use up
        # another's place with a forgery.
        return self._unwelcome(envelope) or self._open(envelope, report_digest(report))

    def _unwelcome(self, envelope: Envelope) -> ReportRefusal | None:
        if envelope.binding.run != self._binding.run:
            return ReportRefusal.WRONG_RUN
        if envelope.binding.round != self._binding.round:
            return ReportRefusal.WRONG_ROUND
        if envelope.binding.terms != self._binding.terms:
            return ReportRefusal.WRONG_TERMS
        if envelope.binding != self._binding:
            return ReportRefusal.ANNOUNCEMENT
        if envelope.sender not in self._policy.members:
            return ReportRefusal.UNREGISTERED
        if envelope.sender in self.senders:
            return ReportRefusal.DUPLICATE
        key = Ed25519PublicKey.from_public_bytes(envelope.sender)
        return None if envelope.is_signed(key) else ReportRefusal.SIGNATURE

    def _open(self, envelope: Envelope, digest: bytes) -> ReportRefusal | None:
        try:
            budget, data = envelope.open(self._key)
        except ProtocolError:
            return ReportRefusal.SEAL
        try:
            levels = unpacked(data, self._policy.dimensions, self._policy.levels)
        except ProtocolError:
            return ReportRefusal.MALFORMED
        if levels.max() >= self._policy.levels:
            return ReportRefusal.LEVEL
        if budget != self._policy.members[envelope.sender]:
            return ReportRefusal.BUDGET
        self._block[self._waiting] = levels
        self._waiting += 1
        self.reports[envelope.sender] = digest
        if self._waiting == self._block.shape[0]:
            self._count_waiting()
        return None

    def _count_waiting(self) -> None:
        self._counts.add(self._block[: self._waiting])
        self._waiting = 0
