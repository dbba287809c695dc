"""A run, from the analyzer's side: the gate before every round, the step after it, and what can be gone on from.

Simulation and federation both go through here; they differ in where a batch comes from. Nothing is concluded that was
not charged first.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from apes.accounting.cost import Cost
from apes.accounting.exposure import Exposure, budgets_digest
from apes.accounting.guarantee import Guarantee
from apes.analyzer.optimizer import ServerOptimizer, ServerState
from apes.checks import exactly
from apes.errors import ParameterError, ProtocolError
from apes.mathematics.arrays import F64
from apes.mathematics.compiled import quiet_blas
from apes.messages import Batch
from apes.models.model import Model, check_floats, evaluated
from apes.population import Examples
from apes.terms.schedule import Schedule
from apes.terms.terms import Terms
from apes.training.baseline import Judged, baseline_of
from apes.training.basis import Basis, as_text, basis_of
from apes.training.going_on import check_goes_on, check_wanted, filter_of
from apes.training.keys import RunKeys


@dataclass(frozen=True)
class RoundMetrics:
    """How a round went.

    Attributes:
        round: Number of the round, from 1.
        accuracy: Share of the test examples that the model gets right; None without examples or classes.
        loss: Mean loss on the test examples; None without examples.
        seconds: Wall time of the round, evaluation included.
        epsilon: Certified central epsilon of a user after this round; None where nothing is certified.
        baseline: What accuracy, or else loss, stands beside (`apes.training.baseline`), of the same examples; None
            where it is not known.
        test_rows: How many examples there are; None without.
    """

    round: int
    accuracy: float | None
    loss: float | None
    seconds: float
    epsilon: float | None = None
    baseline: float | None = None
    test_rows: int | None = None

    @property
    def judged(self) -> Judged:
        """How good the model was, beside its baseline."""
        return Judged(self.accuracy, self.loss, self.baseline, self.test_rows)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int | float) and (value is not None or name in ("round", "seconds")):
                raise ParameterError(f"{name} must be a number, got {value!r}")


@dataclass(frozen=True)
class Identity:
    """What a run is of: another run of the same identity gives the same model."""

    terms: str  # digest of terms, model and feature map
    schedule: str  # what the analyzer does with estimates
    people: str = ""  # keyed digest of users, data and budgets (`RunKeys.digest`)
    basis: str = ""  # what its guarantee rests on: the run's own to fill in
    test: str = ""  # keyed digest of the examples that the model is judged by, where there are any
    schema: str = ""  # digest of the schema of the table, where people are of one: part of the terms' digest as well
    seed: str = ""  # keyed digest of the seed that the noise follows from; without one it is under a secret key
    name: str = ""  # what tells the run from others, and nothing about its people

    @property
    def shown(self) -> dict[str, str]:
        """What of it may be shown: it does not depend on data."""
        return {name: getattr(self, name) for name in ("terms", "schedule", "basis", "schema", "name")}

    def check(self, other: "Identity") -> None:
        """Raise unless the other is the same, and say what is not."""
        # People first, and the basis last: what is fitted to others changes with them.
        called = {"people": "people (data or budgets)", "test": "test part"}
        for name in ("people", "test", "seed", "schedule", "terms", "schema", "basis", "name"):
            mine = getattr(self, name)
            theirs, what = str(getattr(other, name)), called.get(name, name)
            if mine != theirs:
                theirs_only, own = (
                    set(a.split(", ")) - set(b.split(", ")) for a, b in ((theirs, mine), (mine, theirs))
                )
                got, not_got = (", ".join(sorted(parts))[:200] for parts in (theirs_only, own))
                raise ParameterError(f"resume must be of the same {what} as this run, got {got}, not {not_got}")


@dataclass(frozen=True, eq=False)
class Progress:
    """Everything needed to go on after a round."""

    identity: Identity
    state: ServerState
    metrics: tuple[RoundMetrics, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    # What the run draws its noise under, and what its identity is keyed with; None where another party draws.
    keys: RunKeys | None = field(default=None, repr=False)

    @property
    def rounds(self) -> int:
        """Rounds that are over."""
        return len(self.metrics)


class Run:
    """Charges, calibrates, steps and evaluates, round after round.

    Args:
        terms, schedule, model, identity: What the run is of.
        start: The weights to start from, checked (`check_model`): reports have as many coordinates.
        users: About how many take part; the default delta depends on it.
        test: Public examples that the model is judged by, or None.
        cohorts: Who takes part, round after round, by the name of their budgets (`budgets_digest`), where that does not
            depend on what is released; None where it is chosen on the way.
        limit: What may be spent in all where it is chosen on the way and there is no target.
        resume: Where to go on. What it recorded is charged again, round by round, and nothing else.
        rounds: How many there are to be in all, where more are wanted than were settled beforehand: all of them are
            charged to a filter for the target then (`apes.training.going_on`).
        keys: The run's secrets, where the noise of reports is drawn here.
    """

    def __init__(
        self,
        terms: Terms,
        schedule: Schedule,
        model: Model,
        identity: Identity,
        *,
        start: F64,
        users: int,
        test: Examples | None,
        cohorts: Sequence[str] | None,
        limit: Cost | None = None,
        resume: Progress | None = None,
        rounds: int | None = None,
        keys: RunKeys | None = None,
    ) -> None:
        self._terms, self._schedule, self._model, self._test = terms, schedule, model, test
        # Who takes part is settled by budgets that people keep: those of a population.
        is_settled = cohorts is not None
        self._accountant = terms.accountant(users, settled=is_settled, limit=limit, keep=is_settled)
        self._cohorts, self._rounds = cohorts, terms.rounds if cohorts is None else len(cohorts)
        self._planned = self._rounds
        self._calibrator = terms.calibrator(schedule.calibration)
        self._optimizers: dict[str, ServerOptimizer] = {}
        self._is_seeded = keys is not None and keys.is_seeded
        basis = basis_of(self._accountant, self._planned, cohorts, is_seeded=self._is_seeded)
        self.progress = Progress(replace(identity, basis=as_text(basis)), ServerState.start(start), keys=keys)
        # Read once: what is charged must not depend on when a stranger's model is asked.
        self._dimensions = start.size
        self._charged: tuple[Exposure, float, F64] | None = None
        self._baseline: float | None = None
        self._knows_baseline = False
        wanted = check_wanted(rounds, has_released=bool(getattr(resume, "exposures", ())))
        if resume is not None:
            self.progress.identity.check(exactly("resume", resume, Progress).identity)
            self._rounds = self._wanted(basis, resume, wanted)
            self._go_on(resume)

    def _wanted(self, basis: Basis, resume: Progress, rounds: int) -> int:
        """How many rounds there are to be, where so many are asked for, and some are out already."""
        planned, out = self._cohorts, len(resume.exposures)
        if rounds:
            first = exactly("exposure", resume.exposures[0], Exposure)
            check_goes_on(basis, self._terms.exposure(1, first.budgets, self._dimensions), rounds, out)
        rounds = max(rounds, out)
        if planned is None or rounds <= self._planned:
            return self._planned
        if self._accountant.target is None and self._terms.why_not_certified is None:
            most = f"resume must be of at most {self._planned} rounds, as planned"
            raise ParameterError(f"{most}: there is no target that would cover more, got {out}")
        self._accountant, self._cohorts = filter_of(basis), [*planned, *[planned[-1]] * (rounds - self._planned)]
        return rounds

    def _go_on(self, resume: Progress) -> None:
        """Charge what was recorded, and stand where it stood."""
        if not len(resume.exposures) == resume.rounds == resume.state.step:
            counts = f"{len(resume.exposures)}, {resume.rounds} and {resume.state.step}"
            raise ParameterError(f"resume must have as many exposures as rounds and steps, got {counts}")
        for name in ("weights", "velocity", "squares", "average"):
            check_floats(f"resume.state.{name}", getattr(resume.state, name), (self._dimensions,), ("float64",))
        exposures, metrics = [], []
        for number, recorded in enumerate(resume.exposures, 1):
            # Of what was recorded the budgets alone are taken; the rest is said anew.
            exposure = self._terms.exposure(number, exactly("exposure", recorded, Exposure).budgets, self._dimensions)
            if (recorded.round, recorded.form) != (number, exposure.form):
                raise ParameterError(f"resume must be of rounds under these terms, got {recorded.form}")
            if not self._is_planned(exposure):
                others = "got rounds charged for others"
                raise ParameterError(f"resume must be of the same people (data or budgets), {others}")
            why, epsilon = exposure.why_not_certified, self._accountant.charge(exposure)
            exposures.append(exposure)
            metrics.append(replace(resume.metrics[number - 1], epsilon=epsilon if why is None else None))
        keys = self.progress.keys
        self.progress = replace(resume, exposures=tuple(exposures), metrics=tuple(metrics), keys=keys)

    @property
    def rounds(self) -> int:
        """How many there are to be, if the target lets them pass."""
        return self._rounds

    @property
    def is_done(self) -> bool:
        """Whether all rounds are over."""
        return self.progress.rounds >= self._rounds

    @property
    def guarantee(self) -> Guarantee:
        """What is certified for the rounds charged so far, or why nothing is."""
        return replace(self._accountant.guarantee, is_seeded=self._is_seeded)

    def allows(self, budgets: F64) -> bool:
        """Whether the next round, with these participants, keeps within the target."""
        return self._accountant.allows(self._exposure(budgets))

    def charge(self, budgets: F64, charged_as: F64 | None = None) -> None:
        """Charge the next round, with these participants, before anything of it is released; or BudgetExceeded.

        Where it is not known who they are, ``charged_as`` are the budgets that cover them (docs/proofs.md, 18), and
        ``budgets`` those that the batch is read by.
        """
        exposure = self._exposure(budgets if charged_as is None else charged_as)
        if not self._is_planned(exposure):
            raise ProtocolError(f"round {exposure.round} is of other people than were settled beforehand")
        self._charged = exposure, self._accountant.charge(exposure), np.sort(budgets)

    def conclude(self, batch: Batch, began: float) -> None:
        """Take the batch of the round that was charged, and make the step; ``began`` is by `time.perf_counter`."""
        if self._charged is None:
            raise ProtocolError("a round is charged before its batch is looked at")
        exposure, epsilon, budgets = self._charged
        if not np.array_equal(np.sort(batch.budgets), budgets):
            raise ProtocolError("the batch is of other participants than the round was charged for")
        accuracy, loss, rows = None, None, None
        with quiet_blas():
            optimizer = self._optimizer(budgets)
            estimate = self._calibrator.estimate(batch)
            if estimate.mean.shape != (self._dimensions,):
                raise ProtocolError(f"the batch has {estimate.mean.shape} coordinates, {self._dimensions} were charged")
            state = optimizer.apply(self.progress.state, estimate)
            if self._test is not None:
                accuracy, loss = evaluated(self._model, optimizer.model(state), self._test)
                rows = int(self._test.labels.size)
                self._find_baseline(self._test, accuracy)
        certified = epsilon if exposure.why_not_certified is None else None
        seconds = time.perf_counter() - began
        metrics = RoundMetrics(exposure.round, accuracy, loss, seconds, certified, self._baseline, rows)
        done = self.progress
        known, charged = (*done.metrics, metrics), (*done.exposures, exposure)
        self.progress = replace(done, state=state, metrics=known, exposures=charged)
        self._charged = None

    def _find_baseline(self, test: Examples, accuracy: float | None) -> None:
        """What the model stands beside: once, since it depends on the examples alone."""
        if not self._knows_baseline:
            self._baseline = baseline_of(self._model, test, accuracy)
            self._knows_baseline = True

    def model(self) -> F64:
        """The weights to hand out."""
        return self._schedule.steps().model(self.progress.state)

    def _exposure(self, budgets: F64) -> Exposure:
        return self._terms.exposure(self.progress.rounds + 1, budgets, self._dimensions)

    def _is_planned(self, exposure: Exposure) -> bool:
        """Whether those take part who were to, if that was settled."""
        planned = self._cohorts
        return planned is None or [exposure.budgets_sha256] == list(planned[exposure.round - 1 : exposure.round])

    def _optimizer(self, budgets: F64) -> ServerOptimizer:
        """The optimizer for these participants; the default step depends on the noise of their reports."""
        if (name := budgets_digest(budgets)) not in self._optimizers:
            noise = self._calibrator.standard_error(budgets)
            self._optimizers[name] = self._schedule.steps(self._terms, self._model, noise)
        return self._optimizers[name]
