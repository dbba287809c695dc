"""A problem that meets the assumptions of the convergence bounds, trained with the package's own round and calibration.

User i's loss is a quadratic, with gradient c_i H_k w_k + u_ik in coordinate k. The curvatures H_k run from L to beta;
c_i is 1 +- SPREAD and u_ik is +- scatter C, in a pattern that repeats every four users and is orthogonal. So the mean
loss is sum_k H_k w_k^2 / 2 plus a constant, its optimum is 0, and mean_i |grad F_i - grad f|^2 is exactly
d (scatter C)^2 + SPREAD^2 |grad f|^2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from apes.budgets import MOST_USERS, make_budgets
from apes.checks import whole, within
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.randomness import SimulationSource
from apes.paper.convergence.bound import Assumptions, convergence_bound
from apes.paper.convergence.calibration_error import CalibrationError, calibration_error
from apes.paper.convergence.published import PublishedAssumptions, published_bound
from apes.people.people import People
from apes.population import Examples, UserBlock
from apes.terms.mechanism import CONTINUOUS
from apes.terms.terms import Terms
from apes.training.round import run_round
from apes.training.workers import Workers

SMOOTHNESS, PL = 1.0, 0.8
SPREAD = 0.2
_DISSIMILARITY = math.sqrt(1 + SPREAD**2)
# A fifth of 1 / L: the published theorem contracts only for steps below about a third.
STEP = 0.2
# G and the first gradient, in units of C: room for the noise, on the steep part of the calibration curve.
REACH, START = 0.25, 0.15
# A run takes seconds, and so do so many coordinates of a few users.
_MOST_SEEDS, _MOST_DIMENSIONS = 10_000, 100_000
_WORKERS = Workers(threads=1, users_at_once=1024)


@dataclass(frozen=True)
class ConvergenceTrial:
    """The choices of a trial.

    If scatter is not 0, users have different optima, and the published theorem, whose B is then infinite at the
    optimum, does not apply.
    """

    budgets: str = "uniform2"  # as for `apes.make_budgets`
    users: int = 4_000  # a multiple of 4
    clip: float = 0.1  # C, in [1e-100, 1e100]
    rounds: int = 40  # in [1, 1000000]
    seeds: int = 8  # runs to average over, in [1, 10000]
    dimensions: int = 20  # in [1, 100000]
    scatter: float = 0.0  # size of u_ik in units of C, in [0, 0.05]
    start: float = START  # first gradient of f in every coordinate, in units of C, in [0, 0.15]

    def __post_init__(self) -> None:
        if whole("users", self.users, 4, MOST_USERS) % 4:
            raise ParameterError(f"users must be a multiple of 4, got {self.users}")
        whole("seeds", self.seeds, 1, _MOST_SEEDS)
        whole("dimensions", self.dimensions, 1, _MOST_DIMENSIONS)
        # Squares of it, and of what it is multiplied by, have to be numbers.
        within("clip", self.clip, 1e-100, 1e100)
        within("scatter", self.scatter, 0, 0.05)
        within("start", self.start, 0, START)
        self.terms()

    @property
    def curvature(self) -> F64:
        """H: the diagonal Hessian of the mean loss."""
        return np.linspace(SMOOTHNESS, PL, self.dimensions)

    @property
    def largest_gradient(self) -> float:
        """Largest coordinate of grad f for which no user's gradient leaves [-G, G]."""
        return self.clip * (REACH - self.scatter) / (1 + SPREAD)

    def local_budgets(self) -> F64:
        """Everybody's local budget."""
        return make_budgets(self.budgets, self.users, seed=1)

    def terms(self) -> Terms:
        """APES with continuous reports."""
        return Terms(rounds=self.rounds, clip=self.clip, levels=CONTINUOUS)

    def population(self) -> People:
        """Users whose one row of data is c_i, then u_ik."""
        user, k = np.arange(self.users)[:, None], np.arange(self.dimensions)
        rows = np.empty((self.users, 1 + self.dimensions), dtype=np.float32)
        rows[:, :1] = 1 + SPREAD * (-1.0) ** user
        rows[:, 1:] = self.scatter * self.clip * (-1.0) ** (user // 2 + k)
        labels, offsets = np.zeros(self.users, dtype=np.uint8), np.arange(self.users + 1)
        return People(rows, labels, offsets, self.local_budgets())

    def gap(self, weights: F64) -> float:
        """f(w) - f*."""
        return float(self.curvature @ weights**2) / 2

    def first_weights(self) -> F64:
        """The first model, at which every coordinate of grad f is start C."""
        return np.asarray(self.start * self.clip / self.curvature)

    def assumptions(self) -> Assumptions:
        """What the proved bound assumes, and this problem meets."""
        scatter = math.sqrt(self.dimensions) * self.scatter * self.clip
        return Assumptions(SMOOTHNESS, PL, self.dimensions, _DISSIMILARITY, scatter)

    def error(self) -> CalibrationError:
        """What calibration can get wrong here."""
        return calibration_error(self.local_budgets(), self.clip, REACH * self.clip)


@dataclass(frozen=True, eq=False)
class TrialResult:
    """Loss gaps by round, rounds + 1 numbers each."""

    measured: F64  # mean over the runs; one that left the region of the theorem counts as 0 afterwards
    standard_error: F64  # of that mean; 0 if there is one run
    bound: F64  # proved
    published: F64 | None  # Theorem 3 as printed, or None where it does not apply
    left: int  # how many runs left the region

    @property
    def is_within(self) -> bool:
        """Whether the measured mean is at most the proved bound after every round."""
        return bool((self.measured[1:] <= self.bound[1:]).all())


def run_trial(trial: ConvergenceTrial, progress: Callable[[int, int], None] = lambda done, total: None) -> TrialResult:
    """Train once for every seed; put the mean loss gap beside the bounds."""
    # Before the runs, so that what the theorem does not cover is refused at once.
    first_gap = trial.gap(trial.first_weights())
    bound = convergence_bound(trial.assumptions(), trial.error(), STEP, trial.rounds, first_gap)
    population, runs = trial.population(), []
    for seed in range(1, trial.seeds + 1):
        runs.append(_run(trial, population, seed))
        progress(seed, trial.seeds)
    gaps = np.array([gaps for gaps, _ in runs])
    spread = gaps.std(axis=0, ddof=1) if trial.seeds > 1 else np.zeros(gaps.shape[1])
    error, left = spread / math.sqrt(trial.seeds), sum(has_left for _, has_left in runs)
    return TrialResult(gaps.mean(axis=0), error, bound, _printed_bound(trial, first_gap), left)


def _printed_bound(trial: ConvergenceTrial, first_gap: float) -> F64 | None:
    """Theorem 3 as printed, or None where users do not share an optimum."""
    if trial.scatter > 0:
        return None
    smoothness, lipschitz = SMOOTHNESS * (1 + SPREAD), math.sqrt(trial.dimensions) * trial.largest_gradient
    assumptions = PublishedAssumptions(smoothness, PL, lipschitz, 1 / STEP, smoothness * STEP, _DISSIMILARITY)
    return published_bound(assumptions, trial.local_budgets(), trial.clip, trial.rounds, first_gap)


@dataclass(frozen=True, eq=False)
class _Quadratic:
    """The users' quadratic losses; c_i and u_ik are their data, the curvature is public. Its loss is the gap."""

    trial: ConvergenceTrial
    dimensions: int
    digest = "quadratic"

    def start(self) -> F64:
        return self.trial.first_weights()

    def updates(self, weights: F32, block: UserBlock) -> F32:
        common = (self.trial.curvature * weights).astype(np.float32)
        return np.asarray(block.features[:, :1] * common + block.features[:, 1:])

    def evaluate(self, weights: F64, examples: Examples) -> tuple[float | None, float]:
        return None, self.trial.gap(weights)


def _run(trial: ConvergenceTrial, population: People, seed: int) -> tuple[F64, bool]:
    """Train once; return the gap after every round, and whether the run left the region."""
    terms, model, weights = trial.terms(), _Quadratic(trial, trial.dimensions), trial.first_weights()
    calibrator = terms.reports.calibrator(None, None)
    gaps = np.zeros(trial.rounds + 1)
    gaps[0] = trial.gap(weights)
    for number in range(1, trial.rounds + 1):
        if np.abs(trial.curvature * weights).max() > trial.largest_gradient:
            return gaps, True
        batch = run_round(terms, model, weights, population, SimulationSource(seed, number), workers=_WORKERS)
        with quiet_blas():
            weights = weights - STEP * calibrator.estimate(batch).mean
            gaps[number] = trial.gap(weights)
    return gaps, False
