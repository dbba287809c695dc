"""One round: every user reports, the shuffler releases. Training, audit, paper and benchmarks all call `run_round`."""

import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from apes.checks import offering, whole
from apes.client.client import Client
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.randomness import SimulationSource
from apes.messages import Batch
from apes.models.model import Model
from apes.population import Population, UserBlock
from apes.shuffler.shuffle import Collector, Part
from apes.terms.terms import Terms

USERS_AT_ONCE = 64
# Tallies of the shuffler are 16 bits wide.
_MOST_USERS_AT_ONCE = 2**16 - 1
# Enough tasks for a cluster to balance its workers; each brings one table of counts back.
_TASKS_PER_CORE = 4


@dataclass(frozen=True)
class Workers:
    """Who does a round's work; the result is the same bits whoever does.

    Attributes:
        threads: Worker threads of this process, at least 1; by default one per core.
        executor: Runs the work instead: threads, processes, a cluster. What is submitted to it can be pickled if model
            and population can. It is trusted: it sees raw data.
        users_at_once: Users in a block, in [1, 65535].
    """

    threads: int | None = None
    executor: Executor | None = None
    users_at_once: int = USERS_AT_ONCE

    def __post_init__(self) -> None:
        if self.threads is not None:
            whole("threads", self.threads, 1)
        if self.executor is not None:
            offering("executor", self.executor, "submit")
        whole("users_at_once", self.users_at_once, 1, _MOST_USERS_AT_ONCE)

    @property
    def count(self) -> int:
        """How many threads."""
        return os.cpu_count() or 1 if self.threads is None else self.threads


def run_round(
    terms: Terms,
    model: Model,
    weights: F64,
    population: Population,
    source: SimulationSource,
    *,
    budgets: F64 | None = None,
    workers: Workers | None = None,
    only_sums: bool = False,
) -> Batch:
    """Let every user report on the model, and release the batch.

    Args:
        terms: What users agreed to.
        model: What is trained.
        weights: The model as it is, flat: as many coordinates as were charged.
        population: The users.
        source: The round's randomness.
        budgets: What was charged, user by user; by default what the terms make of the population's.
        workers: Who does the work; by default a thread per core.
        only_sums: Let the shuffler add continuous reports up: the same model up to rounding, in less time and memory.
    """
    workers = Workers() if workers is None else workers
    budgets = terms.applied(population.budgets) if budgets is None else budgets
    work = _Work(terms.client(model, weights.size), population, budgets, weights.astype(np.float32), source)
    collector = partial(terms.collector, budgets.size, weights.size, source, workers.count, only_sums=only_sums)
    edges = [*range(0, budgets.size, workers.users_at_once), budgets.size]
    blocks = list(pairwise(edges))
    with quiet_blas():
        if workers.executor is not None:
            return _run_elsewhere(work, collector, blocks, workers.executor)
        gathered = collector()
        with ThreadPoolExecutor(workers.count) as pool:
            list(pool.map(lambda block: work.into(gathered, [block]), blocks))
        return gathered.release()


@dataclass(frozen=True, eq=False)
class _Work:
    """What a worker needs to let any of the users report."""

    client: Client
    population: Population
    budgets: F64
    weights: F32
    source: SimulationSource

    def into(self, collector: Collector, blocks: list[tuple[int, int]]) -> None:
        """Let the users of these blocks report."""
        for start, stop in blocks:
            for report in self.client.reports(self.weights, self._block(start, stop), self.source):
                collector.add(report)

    def _block(self, start: int, stop: int) -> UserBlock:
        """A block as the population hands it out, under the budgets that were charged, whatever it says itself."""
        block = self.population.block(start, stop)
        offsets, rows = np.asarray(block.offsets), len(block.features)
        is_rising = offsets.shape == (stop - start + 1,) and offsets[0] == 0 and (offsets[1:] > offsets[:-1]).all()
        if not is_rising or not offsets[-1] == rows == len(block.labels):
            name, got = f"{type(self.population).__name__}.block({start}, {stop})", f"{offsets} and {len(block.labels)}"
            must = (
                f"must have {stop - start + 1} offsets, rising from 0 to its number of rows, {rows}, and as many labels"
            )
            raise ParameterError(f"{name} {must}, got {got}")
        # A copy: a stranger's model that could write to the run's own would give one user another's budget.
        return UserBlock(start, self.budgets[start:stop].copy(), block.features, block.labels, offsets)


def _run_elsewhere(
    work: _Work, collector: Callable[[], Collector], blocks: list[tuple[int, int]], executor: Executor
) -> Batch:
    """Hand the blocks to an executor in a few tasks, and put together what they bring back."""
    tasks = min(len(blocks), _TASKS_PER_CORE * (os.cpu_count() or 1))
    edges = np.linspace(0, len(blocks), tasks + 1).astype(int).tolist()
    futures = [executor.submit(_gather, work, collector, blocks[low:high]) for low, high in pairwise(edges)]
    total = collector()
    for future in futures:
        total.join(future.result())
    return total.release()


def _gather(work: _Work, collector: Callable[[], Collector], blocks: list[tuple[int, int]]) -> Part:
    """What the users of some blocks report, gathered by a worker."""
    gathered = collector()
    with quiet_blas():
        work.into(gathered, blocks)
    return gathered.part()
