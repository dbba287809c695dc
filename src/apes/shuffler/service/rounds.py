"""The shuffler's rounds: what happens to a batch between the network and the ledger."""

import asyncio
import copy
import hashlib
import time
from collections import defaultdict
from collections.abc import AsyncIterable, Callable, Set
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from apes.errors import ProtocolError
from apes.shuffler.service.announced import Announced
from apes.shuffler.service.crew import Alone, Counters, WorkerLost
from apes.shuffler.service.gate import Gate
from apes.shuffler.service.intake import Intake, ReportRefusal
from apes.shuffler.service.ledger import Closed, RoundClosed, ShufflerLedger
from apes.shuffler.service.metrics import Metrics
from apes.shuffler.service.pieces import limited
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.proofs import Proofs
from apes.shuffler.service.refused import RequestRefused
from apes.shuffler.service.store import LedgerError
from apes.storage.json_logs import RareLog, log
from apes.wire.announcement import ANNOUNCEMENT_BYTES, Announcement
from apes.wire.envelope import envelope_size
from apes.wire.frames import LENGTH, FrameReader
from apes.wire.inclusion import REQUEST_BYTES, InclusionRequest
from apes.wire.receipt import Receipt
from apes.wire.release import Release
from apes.wire.roster import Roster

T = TypeVar("T")
# Beyond twice what honest senders can fill.
_BYTES_OF_RUBBISH = 16 << 20
_FRAMES_OF_RUBBISH = 20_000


@dataclass(frozen=True)
class Keys:
    """The shuffler's: one opens reports, the other signs receipts."""

    opening: X25519PrivateKey
    signing: Ed25519PrivateKey


