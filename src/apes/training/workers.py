"""Workers: who is to do a run's work. Which changes no bit of what comes of it."""

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from apes.checks import offering, unused, whole
from apes.training.crews.any_executor import AnyExecutor
from apes.training.crews.clusters import check_address, connected
from apes.training.crews.crew import Crew
from apes.training.crews.dask_cluster import DaskCluster
from apes.training.crews.hands import Hands
from apes.training.crews.in_threads import Threads
from apes.training.crews.processes import Processes
from apes.training.crews.spread import Means, Spread
from apes.training.crews.work import users_in_block

# Tallies of the shuffler are 16 bits wide.
_MOST_USERS_AT_ONCE = 2**16 - 1


@dataclass(frozen=True)
class Workers:
    """Who does a round's work; the result is the same bits whoever does. They are trusted: they see raw data.

    Attributes:
        threads: Worker threads of this process, at least 1; by default one per core.
        executor: Does the work instead: any `concurrent.futures.Executor`, or a `distributed.Client`. Whoever made it
            closes it.
        users_at_once: Most users in a block, in [1, 65535]; by default 64, of smaller models up to 1024. Of wide models
            fewer, so that memory stays bounded.
        processes: So many processes of this machine do the work, at least 1; started and ended with a run.
        cluster: Workers of this cluster do it: ``tcp://HOST:PORT`` is a Dask scheduler, ``ray://HOST:PORT`` a Ray
            cluster, ``ray://local`` Ray on this machine.

    Model, people and feature map go to other processes by pickle. docs/clusters.md says what travels when.
    """

    threads: int | None = None
    executor: Executor | None = None
    users_at_once: int | None = None
    processes: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            whole("threads", self.threads, 1)
        if self.executor is not None:
            offering("executor", self.executor, "submit")
            unused({"processes": self.processes, "cluster": self.cluster}, "the executor does the work")
        if self.processes is not None:
            whole("processes", self.processes, 1)
            unused({"threads": self.threads, "cluster": self.cluster}, "processes do the work")
        if self.cluster is not None:
            check_address(self.cluster)
            unused({"threads": self.threads}, "the cluster does the work")
        if self.users_at_once is not None:
            whole("users_at_once", self.users_at_once, 1, _MOST_USERS_AT_ONCE)

    @property
    def count(self) -> int:
        """How many threads of this process."""
        return os.cpu_count() or 1 if self.threads is None else self.threads

    def block_users(self, dimensions: int) -> int:
        """Users in a block, for a model of so many coordinates."""
        return users_in_block(self.users_at_once, dimensions)

    def open(self) -> Crew:
        """Get them ready; to be used in a with statement, which ends what was started.

        Raises:
            WorkersError: If they are not to be had, or have another version of the package.
        """
        means = self._means()
        if means is None:
            return Threads(self.count, self.users_at_once)
        return Spread(means, self.users_at_once, self.count)

    def _means(self) -> Means | None:
        """How work gets to those who do it; None for threads, who are here."""
        if self.processes is not None:
            return Hands(Processes(), self.processes)
        if self.cluster is not None:
            return connected(self.cluster)
        if self.executor is None:
            return None
        return DaskCluster(self.executor, is_own=False) if _is_dask(self.executor) else AnyExecutor(self.executor)


def _is_dask(executor: Any) -> bool:
    """Whether it is a client of a Dask cluster, which can do more than an executor."""
    return type(executor).__module__.split(".")[0] == "distributed" and hasattr(executor, "get_executor")


@contextmanager
def opened(workers: Workers | Crew | None) -> Iterator[Crew]:
    """A crew, for as long as it takes; one that was opened elsewhere is closed there."""
    if workers is None or isinstance(workers, Workers):
        with (Workers() if workers is None else workers).open() as crew:
            yield crew
    else:
        yield workers
