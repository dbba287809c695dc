"""Threads of this process: nothing has to travel, and all count into the same table."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Self

from apes.mathematics.compiled import quiet_blas
from apes.messages import Batch
from apes.training.crews.crew import Facts, Job
from apes.training.crews.work import Order, Present, edges, take_reports

# How many times smaller the last blocks are.
_LAST_ONES = 4


class Threads:
    """So many threads, at least 1; ``users_at_once`` are in a block, or what suits the model."""

    def __init__(self, threads: int, users_at_once: int | None) -> None:
        self._threads, self._at_once = threads, users_at_once

    @property
    def facts(self) -> Facts:
        """How many threads."""
        return Facts("threads", self._threads)

    def round(self, job: Job) -> Batch:
        """Let every user report, and release the batch."""
        present, weights = Present(0, job.budgets), job.broadcast
        order = Order(job.terms, weights, job.source, job.budgets.size, job.only_sums, self._at_once)
        client, gathered = job.terms.client(job.model, weights.size), order.collector(threads=self._threads)

        def work(block: tuple[int, int]) -> None:
            take_reports(client, job.population, present, order, (gathered, [block]))

        with quiet_blas():
            self._do(work, deque(self._blocks(present.span, order.block_users)))
            return gathered.release()

    def _do(self, work: Callable[[tuple[int, int]], None], blocks: deque[tuple[int, int]]) -> None:
        """Let every thread take one block after the other; whoever waits for them is woken once, not by every block."""
        failed: dict[tuple[int, int], BaseException] = {}

        def work_on() -> None:
            while blocks:
                # Another thread may have taken the last one meanwhile.
                with suppress(IndexError):
                    block = blocks.popleft()
                    try:
                        work(block)
                    except BaseException as error:
                        failed[block] = error
                        blocks.clear()

        with ThreadPoolExecutor(self._threads) as pool:
            try:
                wait([pool.submit(work_on) for _ in range(self._threads)])
            finally:
                # Whoever is interrupted waits for blocks that were begun, and for no other.
                blocks.clear()
        if failed:
            # Those before it were begun before, and are done: it is the same one every time.
            raise failed[min(failed)]

    def _blocks(self, span: range, size: int) -> list[tuple[int, int]]:
        """Blocks of so many users, towards the end smaller ones: the last thread to be done is not far behind."""
        last = max(span.start, span.stop - self._threads * size)
        return edges(range(span.start, last), size) + edges(range(last, span.stop), -(-size // _LAST_ONES))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
