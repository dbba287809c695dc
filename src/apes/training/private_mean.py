"""The private mean: for those with a training loop of their own. Vectors and budgets in, estimate and guarantee out."""

from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apes.accounting.accountant import Accountant
from apes.accounting.guarantee import Guarantee
from apes.checks import exactly, finite_float32, numbers, whole
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.randomness import SimulationSource, StreamKey
from apes.models.model import PreparedUpdate, WholeUpdates
from apes.people.people import People
from apes.population import Examples, UserBlock
from apes.terms.terms import Terms
from apes.training.keys import noise_key
from apes.training.memory import check_memory
from apes.training.round import run_round
from apes.training.workers import Workers


class PrivateMean:
    """Estimates means of users' vectors, release after release, under one guarantee for all of them.

    Every call is a round: vectors are clipped, perturbed under their users' budgets, shuffled and calibrated; it is
    charged before it is released. With a target, whose vectors come next and when to stop may depend on what was
    estimated before, and the guarantee is the target. Without one it is what was spent, which holds only if all of that
    was settled beforehand.

    Args:
        terms: What users agree to; ``rounds`` is about how many calls there will be: figures are tightest there.
        dimensions: Numbers of a vector, at least 1.
        target_epsilon: In place of the terms' own, if given.
        delta: In place of the terms' own, if given; by default 1 / 10 n of the first call.
        seed: That the noise follows from, in [0, 2^64), for reproduction, or the key that it is drawn under. With
            a seed the guarantee holds only as long as that stays secret, and says so. None: a secret key from the
            operating system.
        workers: Who does the work.

    >>> mean = PrivateMean(Terms(clip=1.0), dimensions=2, delta=1e-6)
    >>> mean(np.full((1000, 2), 0.5), np.full(1000, 0.5)).shape
    (2,)
    >>> mean.guarantee.epsilon < 0.06
    True
    """

    def __init__(
        self,
        terms: Terms,
        dimensions: int,
        *,
        target_epsilon: float | None = None,
        delta: float | None = None,
        seed: int | StreamKey | None = None,
        workers: Workers | None = None,
    ) -> None:
        given: dict[str, Any] = {"target_epsilon": target_epsilon, "delta": delta}
        given = {name: value for name, value in given.items() if value is not None}
        self._terms = replace(exactly("terms", terms, Terms), **given)
        if isinstance(self._terms.target_epsilon, str):
            got = repr(self._terms.target_epsilon)
            raise ParameterError(
                f"target_epsilon must be a number: whose vectors come is the caller's choice; got {got}"
            )
        # Two calls at once would be the same round, under the same noise.
        self._lock = Lock()
        self._model, self._key, self._workers = Vectors(whole("dimensions", dimensions, 1)), noise_key(seed), workers
        self._calibrator = self._terms.calibrator()
        self._accountant: Accountant | None = None

    def __call__(self, updates: ArrayLike, budgets: ArrayLike) -> F64:
        """Estimate the mean of the clipped vectors.

        Args:
            updates: One row per user, (n, d).
            budgets: One local budget per user, (n,), each in (0, inf); an own epsilon per coordinate and call.

        Raises:
            BudgetExceeded: Before anything is released that would bring somebody's epsilon beyond the target.
        """
        rows = finite_float32("updates", numbers("updates", updates))
        if rows.ndim != 2 or rows.shape[1] != self._model.dimensions:
            raise ParameterError(f"updates must be users x {self._model.dimensions} numbers, got {rows.shape}")
        own = self._terms.applied(budgets)
        if own.shape != rows.shape[:1]:
            raise ParameterError(f"budgets must have one entry per row of updates, {rows.shape[0]}, got {own.size}")
        with self._lock:
            return self._release(rows, own)

    def _release(self, rows: F32, own: F64) -> F64:
        """Charge a round, then let it take place."""
        people = People(rows, np.zeros(own.size, dtype=np.uint8), np.arange(own.size + 1), own)
        check_memory(self._model.dimensions, self._terms, own.size, self._workers)
        if self._accountant is None:
            self._accountant = self._terms.accountant(own.size, settled=self._terms.target_epsilon is None)
        number = self._accountant.rounds + 1
        self._accountant.charge(self._terms.exposure(number, own, self._model.dimensions))
        source, start = SimulationSource(self._key, number), self._model.start()
        batch = run_round(self._terms, self._model, start, people, source, budgets=own, workers=self._workers)
        with quiet_blas():
            return self._calibrator.estimate(batch).mean

    @property
    def guarantee(self) -> Guarantee:
        """What is certified for all calls so far, or why nothing is."""
        if self._accountant is None:
            raise ParameterError("guarantee must be asked for after a call: delta may depend on the number of users")
        return replace(self._accountant.guarantee, is_seeded=self._key.is_seeded)


@dataclass(frozen=True)
class Vectors:
    """A model whose updates are the users' own rows, one each; a row of one number stands for all coordinates."""

    dimensions: int
    digest = "vectors"

    def start(self) -> F64:
        """Nothing is learned."""
        return np.zeros(self.dimensions)

    def prepare(self, weights: F32, block: UserBlock) -> PreparedUpdate:
        """The fast road: nothing is copied or checked again."""
        return WholeUpdates(self.updates(weights, block))

    def updates(self, weights: F32, block: UserBlock) -> F32:
        """The rows."""
        return np.broadcast_to(block.features, (block.budgets.size, self.dimensions))

    def evaluate(self, weights: F64, examples: Examples) -> tuple[float | None, float]:
        """There is nothing to judge."""
        return None, 0.0
