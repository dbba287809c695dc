"""The plan: every public choice of a run, frozen; it builds the stages and the accounting event from one place."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.accounting.accountant import Accountant
from apes.accounting.composition.exact import SMALLEST_DELTA
from apes.accounting.exposure import Event, budgets_digest
from apes.analyzer.calibrator import (
    STATISTICS,
    Calibrator,
    CodedInverse,
    ContinuousInverse,
    Unbiased,
)
from apes.analyzer.expected import Channel, pooled_channel
from apes.analyzer.optimizer import ServerOptimizer
from apes.budgets import make_budgets
from apes.checks import one_of, positive, whole, within
from apes.client.device import DeviceClient
from apes.client.pipeline import Client
from apes.client.randomizer import CodedClipLaplace, ContinuousClipLaplace, LaplaceNoise, NoNoise, Randomizer
from apes.errors import ParameterError
from apes.mathematics.randomness import SimulationSource
from apes.mathematics.thresholds import MAX_LEVELS
from apes.models.updates import FedProxUpdate, GradientUpdate, Updater
from apes.shuffler.shuffle import Adder, Collector, LevelCounter, Permuter
from apes.terms.frameworks import Framework, framework
from apes.terms.sparsification import Sparsification

CONTINUOUS = "continuous"
# Default schedule. The running mean over a few rounds steadies the step on every data set tried; the step is capped
# where the noise that a round adds to a weight would exceed 0.018, which is close to the best at every noise level
# from 0.0045 to 0.057 on MNIST and on digits.
_LARGEST_STEP = 4.0
_NOISE_PER_ROUND = 0.018
_MOMENTUM = 0.8


@dataclass(frozen=True)
class Plan:
    """Every public choice of a run. None means: what suits the other choices.

    Attributes:
        framework: ``non-private``, ``ldp-min``, ``pldp``, ``unis``, ``apes``, ``s-apes``, ``s-apes-threshold``,
            ``s-apes-first``.
        budgets: The users' local budgets per coordinate and round (`apes.make_budgets`).
        users: Number of users n, at least 1.
        rounds: Rounds of training T, at least 1; everybody takes part in each.
        clip: C, bound of every coordinate of an update, in (0, inf).
        levels: Levels K of a coded report in [2, 256] or ``continuous``; for Clip-Laplace frameworks.
        data: Name of the data set.
        split: How images are spread over users: ``iid``, ``label``, ``dirichlet:ALPHA``.
        normalise: ``pixels`` in [0, 1], or every image of ``unit-norm``.
        update: ``gradient`` (Algorithm 1) or ``fedprox`` (difference after local steps).
        local_epochs: Local steps of FedProx (10).
        local_learning_rate: Local step size of FedProx (1).
        mu: FedProx's proximal weight (0.01).
        learning_rate: The server's step; by default as large as the noise allows, at most 4 (FedProx: 1).
        momentum, decay, averaging: See `apes.analyzer.optimizer.ServerOptimizer`.
        calibration: ``inverse`` (the paper's) or ``likelihood`` (coded reports), for Clip-Laplace frameworks; by
            default whichever suits the noise.
        sparsifier: ``top-b``, ``random-b``, ``threshold`` or ``top-b-first``, for the S-APES frameworks.
        keep: Fraction of coordinates a sparsifier keeps, in (0, 1] (0.2; ``top-b-first``: 0.05); a threshold is set at
            (1 - keep) C.
        delta: Delta of the certified central guarantee, in [1e-100, 0.5] (default 1 / 10 n).
        target_epsilon: Stop before the round after which the certified epsilon of a user would exceed it.
        seed: Seed of the simulation, in [0, 2^64).
    """

    framework: str = "apes"
    budgets: str = "uniform2"
    users: int = 10_000
    rounds: int = 40
    clip: float = 0.1
    levels: int | str | None = None
    data: str = "digits"
    split: str = "iid"
    normalise: str = "pixels"
    update: str = "gradient"
    local_epochs: int | None = None
    local_learning_rate: float | None = None
    mu: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    decay: float | None = None
    averaging: float | None = None
    calibration: str | None = None
    sparsifier: str | None = None
    keep: float | None = None
    delta: float | None = None
    target_epsilon: float | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        framework(self.framework)
        whole("users", self.users, 1)
        whole("rounds", self.rounds, 1)
        positive("clip", self.clip)
        whole("seed", self.seed, 0, 2**64 - 1)
        one_of("update", self.update, ("gradient", "fedprox"))
        self._check_levels()
        self._check_calibration()
        self._check_sparsifier()
        self._check_target()
        self.updater()
        self.optimizer_of_step(1.0)

    @property
    def kind(self) -> Framework:
        """The framework's description."""
        return framework(self.framework)

    @property
    def coded_levels(self) -> int | None:
        """Levels of a coded report; None where reports are continuous."""
        if self.kind.mechanism != "clip-laplace" or self.levels == CONTINUOUS:
            return None
        return MAX_LEVELS if self.levels is None else int(self.levels)

    @property
    def fingerprint(self) -> str:
        """Digest of every choice: two plans with the same one give the same model."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def population_budgets(self) -> NDArray[np.float64]:
        """Budgets of all users, as the framework applies them."""
        budgets = make_budgets(self.budgets, self.users, self.seed)
        return np.full_like(budgets, budgets.min()) if self.kind.smallest_budget_for_all else budgets

    def updater(self) -> Updater:
        """How a user turns data and model into an update."""
        local = {
            "local_epochs": self.local_epochs,
            "local_learning_rate": self.local_learning_rate,
            "mu": self.mu,
        }
        if self.update == "gradient":
            _unused(local, "update is 'gradient'")
            return GradientUpdate()
        return FedProxUpdate(
            10 if self.local_epochs is None else self.local_epochs,
            1.0 if self.local_learning_rate is None else self.local_learning_rate,
            0.01 if self.mu is None else self.mu,
        )

    def client(self, dimensions: int) -> Client:
        """What every user runs."""
        chosen, updater, randomizer = self.sparsification, self.updater(), self._randomizer()
        if chosen is None:
            return Client(updater, randomizer)
        return Client(chosen.updater(updater, dimensions), randomizer, chosen.sparsifier(dimensions))

    def device_client(self, dimensions: int) -> DeviceClient:
        """What a real device runs.

        Raises:
            ParameterError: If nothing central would be certified, or reports are continuous: neither leaves a device.
        """
        if self.why_not_certified is not None:
            raise ParameterError(f"framework must be one with a certificate on devices: {self.why_not_certified}")
        if self.coded_levels is None:
            raise ParameterError(f"levels must be in [2, {MAX_LEVELS}] on devices, got {self.levels!r}")
        chosen, updater, randomizer = (
            self.sparsification,
            self.updater(),
            CodedClipLaplace(self.clip, self.coded_levels),
        )
        if chosen is None:
            return DeviceClient(updater, randomizer)
        return DeviceClient(chosen.updater(updater, dimensions), randomizer, chosen.on_device(dimensions))

    def collector(
        self, dimensions: int, source: SimulationSource, threads: int = 1, *, only_sums: bool = False
    ) -> Collector:
        """What gathers a round's reports; ``only_sums`` as for `apes.train`."""
        if not self.kind.shuffled or (only_sums and self.coded_levels is None):
            return Adder(self.users, dimensions, source)
        if self.coded_levels is not None:
            return LevelCounter(self.users, dimensions, self.coded_levels, source)
        return Permuter(self.users, dimensions, source, threads=threads)

    def calibrator(self) -> Calibrator:
        """How the analyzer reads a batch."""
        if self.kind.mechanism == "none":
            return Unbiased(lambda budgets: 0.0)
        if self.kind.mechanism == "laplace":
            return Unbiased(lambda budgets: 2 * self.clip * float(np.sqrt(2 * (budgets**-2.0).mean())))
        if self.coded_levels is None:
            return ContinuousInverse(self.clip)
        return CodedInverse(self.clip, self._channel, STATISTICS[self.calibration])

    def optimizer(self, budgets: NDArray[np.float64]) -> ServerOptimizer:
        """How the analyzer steps; the default step depends on the noise, and so on the public budgets."""
        largest = 1.0 if self.update == "fedprox" else _LARGEST_STEP
        noise = self.calibrator().standard_error(budgets)
        return self.optimizer_of_step(min(largest, _NOISE_PER_ROUND / max(noise, 1e-300)))

    @property
    def why_not_certified(self) -> str | None:
        """Why no central guarantee is certified for this plan; None if one is."""
        if self.kind.mechanism != "clip-laplace":
            return f"{self.framework} does not use Clip-Laplace under a shuffler"
        return None if self.sparsification is None else self.sparsification.why_not_certified

    def coordinates_from_data(self, dimensions: int) -> int:
        """Coordinates of a report that are charged for (docs/proofs.md, 9 and 10).

        Those in which the reports on two updates can differ, given the choices that do not look at data.
        """
        return dimensions if self.sparsification is None else self.sparsification.coordinates_from_data(dimensions)

    def chosen_first(self, dimensions: int) -> int | None:
        """How many coordinates every user chooses before perturbing, or None (docs/proofs.md, 11)."""
        return None if self.sparsification is None else self.sparsification.chosen_first(dimensions)

    @property
    def central_delta(self) -> float:
        """Delta of the certified central guarantee."""
        return 1 / (10 * self.users) if self.delta is None else self.delta

    def accountant(self, dimensions: int) -> Accountant | None:
        """What charges the rounds, or None where nothing central is certified (see `why_not_certified`)."""
        if self.why_not_certified is not None:
            return None
        return Accountant(
            self.coordinates_from_data(dimensions),
            self.central_delta,
            self.coded_levels,
            expected_rounds=self.rounds,
            target=self.target_epsilon,
            chosen=self.chosen_first(dimensions),
        )

    def event(self, number: int, budgets: NDArray[np.float64], dimensions: int) -> Event:
        """What round ``number`` releases, for the accountant."""
        return Event(
            round=number,
            mechanism=self.kind.mechanism,
            levels=self.coded_levels,
            clip=self.clip,
            users=budgets.size,
            dimensions=dimensions,
            shuffled=self.kind.shuffled,
            coordinates_from_data=self.coordinates_from_data(dimensions),
            sparsifier=None if self.sparsification is None else self.sparsification.strategy,
            budgets_sha256=budgets_digest(budgets),
            smallest_budget=float(budgets.min()),
            largest_budget=float(budgets.max()),
        )

    def optimizer_of_step(self, default_rate: float) -> ServerOptimizer:
        """How the analyzer steps, with this rate where the plan names none."""
        default_momentum = 0.0 if self.update == "fedprox" else _MOMENTUM
        return ServerOptimizer(
            default_rate if self.learning_rate is None else self.learning_rate,
            default_momentum if self.momentum is None else self.momentum,
            0.0 if self.decay is None else self.decay,
            0.0 if self.averaging is None else self.averaging,
        )

    @property
    def sparsification(self) -> Sparsification | None:
        """What makes reports sparse, before or after perturbation; None if nothing does."""
        strategy = self.kind.sparsifier if self.sparsifier is None else self.sparsifier
        return None if strategy is None else Sparsification.with_default(strategy, self.keep)

    def _check_levels(self) -> None:
        if self.levels is not None and self.kind.mechanism != "clip-laplace":
            raise ParameterError(
                f"levels must be left out: {self.framework} does not use Clip-Laplace; got {self.levels!r}"
            )
        if isinstance(self.levels, str):
            one_of("levels", self.levels, (CONTINUOUS,))
        elif self.levels is not None:
            whole("levels", self.levels, 2, MAX_LEVELS)

    def _check_calibration(self) -> None:
        if self.kind.mechanism != "clip-laplace":
            _unused({"calibration": self.calibration}, f"the reports of {self.framework} are unbiased")
        if self.calibration is not None:
            one_of("calibration", self.calibration, ("inverse", "likelihood"))
        if self.calibration == "likelihood" and self.coded_levels is None:
            raise ParameterError("calibration must be inverse for continuous reports, got 'likelihood'")

    def _check_target(self) -> None:
        if self.why_not_certified is not None:
            options = {"delta": self.delta, "target_epsilon": self.target_epsilon}
            _unused(options, f"nothing central is certified, {self.why_not_certified}")
        if self.delta is not None:
            within("delta", self.delta, SMALLEST_DELTA, 0.5)
        if self.target_epsilon is not None:
            positive("target_epsilon", self.target_epsilon)

    def _check_sparsifier(self) -> None:
        if self.kind.sparsifier is None:
            _unused({"sparsifier": self.sparsifier, "keep": self.keep}, f"{self.framework} does not sparsify")
        # Making it checks it.
        _ = self.sparsification

    def _randomizer(self) -> Randomizer:
        if self.kind.mechanism == "none":
            return NoNoise()
        if self.kind.mechanism == "laplace":
            return LaplaceNoise(self.clip)
        if self.coded_levels is None:
            return ContinuousClipLaplace(self.clip)
        return CodedClipLaplace(self.clip, self.coded_levels)

    def _channel(self, budgets: NDArray[np.float64]) -> Channel:
        """Law of a reported level for each input level, through the sparsifier if there is one."""
        channel = pooled_channel(budgets, self.coded_levels or MAX_LEVELS)
        return channel if self.sparsification is None else self.sparsification.channel(channel)


def _unused(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ParameterError(f"{name} must be left out: {why}; got {value!r}")
