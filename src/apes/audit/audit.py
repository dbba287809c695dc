"""The audit: attack the real pipeline on a worst-case pair of datasets, and hold the certificate against the outcome.

In one world the victim, who has the largest budget, stands at one end in every coordinate, in the other world at the
other end; everybody else stands at 0. The attack sees what the analyzer sees, the shuffled batch, and nothing else. How
often it is right bounds epsilon from below (Clopper and Pearson), up to a stated chance of error: an audited epsilon
above the certified one means that the mechanism or the certificate is wrong. The attack is a test of the likelihood
ratio, the best there is (Neyman and Pearson) where the others have equal budgets, else nearly; any attack is valid.

An audit of N trials sees nothing beyond about log(N / 20), and nothing that happens less than once in N / 20: in a
crowd a tiny delta leaves much room between audit and certificate, a delta of a few per cent little. A bound from below
proves no privacy.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certified_epsilon
from apes.analyzer.expected import law_at_zero, pooled_channel
from apes.audit.attack import CONFIDENCE, Attack, audited_epsilon, error_rates
from apes.checks import positive_array, whole
from apes.errors import ProtocolError
from apes.mathematics.arrays import F64
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.levels import level_probabilities
from apes.mathematics.randomness import SimulationSource
from apes.mathematics.search import Progress
from apes.mathematics.thresholds import MAX_LEVELS
from apes.messages import CountedBatch
from apes.population import People
from apes.terms.terms import Terms
from apes.training.private_mean import Vectors
from apes.training.round import Workers, run_round

_CLIP = 1.0
# The worst updates lie beyond the clip bound, so that clipping is audited too.
_BEYOND = 2.0
_USERS_AT_ONCE = 128
# A coordinate takes 2.5 kB in the shuffler: 20 MB for a chunk, 80 MB for the longest report.
_COORDINATES_AT_ONCE = 8192
_MOST_DIMENSIONS = 2**15
# Chunks of the first world are rounds 0 to 2^23 - 1, those of the second the rest of the 2^24 there are.
_MOST_TRIALS = 2**23
# Scores of single coordinates that are kept per world: 32 MB.
_MOST_SCORES = 2**22
_TINY = 1e-300
# A law below it is taken as this; the score is then not quite the best one, and as valid.
_RARE = 1e-12


@dataclass(frozen=True)
class AuditResult:
    """What an attack achieved, beside what was certified.

    Attributes:
        trials: Simulated rounds per world; half of them chose the attack's thresholds, the others tested it.
        dimensions: Coordinates of a report; every coordinate of every trial is a trial of the coordinate level.
        confidence: Chance that both audited figures are true lower bounds, at least.
        coordinate_audited, coordinate_certified: Bounds of epsilon if one coordinate of one user is replaced.
        user_audited, user_certified: The same if one user is replaced.
        coordinate_attack, user_attack: Error rates, for a picture; the audited figures do not rest on them.
    """

    trials: int
    dimensions: int
    delta: float
    confidence: float
    coordinate_audited: float
    coordinate_certified: float
    user_audited: float
    user_certified: float
    coordinate_attack: Attack
    user_attack: Attack

    @property
    def passed(self) -> bool:
        """Whether no audited figure exceeds the certified one."""
        return self.coordinate_audited <= self.coordinate_certified and self.user_audited <= self.user_certified


def audit(
    budgets: F64,
    *,
    dimensions: int,
    trials: int,
    levels: int = MAX_LEVELS,
    delta: float,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> AuditResult:
    """Attack a population's shuffled reports, and compare with what is certified.

    Reports have up to 32768 dimensions; each world is simulated in 2 to 2^23 trials. ``progress`` is called with the
    coordinates simulated so far and the number of all.

    Guarantee:
        If the pipeline is as private as certified, ``passed`` is true with probability 0.999 or more over the
        simulated randomness.

    >>> audit(np.array([1.0]), dimensions=2, trials=500, levels=2, delta=1e-6, seed=1).passed
    True
    """
    budgets = positive_array("budgets", budgets)
    whole("dimensions", dimensions, 1, _MOST_DIMENSIONS)
    whole("trials", trials, 2, _MOST_TRIALS)
    whole("levels", levels, 2, MAX_LEVELS)
    whole("seed", seed, 0, 2**64 - 1)
    progress(0, 2 * trials * dimensions)
    coordinate, user = (certified_epsilon(Exposure(budgets, d, levels), delta) for d in (1, dimensions))
    attacked = _Attacked(budgets, levels, seed)
    with quiet_blas():
        one, other = (_world(attacked, world, trials, dimensions, progress) for world in (0, 1))
    of_coordinate, of_user = (audited_epsilon(*scores, delta) for scores in zip(one, other, strict=True))
    attacks = (error_rates(*scores) for scores in zip(one, other, strict=True))
    return AuditResult(trials, dimensions, delta, CONFIDENCE, of_coordinate, coordinate, of_user, user, *attacks)


@dataclass(frozen=True, eq=False)
class _Attacked:
    """The population under attack."""

    budgets: F64
    levels: int
    seed: int

    def population(self, world: int) -> People:
        """The victim at the upper end in world 0, at the lower one in world 1; the others at 0."""
        n = self.budgets.size
        position = np.zeros((n, 1), dtype=np.float32)
        position[self._victim] = _BEYOND * _CLIP * (1 - 2 * world)
        return People(position, np.zeros(n, dtype=np.uint8), np.arange(n + 1), self.budgets)

    def likelihoods(self) -> F64:
        """Weights (levels, 2) of a report in the likelihood of each world.

        With the others' reports drawn from a law rho, counts c have a likelihood proportional to
        sum_k c_k p(k) / rho(k), p the victim's law. Exact if the others have equal budgets; else rho is their mean
        law, and the attack is the best one to first order in 1 / n.
        """
        ends = level_probabilities(self.budgets[[self._victim]], self.levels)[0, [-1, 0]]
        others = np.delete(self.budgets, self._victim)
        rho = law_at_zero(pooled_channel(others, self.levels)) if others.size else np.ones(self.levels)
        return np.asarray((ends / np.maximum(rho, _RARE)).T)

    @property
    def _victim(self) -> int:
        return int(np.argmax(self.budgets))


def _world(attacked: _Attacked, world: int, trials: int, dimensions: int, progress: Progress) -> tuple[F64, F64]:
    """Simulate all trials of one world; return log-likelihood ratios of coordinates (trials, kept) and of users."""
    kept = min(dimensions, max(1, _MOST_SCORES // trials))
    coordinates, users = np.empty((trials, kept)), np.empty(trials)
    likelihoods = attacked.likelihoods()
    start = 0
    for batch in _batches(attacked, world, trials, dimensions):
        one, other = np.log(np.maximum(batch.counts @ likelihoods, _TINY)).T
        ratios = (one - other).reshape(-1, dimensions)
        stop = start + ratios.shape[0]
        coordinates[start:stop], users[start:stop] = ratios[:, :kept], ratios.sum(axis=1)
        start = stop
        progress((world * trials + stop) * dimensions, 2 * trials * dimensions)
    return coordinates, users


def _batches(attacked: _Attacked, world: int, trials: int, dimensions: int) -> Iterator[CountedBatch]:
    """What the analyzer sees: trials stand side by side as the coordinates of wide reports."""
    population = attacked.population(world)
    terms, workers = Terms(clip=_CLIP, levels=attacked.levels), Workers(users_at_once=_USERS_AT_ONCE)
    at_once = max(1, _COORDINATES_AT_ONCE // dimensions)
    for chunk in range(math.ceil(trials / at_once)):
        model = Vectors(min(at_once, trials - chunk * at_once) * dimensions)
        source = SimulationSource(attacked.seed, world * _MOST_TRIALS + chunk)
        batch = run_round(terms, model, model.start(), population, source, workers=workers)
        if not isinstance(batch, CountedBatch):
            raise ProtocolError("the audit attacks counts; the shuffler released something else")
        yield batch
