"""Spread: a run's users are cut into shares, each share stays with a worker, and rounds send what is new."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from apes.mathematics.arrays import F64
from apes.messages import Batch
from apes.population import Population, part_of
from apes.shuffler.parts import Part
from apes.training.cohort import Cohort
from apes.training.crews.crew import Facts, Job
from apes.training.crews.same_code import own_version
from apes.training.crews.work import FEWEST_USERS, Order, Present


class Means(Protocol):
    """How values get to workers, and calls are done by them."""

    @property
    def facts(self) -> Facts:
        """Who they are."""

    @property
    def shares(self) -> int:
        """Into how many shares users are cut best."""

    def keep(self, slot: str, value: object, share: int | None = None) -> Any:
        """Send a value, in place of the slot's earlier one; returns what stands for it in calls.

        It is for whoever has a share of users, by its number; or for everybody.
        """

    def run(self, calls: list[tuple[Any, ...]]) -> Part:
        """Do calls of `gather` with kept values, and add up what they bring, whoever dies meanwhile."""

    def close(self) -> None:
        """End what was started; also what is under way."""


class Spread:
    """A crew of workers elsewhere, by some means; ``threads`` of this process put together what comes back."""

    def __init__(self, means: Means, users_at_once: int | None, threads: int) -> None:
        self._means, self._at_once, self._threads = means, users_at_once, threads
        self._people: Population | None = None
        self._edges: list[int] = []
        self._shares: list[Any] = []
        self._made_for: tuple[Any, Any, int] = (None, None, 0)
        self._client: Any = None
        self._who: tuple[NDArray[np.intp] | None, F64] | None = None
        self._present: list[tuple[int, Any]] = []
        # Rounds of several threads would take one another's place in the slots.
        self._lock = threading.Lock()

    @property
    def facts(self) -> Facts:
        """Who does the work."""
        return self._means.facts

    def round(self, job: Job) -> Batch:
        """Let every user report, and release the batch."""
        cohort = job.population
        people, users = (cohort.population, cohort.users) if isinstance(cohort, Cohort) else (cohort, None)
        weights = job.broadcast
        of = job.terms, weights, job.source, job.budgets.size, job.only_sums, self._at_once
        order = Order(*of, own_version())
        with self._lock, self._forgetting():
            self._keep_people(people, job.budgets.size if users is None else people.budgets.size)
            self._keep_client(job)
            self._keep_present(users, job.budgets)
            now = self._means.keep("order", order)
            calls = [(self._client, self._shares[share], present, now) for share, present in self._present]
            part = self._means.run(calls)
        total = order.collector(threads=self._threads)
        total.join(part, job.budgets)
        return total.release()

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Where a round fails, what workers had may have gone with them: the next one sends all of it anew."""
        try:
            yield
        except BaseException:
            self._people, self._made_for, self._who = None, (None, None, 0), None
            raise

    def _keep_people(self, people: Population, count: int) -> None:
        """Send everybody's data, unless it was: once a run."""
        if people is self._people:
            return
        # None of them so small that sending the work takes longer than the work.
        least = FEWEST_USERS if self._at_once is None else self._at_once
        shares = min(self._means.shares, -(-count // least))
        self._edges = [count * share // shares for share in range(shares + 1)]
        self._shares, whole = [], None
        for share, (start, stop) in enumerate(pairwise(self._edges)):
            part = part_of(people, start, stop)
            if part is not people:
                self._shares.append(self._means.keep("share", part, share))
                continue
            whole = self._means.keep("share", part) if whole is None else whole
            self._shares.append(whole)
        self._people, self._who = people, None

    def _keep_client(self, job: Job) -> None:
        """Send the model with its stages, unless it was: once a run."""
        terms, model, size = self._made_for
        if job.terms is not terms or job.model is not model or job.weights.size != size:
            self._client = self._means.keep("client", job.terms.client(job.model, job.weights.size))
            self._made_for = job.terms, job.model, job.weights.size

    def _keep_present(self, users: NDArray[np.intp] | None, budgets: F64) -> None:
        """Send who takes part with which budget, unless they are those of the round before."""
        if self._who is not None and _same(self._who, (users, budgets)):
            return
        # Where each share's first one stands among those who take part.
        cuts = self._edges if users is None else np.searchsorted(users, self._edges).tolist()
        self._present = []
        for share, (start, stop) in enumerate(pairwise(cuts)):
            if start < stop:
                own = None if users is None else users[start:stop]
                present = Present(start, budgets[start:stop], own)
                self._present.append((share, self._means.keep("present", present, share)))
        self._who = users, budgets.copy()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._means.close()


def _same(one: tuple[NDArray[np.intp] | None, F64], other: tuple[NDArray[np.intp] | None, F64]) -> bool:
    (users, budgets), (others, theirs) = one, other
    if users is None or others is None:
        return users is others and np.array_equal(budgets, theirs)
    return np.array_equal(users, others) and np.array_equal(budgets, theirs)
