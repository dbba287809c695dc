"""The analyzer's side of a round: from a shuffled batch to the next model, its quality and what it cost.

Simulation and federation both go through here; they differ in where a batch comes from.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Event, budgets_digest
from apes.analyzer.optimizer import ServerOptimizer, ServerState
from apes.messages import Batch
from apes.models.logistic import LogisticRegression
from apes.terms.plan import Plan


@dataclass(frozen=True)
class RoundMetrics:
    """How a round went.

    Attributes:
        round: Number of the round, from 1.
        accuracy: Share of the test set that the model gets right.
        loss: Mean cross-entropy on the test set, in nats.
        seconds: Wall time of the round, evaluation included.
        epsilon: Certified central epsilon of a user after this round, where it was charged.
    """

    round: int
    accuracy: float
    loss: float
    seconds: float
    epsilon: float | None = None


@dataclass(frozen=True, eq=False)
class Progress:
    """Everything needed to go on after a round."""

    state: ServerState
    metrics: tuple[RoundMetrics, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def rounds(self) -> int:
        """Rounds that are over."""
        return len(self.metrics)


@dataclass(frozen=True, eq=False)
class TestSet:
    """Public examples that a model is judged by.

    Attributes:
        images: Array (examples, features).
        labels: The class of each.
    """

    __test__ = False

    images: NDArray[np.float32]
    labels: NDArray[np.uint8]


class Analysis:
    """Calibrates, steps, evaluates and accounts, round after round.

    Args:
        plan: What runs.
        model: What is trained.
        test: What it is judged by.
        accountant: Charges every round, or None where nothing central is certified.
    """

    def __init__(self, plan: Plan, model: LogisticRegression, test: TestSet, accountant: Accountant | None) -> None:
        self._plan, self._model, self._test = plan, model, test
        self._accountant = accountant
        self._calibrator = plan.calibrator()
        self._optimizers: dict[str, ServerOptimizer] = {}

    def start(self) -> Progress:
        """Where a new run stands."""
        return Progress(ServerState.start(self._model.start()))

    def conclude(self, progress: Progress, batch: Batch, began: float) -> Progress:
        """Take a round's batch and return where the run stands after it.

        Args:
            progress: Where it stood before.
            batch: Whose budgets are those of everybody who took part, and of nobody else.
            began: When the round began, by `time.perf_counter`.
        """
        number, budgets = progress.rounds + 1, np.sort(batch.budgets)
        optimizer = self._optimizer(budgets)
        state = optimizer.apply(progress.state, self._calibrator.estimate(batch))
        accuracy, loss = self._model.evaluate(optimizer.model(state), self._test.images, self._test.labels)
        epsilon = None if self._accountant is None else self._accountant.charge(budgets)
        metrics = RoundMetrics(number, accuracy, loss, time.perf_counter() - began, epsilon)
        event = self._plan.event(number, budgets, self._model.dimensions)
        return Progress(state, (*progress.metrics, metrics), (*progress.events, event))

    def model(self, progress: Progress) -> NDArray[np.float64]:
        """The model to hand out."""
        return self._plan.optimizer_of_step(1.0).model(progress.state)

    def _optimizer(self, budgets: NDArray[np.float64]) -> ServerOptimizer:
        """The optimizer for these participants; the default step depends on the noise of their reports."""
        name = budgets_digest(budgets)
        if name not in self._optimizers:
            self._optimizers[name] = self._plan.optimizer(budgets)
        return self._optimizers[name]
