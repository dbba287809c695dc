"""A server that everybody trusts with bare updates, and that adds Gaussian noise itself: a yardstick.

It is not a framework that anybody trains under here. It says how accurate a model could be at the same user-level
epsilon if people gave up what the shuffle model spares them: showing somebody their updates. Model, features, clipping
to a norm R, schedule and server's step are the same as ours; nothing but the noise is added, once, to the mean.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from apes.accounting.certificate.curve import check_delta
from apes.accounting.composition.gaussian import gaussian_epsilon, largest_mu
from apes.analyzer.optimizer import ServerState
from apes.checks import positive, whole
from apes.errors import ParameterError
from apes.features.feature_map import FeatureMap, mapped
from apes.mathematics.arrays import F32, F64
from apes.mathematics.compiled import quiet_blas
from apes.messages import Estimate
from apes.models.logistic import LogisticRegression
from apes.models.model import Model, check_model, evaluated
from apes.paper.frontier.row_sums import RowSums
from apes.people.people import People
from apes.population import Population
from apes.terms.schedule import Schedule
from apes.terms.terms import Terms
from apes.training.workers import Workers

# Keeps the stream apart from those that other parts of the package derive from the same seed.
_STREAM = 0x5452_5553_54
# More than roundings add: what is spent is not beyond the target.
_HAIR = 1e-8


@dataclass(frozen=True)
class TrustedServer:
    """What the yardstick is trained by.

    Attributes:
        norm: R, which every update's L2 norm is clipped to.
        rounds: T; everybody takes part in each.
        target_epsilon: Central epsilon of a user over all rounds, met to a millionth; one user's data replaced.
        delta: Of that guarantee, in [1e-100, 1).
        schedule: How the server steps; by default by the rule that ours are stepped by.
        seed: Of the noise.
    """

    norm: float
    rounds: int
    target_epsilon: float
    delta: float
    schedule: Schedule = field(default_factory=Schedule)
    seed: int = 1

    def __post_init__(self) -> None:
        positive("norm", self.norm)
        whole("rounds", self.rounds, 1)
        positive("target_epsilon", self.target_epsilon)
        check_delta(self.delta)
        whole("seed", self.seed, 0, 2**64 - 1)

    def noise(self, users: int) -> float:
        """Standard deviation s of what is added to every coordinate of the mean update, round after round."""
        # Replacing one user moves the sum by at most 2 R, so a round is a Gaussian shift of 2 R / (n s); the squares of
        # T of them add up to (2 R / (n s))^2 T.
        shift = largest_mu(self.target_epsilon, self.delta) * (1 - _HAIR)
        return 2 * self.norm * math.sqrt(self.rounds) / (users * shift)

    def epsilon(self, users: int) -> float:
        """What all rounds cost anybody, from above."""
        shift = 2 * self.norm / (users * self.noise(users))
        return gaussian_epsilon(shift * math.sqrt(self.rounds), self.delta)

    def train(
        self,
        model: Model,
        people: People,
        *,
        features: FeatureMap | None = None,
        workers: Workers | None = None,
        after_round: Callable[[int], None] = lambda done: None,
    ) -> tuple[float, ...]:
        """Test accuracy in [0, 1] after every round; arguments as for `apes.train`."""
        if people.test is None:
            raise ParameterError("people must come with test examples, got none")
        present, test = (people, people.test) if features is None else mapped(people, people.test, features)
        noise, workers = self.noise(users := people.budgets.size), Workers() if workers is None else workers
        terms = Terms(clip=self.norm, norm=self.norm, rounds=self.rounds)
        optimizer, state = self.schedule.steps(terms, model, noise), ServerState.start(check_model(model))
        found, sums = [], clipped_sums(model, present, self.norm, workers)
        for done in range(1, self.rounds + 1):
            total = sums(state.weights)
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([_STREAM, self.seed, done])))
            mean = total / users + noise * rng.standard_normal(total.size)
            state = optimizer.apply(state, Estimate(mean, noise))
            accuracy, _ = evaluated(model, optimizer.model(state), test or people.test)
            found.append(math.nan if accuracy is None else accuracy)
            after_round(done)
        return tuple(found)


def clipped_sums(model: Model, people: Population, norm: float, workers: Workers) -> Callable[[F64], F64]:
    """What sums everybody's updates at some weights, each scaled down to a norm of at most R."""
    if not isinstance(model, LogisticRegression) or not RowSums.suits(people):
        return lambda weights: _clipped_sum(model, weights, people, norm, workers)
    rows = RowSums(model, people)

    def summed(weights: F64) -> F64:
        with quiet_blas():
            return rows.clipped(weights.astype(np.float32), norm, workers.count)

    return summed


# Sums are of single precision within a block: always of the same users, whoever works.
_USERS_AT_ONCE = 64


def _clipped_sum(model: Model, weights: F64, people: Population, norm: float, workers: Workers) -> F64:
    """Sum of everybody's updates, each scaled down to a norm of at most R."""
    now, users = weights.astype(np.float32), people.budgets.size

    def of_block(block: tuple[int, int]) -> F32:
        updates = model.updates(now, people.block(*block))
        norms = np.sqrt(np.einsum("ij,ij->i", updates, updates, dtype=np.float64))
        return np.asarray(np.minimum(1, norm / np.maximum(norms, norm)).astype(np.float32) @ updates, dtype=np.float32)

    blocks = pairwise([*range(0, users, _USERS_AT_ONCE), users])
    with quiet_blas(), ThreadPoolExecutor(workers.count) as pool:
        # In the order of users, so that the sum does not depend on threads.
        return np.asarray(np.sum(list(pool.map(of_block, blocks)), axis=0, dtype=np.float64))