class Rounds:
    """Takes a round's announcement and batch, closes the round, hands out its release: always the same one.

    Reports are opened and counted by ``counters``; by default in this process. ``now`` says, from any thread, which
    policy is in force; by default the one that is given.
    """

    def __init__(
        self,
        policy: Policy,
        keys: Keys,
        ledger: ShufflerLedger,
        counters: Counters | None = None,
        *,
        now: Callable[[], Policy] | None = None,
    ) -> None:
        self._policy, self._ledger, self._gate = policy, ledger, Gate(policy, ledger)
        self._signing, self._announced = keys.signing, Announced(policy, ledger)
        self._counters = Alone(keys.opening) if counters is None else counters
        self._envelope_size = envelope_size(policy.dimensions, policy.levels)
        self._locks: defaultdict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._refused, self._now = RareLog("refused"), now
        self._proofs = Proofs(ledger, keys.signing)
        self.metrics = Metrics()

    def under(self, policy: Policy) -> "Rounds":
        """The same rounds, ledger and counters under another policy; `close_round` says what becomes of those begun."""
        other = copy.copy(self)
        other._policy, other._gate = policy, Gate(policy, self._ledger)
        other._announced = Announced(policy, self._ledger)
        other._envelope_size = envelope_size(policy.dimensions, policy.levels)
        return other

    async def release(self, run: str, number: int) -> bytes:
        """Return the release of a round, or refuse if it is open."""
        self._check(run, number)
        closed = await self._find(run, number)
        if closed is None:
            raise RequestRefused(404, "open", f"round {number} is still open: send its reports first")
        return closed.release

    async def roster(self, run: str) -> bytes:
        """Return a run's roster, which is fixed when it is asked for first."""
        self._check(run, 1)
        roster, _ = await self._in_ledger(run, 0, partial(self._enrolled, run))
        return roster.encode()

    async def announce(self, run: str, number: int, stream: AsyncIterable[bytes]) -> None:
        """Take a round's announcement: it is on the disk before any report of the round is opened."""
        self._check(run, number)
        data = bytearray()
        async for piece in limited(stream, ANNOUNCEMENT_BYTES):
            data += piece
        await self._in_ledger(run, number, partial(self._announced.take, run, number, bytes(data)))

    async def close_round(self, run: str, number: int, stream: AsyncIterable[bytes]) -> bytes:
        """Take a batch of framed sealed reports, close the round and return its release.

        The same batch again gets the same release. Any other gets nothing: a second release of a round, on other
        reports, would tell what the difference between the two batches is.

        If too few reports count, or the target would be passed, it is refused and nothing is kept; and likewise if
        somebody who counts was dismissed while the batch came in: sent again, it is taken without them.
        """
        self._check(run, number)
        async with self._locks[run, number]:
            closed = await self._find(run, number)
            if closed is not None:
                return await self._again(closed, number, stream)
            return await self._first(run, number, stream)

    async def inclusion(self, run: str, number: int, stream: AsyncIterable[bytes]) -> bytes:
        """Return the proof that a sender's report is in a round's release; the sender signs the question."""
        self._check(run, number)
        data = bytearray()
        async for piece in limited(stream, REQUEST_BYTES):
            data += piece
        try:
            request = InclusionRequest.parse(bytes(data))
        except ProtocolError as error:
            raise RequestRefused(403, "inclusion", str(error)) from None
        if (request.run.hex(), request.round) != (run, number):
            raise RequestRefused(403, "inclusion", "the question is about another round than it is asked of")
        closed = await self._find(run, number)
        if closed is None:
            raise RequestRefused(404, "open", f"round {number} is still open")
        act = partial(self._proofs.answer, request, closed.release, self._policy.members)
        answer = await self._in_ledger(run, number, act)
        if answer is None:
            raise RequestRefused(403, "inclusion", "who asks about a report is no member")
        return answer

    def count_refusal(self, refused: RequestRefused) -> None:
        """Note that a request was refused."""
        self.metrics.requests_refused.labels(refused.reason).inc()
        self._refused.count(refused.reason, **refused.details)

    async def _find(self, run: str, number: int) -> Closed | None:
        return await self._in_ledger(run, number, partial(self._ledger.find, run, number))

    async def _in_ledger(self, run: str, number: int, act: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(self._ledger.witnessed, run, act)
        except ProtocolError as error:
            raise RequestRefused(403, "announcement", str(error)) from None
        except RoundClosed:
            raise
        except LedgerError as error:
            log("ledger-failed", run=run, round=number, error=str(error))
            raise RequestRefused(503, "ledger", "the ledger cannot be used; nothing was released") from None

    async def _first(self, run: str, number: int, stream: AsyncIterable[bytes]) -> bytes:
        began = time.perf_counter()
        announcement = await self._in_ledger(run, number, partial(self._announced.of, run, number))
        intake, digest = await self._counted(announcement, stream)
        for reason, count in intake.refused.items():
            self.metrics.reports_refused.labels(reason).inc(count)
        self.metrics.intake_seconds.inc(time.perf_counter() - began)
        users, needed = len(intake.senders), self._policy.needed
        if users < needed:
            details = {"accepted": users, "needed": needed, **intake.refused}
            raise RequestRefused(422, "cohort", f"{users} reports count, at least {needed} are needed", details)
        try:
            release = await self._charged(announcement, intake, digest)
        except RoundClosed:
            # Another shuffler on the same ledger was faster.
            closed = await self._find(run, number)
            return _same(closed, digest, number)
        self.metrics.reports_accepted.inc(users)
        self.metrics.rounds_released.inc()
        seconds = round(time.perf_counter() - began, 3)
        log("released", run=run, round=number, users=users, refused=dict(intake.refused), seconds=seconds)
        return release

    async def _counted(self, announcement: Announcement, stream: AsyncIterable[bytes]) -> tuple[Intake, bytes]:
        """Have a batch opened and counted; return that, and the batch's digest."""
        digest, reader = hashlib.sha256(), FrameReader(self._envelope_size)
        # A frame without anything in it costs four bytes to send, and more to look at.
        frames, most = 0, 2 * len(self._policy.senders) + _FRAMES_OF_RUBBISH
        try:
            with closing(self._counters.begin((self._policy, announcement))) as counting:
                async for piece in limited(stream, self._largest_batch):
                    digest.update(piece)
                    reports = list(reader.feed(piece))
                    frames += len(reports)
                    if frames > most:
                        raise RequestRefused(413, "frames", f"a batch has at most {most} frames here")
                    if reports:
                        await counting.take(reports)
                intake = await counting.finish()
        except WorkerLost as error:
            raise RequestRefused(503, "worker", f"{error}; nothing was released, send the batch again") from None
        if not reader.is_complete:
            intake.refused[ReportRefusal.MALFORMED.value] += 1
        return intake, digest.digest()

    async def _charged(self, announcement: Announcement, intake: Intake, digest: bytes) -> bytes:
        """Pass the gate, and close the round."""
        run, number = announcement.run.hex(), announcement.round
        release = await self._in_ledger(run, number, partial(self._release, announcement, intake))
        closed = Closed(digest, release.encode())

        def close() -> None:
            # Behind the gate, where one round comes after another, and as late as can be.
            self._check_members(intake.senders)
            self._announced.check_next(announcement)
            self._ledger.close_round(run, number, closed, intake.senders)
            self._ledger.keep_reports(run, number, intake.reports)

        if not await self._in_ledger(run, number, partial(self._gate.passes, release.receipt, close)):
            target = f"round {number} would bring epsilon beyond the target {self._policy.target_epsilon:g}"
            raise RequestRefused(403, "target", f"{target}; nothing was released")
        return closed.release

    def _release(self, announcement: Announcement, intake: Intake) -> Release:
        """What the analyzer may see: counts, and numbers that do not depend on whose budgets are whose."""
        # Before a roster is fixed, which may be told.
        self._check_members(intake.senders)
        run, number = announcement.run.hex(), announcement.round
        roster, later = self._enrolled(run)
        bound = run, number, self._policy.terms, announcement.digest.hex(), roster.digest
        sizes, blank = (len(intake.senders), later, (0, 0)), "0" * 64
        root = self._proofs.root(announcement.binding, intake.reports.values()).hex()
        receipt = Receipt(*bound, *sizes, blank, announcement.previous.hex(), dict(intake.refused), root)
        return Release.of(receipt, intake.counts(), self._signing)

    def _enrolled(self, run: str) -> tuple[Roster, int]:
        """A run's roster, signed, and how many of today's members are not in it."""
        members = self._policy.members
        kept = self._ledger.roster(run, members)
        roster = Roster(run, self._policy.terms, np.array(list(kept.values()))).signed(self._signing)
        return roster, len(members.items() - kept.items())

    async def _again(self, closed: Closed, number: int, stream: AsyncIterable[bytes]) -> bytes:
        digest = hashlib.sha256()
        async for piece in limited(stream, self._largest_batch):
            digest.update(piece)
        return _same(closed, digest.digest(), number)

    @property
    def _largest_batch(self) -> int:
        return 2 * len(self._policy.senders) * (LENGTH.size + self._envelope_size) + _BYTES_OF_RUBBISH

    def _check_members(self, senders: Set[bytes]) -> None:
        """Refuse if one of these is a member no longer, or with another budget: counts cannot be taken back."""
        then, now = self._policy.members, (self._now or (lambda: self._policy))().members
        if any(now.get(sender) != then[sender] for sender in senders):
            # No more than the same batch tells when it is sent again.
            raise RequestRefused(503, "members", "members have left meanwhile; nothing was released, send it again")

    def _check(self, run: str, number: int) -> None:
        if run not in self._policy.runs:
            raise RequestRefused(404, "wrong-run", "the policy does not name this run")
        if not 1 <= number <= self._policy.rounds:
            raise RequestRefused(404, "wrong-round", f"a run has rounds 1 to {self._policy.rounds}")


def _same(closed: Closed | None, digest: bytes, number: int) -> bytes:
    """The release of a round that is over, for whoever sends the batch that closed it."""
    if closed is None or digest != closed.batch_sha256:
        raise RequestRefused(409, "round-closed", f"round {number} was closed by another batch; ask for its release")
    return closed.release
