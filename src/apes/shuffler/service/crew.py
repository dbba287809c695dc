"""Who counts a round's reports: a thread of this process, or several processes, each for a part of the senders.

A sender's reports all go to one worker, in the order in which they came, so of two the first counts; counts, refusals
and cohorts are sums. So a release is the same, to the byte, whatever the number of workers.
"""

import asyncio
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from apes.errors import ProtocolError
from apes.shuffler.service.intake import Intake, Part
from apes.shuffler.service.policy import Policy
from apes.storage.json_logs import log
from apes.wire.announcement import Announcement
from apes.wire.envelope import written_sender

# What is handed to a worker at once, and how often before it is waited for.
_BYTES_AT_ONCE = 1 << 20
_SHARES_UNDER_WAY = 2
# What an intake is made of, but for the key.
Of = tuple[Policy, Announcement]


class WorkerLost(ProtocolError):  # noqa: N818 - the name says what happened
    """A worker has died, and what it had counted with it."""


class Counting(Protocol):
    """One round's reports on their way into the counts."""

    async def take(self, reports: list[bytes]) -> None:
        """Take sealed reports; returns when more may come."""

    async def finish(self) -> Intake:
        """All that was taken; nothing is taken after that."""

    def close(self) -> None:
        """Forget what is not finished."""


class Counters(Protocol):
    """Whoever counts."""

    def begin(self, of: Of) -> Counting:
        """Begin a round."""

    def close(self) -> None:
        """Stop."""


class Alone:
    """Counts in this process."""

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key

    def begin(self, of: Of) -> Counting:
        """Begin a round."""
        return _InThread(Intake(*of, self._key))

    def close(self) -> None:
        """Nothing runs between rounds."""


class _InThread:
    def __init__(self, intake: Intake) -> None:
        # One thread for a round: counts are kept per thread, and a large model's are large.
        self._intake, self._thread = intake, ThreadPoolExecutor(1)

    async def take(self, reports: list[bytes]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._intake.take, reports)

    async def finish(self) -> Intake:
        return self._intake

    def close(self) -> None:
        self._thread.shutdown()


class Crew:
    """Counts in processes of its own, at least 1; one that dies is replaced, and the rounds that it had are lost."""

    def __init__(self, key: X25519PrivateKey, workers: int) -> None:
        self._key = key
        self._names = itertools.count()
        self._workers = [self._hire() for _ in range(workers)]

    def begin(self, of: Of) -> Counting:
        """Begin a round."""
        return _Shared(next(self._names), of, self._key, [self._living(place) for place in range(len(self._workers))])

    def close(self) -> None:
        """Stop the workers."""
        for worker in self._workers:
            worker.shutdown(cancel_futures=True)

    def _living(self, place: int) -> ProcessPoolExecutor:
        worker = self._workers[place]
        try:
            worker.submit(_look)
        except BrokenProcessPool:
            log("worker-lost", worker=place)
            self._workers[place] = worker = self._hire()
        return worker

    def _hire(self) -> ProcessPoolExecutor:
        # Spawned: it has none of this process' files, not the ledger's lock, not the sockets.
        spawn, own = multiprocessing.get_context("spawn"), (self._key.private_bytes_raw(),)
        worker = ProcessPoolExecutor(1, spawn, initializer=_begin_work, initargs=own)
        worker.submit(_look)
        return worker


class _Shared:
    """One round, spread over workers by the senders' names."""

    def __init__(self, name: int, of: Of, key: X25519PrivateKey, workers: list[ProcessPoolExecutor]):
        self._name, self._of, self._key, self._workers = name, of, key, workers
        self._shares: list[list[bytes]] = [[] for _ in workers]
        self._under_way: list[deque[Future[None]]] = [deque() for _ in workers]
        self._size = 0
        self._is_begun = False

    async def take(self, reports: list[bytes]) -> None:
        for report in reports:
            self._shares[share_of(report, len(self._workers))].append(report)
            self._size += len(report)
        if self._size >= _BYTES_AT_ONCE * len(self._workers):
            await self._hand_over()

    async def finish(self) -> Intake:
        await self._hand_over()
        whole = Intake(*self._of, self._key)
        try:
            for waiting in self._under_way:
                while waiting:
                    await asyncio.wrap_future(waiting.popleft())
            parts = [worker.submit(_end, self._name) for worker in self._workers]
            for part in parts:
                await asyncio.to_thread(whole.join, await asyncio.wrap_future(part))
        except BrokenProcessPool:
            raise WorkerLost("a worker died while it counted") from None
        return whole

    def close(self) -> None:
        for worker in self._workers:
            try:
                worker.submit(_forget, self._name)
            except (BrokenProcessPool, RuntimeError):
                # It is gone, and with it what it had.
                continue

    async def _hand_over(self) -> None:
        self._size = 0
        try:
            if not self._is_begun:
                self._is_begun = True
                for worker, waiting in zip(self._workers, self._under_way, strict=True):
                    waiting.append(worker.submit(_begin, self._name, self._of))
            for place, worker in enumerate(self._workers):
                share, self._shares[place] = self._shares[place], []
                waiting = self._under_way[place]
                waiting.append(worker.submit(_take, self._name, share))
                while len(waiting) > _SHARES_UNDER_WAY:
                    await asyncio.wrap_future(waiting.popleft())
        except BrokenProcessPool:
            raise WorkerLost("a worker died while it counted") from None


def share_of(report: bytes, workers: int) -> int:
    """Which worker a report goes to: all that one sender signs go to the same."""
    return int.from_bytes(written_sender(report)[-4:]) % workers


# What follows runs in a worker, which has one thread for it.
_key: list[X25519PrivateKey] = []
_intakes: dict[int, Intake] = {}


def _begin_work(key: bytes) -> None:
    _key.append(X25519PrivateKey.from_private_bytes(key))
    # Who stops the service from a terminal stops us by its end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _look() -> None:
    """Do nothing; who asks learns whether anybody is there."""


def _begin(name: int, of: Of) -> None:
    _intakes[name] = Intake(*of, _key[0])


def _take(name: int, reports: list[bytes]) -> None:
    _intakes[name].take(reports)


def _end(name: int) -> Part:
    return _intakes.pop(name).part()


def _forget(name: int) -> None:
    _intakes.pop(name, None)
