"""Training: the whole flow on one screen."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Event
from apes.checks import whole
from apes.client.pipeline import Client
from apes.data import Dataset, partition
from apes.errors import BudgetExceeded
from apes.mathematics.randomness import SimulationSource
from apes.messages import Batch
from apes.models.logistic import LogisticRegression
from apes.population import InMemoryPopulation, Population
from apes.shuffler.shuffle import Collector
from apes.terms.plan import Plan
from apes.training.analysis import Analysis, Progress, RoundMetrics, TestSet

_USERS_AT_ONCE = 64
# Tallies of the shuffler are 16 bits wide.
_MOST_USERS_AT_ONCE = 2**16 - 1


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained model and how it came about.

    Attributes:
        weights: The model, flat.
        metrics: One entry a round.
        events: What the accountant has to know, one entry a round.
        population_budgets: The local budgets of all users.
    """

    weights: NDArray[np.float64]
    metrics: tuple[RoundMetrics, ...]
    events: tuple[Event, ...]
    population_budgets: NDArray[np.float64] = field(repr=False)

    @property
    def accuracy(self) -> float:
        """Test accuracy of the final model, in [0, 1]."""
        return self.metrics[-1].accuracy


def train(
    plan: Plan,
    dataset: Dataset,
    *,
    threads: int | None = None,
    users_at_once: int = _USERS_AT_ONCE,
    only_sums: bool = False,
    resume: Progress | None = None,
    accountant: Accountant | None = None,
    after_round: Callable[[Progress], None] = lambda progress: None,
) -> TrainingResult:
    """Simulate all three parties and train a model.

    Args:
        plan: What to do.
        dataset: The data; training images are spread over the plan's users.
        threads: Worker threads, at least 1; by default one a core. Does not change the result.
        users_at_once: Users in a block, in [1, 65535]. Does not change the result.
        only_sums: Let the shuffler add continuous reports up instead of handing them over permuted. Calibration needs
            no more, so the model is the same up to rounding, in less time and memory.
        resume: Where to go on, from an earlier run of the same plan.
        accountant: Charges every round, and ends the training before one that its target does not allow.
        after_round: Called after every round.
    """
    threads = whole("threads", os.cpu_count() or 1 if threads is None else threads, 1)
    model = LogisticRegression(dataset.train_images.shape[1], dataset.classes)
    population = spread(plan, dataset)
    client = plan.client(model.dimensions)
    analysis = Analysis(plan, model, TestSet(dataset.test_images, dataset.test_labels), accountant)
    progress = analysis.start() if resume is None else resume
    if accountant is not None and progress.rounds:
        accountant.charge(population.budgets, progress.rounds)
    with quiet_blas():
        for number in range(progress.rounds + 1, plan.rounds + 1):
            if accountant is not None and not accountant.allows(population.budgets):
                break
            began = time.perf_counter()
            source = SimulationSource(plan.seed, number)
            collector = plan.collector(model.dimensions, source, threads, only_sums=only_sums)
            blocks = BlockQueue(population, users_at_once)
            batch = collect(client, collector, model.shaped(progress.state.weights), blocks, source, threads)
            progress = analysis.conclude(progress, batch, began)
            after_round(progress)
    if not progress.metrics:
        raise BudgetExceeded("not even one round keeps within target_epsilon; see `apes account` for what it costs")
    return TrainingResult(analysis.model(progress), progress.metrics, progress.events, population.budgets)


def spread(plan: Plan, dataset: Dataset) -> InMemoryPopulation:
    """Spread the training images over the plan's users and give everybody a budget."""
    order, offsets = partition(dataset.train_labels, plan.users, plan.split, plan.seed)
    budgets = plan.population_budgets()
    return InMemoryPopulation(dataset.train_images[order], dataset.train_labels[order], offsets, budgets)


def quiet_blas() -> AbstractContextManager[object]:
    """Keep BLAS to one thread: its others go on spinning after a call, on the cores that users' blocks need."""
    limit: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limit


def collect(
    client: Client,
    collector: Collector,
    weights: NDArray[np.float32],
    blocks: "BlockQueue",
    source: SimulationSource,
    threads: int,
) -> Batch:
    """Let every user report, on several threads, and release the batch."""

    def work(_: int) -> None:
        for start, stop in blocks:
            for report in client.reports(weights, blocks.population.block(start, stop), source):
                collector.add(report)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    return collector.release()


class BlockQueue:
    """Hands out a population's blocks, each to whichever thread asks next."""

    def __init__(self, population: Population, users_at_once: int) -> None:
        self.population = population
        size = whole("users_at_once", users_at_once, 1, _MOST_USERS_AT_ONCE)
        users = population.budgets.size
        self._blocks = iter([(start, min(start + size, users)) for start in range(0, users, size)])
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return self

    def __next__(self) -> tuple[int, int]:
        with self._lock:
            return next(self._blocks)
