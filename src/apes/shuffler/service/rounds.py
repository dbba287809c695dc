"""The shuffler's rounds: what happens to a batch between the network and the ledger."""

import asyncio
import copy
import hashlib
import time
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import closing
from functools import partial
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, generate_latest

from apes.shuffler.service.crew import Alone, Counters, WorkerLost
from apes.shuffler.service.gate import Gate
from apes.shuffler.service.intake import Intake, ReportRefusal
from apes.shuffler.service.ledger import Closed, RoundClosed, ShufflerLedger
from apes.shuffler.service.policy import Policy
from apes.shuffler.service.store import LedgerError
from apes.storage.json_logs import RareLog, log
from apes.wire.envelope import envelope_size
from apes.wire.frames import LENGTH, FrameReader

T = TypeVar("T")
# When a counter was made is when the process began: one more line per counter would tell nothing.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it without a type
# The lock of a round is held while its batch comes in.
_SECONDS_FOR_A_PIECE = 60.0
# Beyond twice what honest senders can fill.
_BYTES_OF_RUBBISH = 16 << 20
_FRAMES_OF_RUBBISH = 20_000


class RequestRefused(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A request that the policy does not allow: HTTP status, one word that is counted, what the caller may know."""

    def __init__(self, status: int, reason: str, message: str, details: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.details = status, reason, details or {}


class Metrics:
    """Counters of one service for Prometheus, in a registry of their own. They name no sender and no value."""

    def __init__(self) -> None:
        self._registry, by = CollectorRegistry(), ["reason"]
        count = partial(Counter, registry=self._registry)
        self.reports_accepted = count("apes_reports_accepted_total", "Sealed reports that counted.")
        self.reports_refused = count("apes_reports_refused_total", "Sealed reports that did not count, by reason.", by)
        self.rounds_released = count("apes_rounds_released_total", "Rounds released.")
        self.requests_refused = count("apes_requests_refused_total", "Requests refused, by reason.", by)
        self._connections = count("apes_connections_closed_total", "Connections that had to go, by reason.", by)
        self.intake_seconds = count("apes_intake_seconds_total", "Seconds spent on taking batches.")

    def count_connection(self, reason: str) -> None:
        """Note that a connection was sent away."""
        self._connections.labels(reason).inc()

    def text(self) -> bytes:
        """All counters, in the text format 0.0.4."""
        return generate_latest(self._registry)


class Rounds:
    """Takes a round's batch, closes the round, hands out its release: always the same one.

    Reports are opened and counted by ``counters``; by default with ``key``, in this process.
    """

    def __init__(
        self, policy: Policy, key: X25519PrivateKey, ledger: ShufflerLedger, counters: Counters | None = None
    ) -> None:
        self._policy, self._ledger, self._gate = policy, ledger, Gate(policy, ledger)
        self._counters = Alone(key) if counters is None else counters
        self._envelope_size = envelope_size(policy.dimensions, policy.levels)
        self._locks: defaultdict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._refused = RareLog("refused")
        self.metrics = Metrics()

    def under(self, policy: Policy) -> "Rounds":
        """The same rounds, ledger and counters under another policy; whoever has begun goes on under the old one."""
        other = copy.copy(self)
        other._policy, other._gate = policy, Gate(policy, self._ledger)
        other._envelope_size = envelope_size(policy.dimensions, policy.levels)
        return other

    async def release(self, run: str, number: int) -> bytes:
        """Return the release of a round, or refuse if it is open."""
        self._check(run, number)
        closed = await self._find(run, number)
        if closed is None:
            raise RequestRefused(404, "open", f"round {number} is still open: send its reports first")
        return closed.release

    async def close_round(self, run: str, number: int, stream: AsyncIterable[bytes]) -> bytes:
        """Take a batch of framed sealed reports, close the round and return its release.

        The same batch again gets the same release. Any other gets nothing: a second release of a round, on other
        reports, would tell what the difference between the two batches is.

        If too few reports count, or the target would be passed, it is refused and nothing is kept.
        """
        self._check(run, number)
        async with self._locks[run, number]:
            closed = await self._find(run, number)
            if closed is not None:
                return await self._again(closed, number, stream)
            return await self._first(run, number, stream)

    def count_refusal(self, refused: RequestRefused) -> None:
        """Note that a request was refused."""
        self.metrics.requests_refused.labels(refused.reason).inc()
        self._refused.count(refused.reason, **refused.details)

    async def _find(self, run: str, number: int) -> Closed | None:
        return await self._in_ledger(run, number, partial(self._ledger.find, run, number))

    async def _in_ledger(self, run: str, number: int, act: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(act)
        except RoundClosed:
            raise
        except LedgerError as error:
            log("ledger-failed", run=run, round=number, error=str(error))
            raise RequestRefused(503, "ledger", "the ledger cannot be used; nothing was released") from None

    async def _first(self, run: str, number: int, stream: AsyncIterable[bytes]) -> bytes:
        began = time.perf_counter()
        intake, digest = await self._counted(run, number, stream)
        for reason, count in intake.refused.items():
            self.metrics.reports_refused.labels(reason).inc(count)
        self.metrics.intake_seconds.inc(time.perf_counter() - began)
        users, needed = len(intake.senders), self._policy.smallest_cohort
        if users < needed:
            details = {"accepted": users, "needed": needed, **intake.refused}
            raise RequestRefused(422, "cohort", f"{users} reports count, at least {needed} are needed", details)
        try:
            release = await self._charged(run, number, intake, digest)
        except RoundClosed:
            # Another shuffler on the same ledger was faster.
            closed = await self._find(run, number)
            return _same(closed, digest, number)
        self.metrics.reports_accepted.inc(users)
        self.metrics.rounds_released.inc()
        seconds = round(time.perf_counter() - began, 3)
        log("released", run=run, round=number, users=users, refused=dict(intake.refused), seconds=seconds)
        return release

    async def _counted(self, run: str, number: int, stream: AsyncIterable[bytes]) -> tuple[Intake, bytes]:
        """Have a batch opened and counted; return that, and the batch's digest."""
        digest, reader = hashlib.sha256(), FrameReader(self._envelope_size)
        # A frame without anything in it costs four bytes to send, and more to look at.
        frames, most = 0, 2 * len(self._policy.senders) + _FRAMES_OF_RUBBISH
        try:
            with closing(self._counters.begin((self._policy, run, number))) as counting:
                async for piece in self._limited(stream):
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

    async def _charged(self, run: str, number: int, intake: Intake, digest: bytes) -> bytes:
        """Pass the gate, and close the round."""
        release = await asyncio.to_thread(intake.release)
        closed = Closed(digest, release.encode())
        close = partial(self._ledger.close_round, run, number, closed, intake.senders)
        if not await self._in_ledger(run, number, lambda: self._gate.passes(run, number, release.batch.budgets, close)):
            target = f"round {number} would bring epsilon beyond the target {self._policy.target_epsilon:g}"
            raise RequestRefused(403, "target", f"{target}; nothing was released")
        return closed.release

    async def _again(self, closed: Closed, number: int, stream: AsyncIterable[bytes]) -> bytes:
        digest = hashlib.sha256()
        async for piece in self._limited(stream):
            digest.update(piece)
        return _same(closed, digest.digest(), number)

    async def _limited(self, stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """Pass a batch on, as long as it keeps coming and is not absurdly large."""
        most = 2 * len(self._policy.senders) * (LENGTH.size + self._envelope_size) + _BYTES_OF_RUBBISH
        pieces, received = aiter(stream), 0
        while True:
            try:
                async with asyncio.timeout(_SECONDS_FOR_A_PIECE):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise RequestRefused(408, "slow", f"nothing came for {_SECONDS_FOR_A_PIECE:g} seconds") from None
            received += len(piece)
            if received > most:
                raise RequestRefused(413, "size", f"a batch has at most {most} bytes here")
            yield piece

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
