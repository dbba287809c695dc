"""Training: the whole flow on one screen."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee
from apes.checks import exactly, offering, whole
from apes.errors import BudgetExceeded, ParameterError
from apes.features.feature_map import FeatureMap, mapped
from apes.mathematics.arrays import F64, I64, Bools
from apes.mathematics.randomness import SimulationSource, StreamKey
from apes.models.model import Model, check_model
from apes.models.trained import Trained
from apes.population import Examples, Population, schema_of
from apes.terms.fitting import fitted
from apes.terms.plan import Plan, schedule_digest
from apes.training.baseline import Judged
from apes.training.cohort import cohort_names, cohort_of, rounds_by_user
from apes.training.crews.crew import Crew
from apes.training.keys import RunKeys, noise_key
from apes.training.memory import check_memory
from apes.training.model_file import digest_of_weights
from apes.training.round import run_round
from apes.training.run import Identity, Progress, RoundMetrics, Run
from apes.training.workers import Workers, opened

ROUNDS, TARGET, OWN_TARGETS = "rounds", "target", "own targets"
"""What ends a run."""


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained model, how it came about, and what it cost.

    Attributes:
        weights: The model, flat.
        guarantee: What is certified for everybody, and by budget (`Guarantee.of`); or why nothing is.
        metrics: One entry per round.
        exposures: What the accountant charged, one entry per round.
        budgets: The local budgets of all users, as they were applied.
        plan: What was trained under, with everything settled that was left open.
        model: The trained model, to predict with or to hand over to scikit-learn.
        rounds_by_user: In how many rounds each of them took part: the first so many.
        stopped: What ended it: ``rounds`` (all of them are over), ``target`` (a further one would pass it) or ``own
            targets`` (nobody is left whose own target allows one).
    """

    weights: F64
    guarantee: Guarantee
    metrics: tuple[RoundMetrics, ...]
    exposures: tuple[Exposure, ...]
    budgets: F64 = field(repr=False)
    plan: Plan
    model: Trained = field(repr=False)
    rounds_by_user: I64 = field(repr=False)
    stopped: str = ROUNDS

    def of_user(self, user: int) -> Guarantee:
        """The guarantee of one user, number ``user`` from 0, over the rounds in which this user took part.

        Guarantee:
            At most what is certified for everybody with this user's budget, and at most the user's own target.
        """
        budget = float(self.budgets[whole("user", user, 0, self.budgets.size - 1)])
        if self.guarantee.is_adaptive:
            # How many rounds there were was chosen on the way: everybody has the limit.
            return self.guarantee.of(budget)
        # The rounds that were planned, as in the run's own account and in that of the targets: each of them sets the
        # same part of delta aside, whether it took place or not.
        accountant = Accountant(self.guarantee.delta, expected_rounds=self.plan.terms.rounds, keep_budgets=True)
        took_part = int(self.rounds_by_user[user])
        for exposure in self.exposures[:took_part]:
            accountant.record(exposure)
        everybody = self.guarantee
        personal = accountant.guarantee.of(budget)
        personal = replace(personal, caveats=everybody.caveats, is_seeded=everybody.is_seeded)
        if not took_part:
            return personal
        of_budget = self.guarantee.of(budget)
        return personal if personal.epsilon < of_budget.epsilon else of_budget

    @property
    def judged(self) -> Judged:
        """How good the final model is on the test part, beside what always guessing the same gets."""
        return self.metrics[-1].judged

    @property
    def accuracy(self) -> float | None:
        """Test accuracy of the final model, in [0, 1]; None without a test part, or without classes.

        No noise is added to it: the guarantee does not cover the people that it is measured on.
        """
        return self.metrics[-1].accuracy

    @property
    def baseline(self) -> float | None:
        """What always guessing the most frequent class of the test part gets right, in [0, 1].

        Without classes it is the loss of always guessing the mean of the test part; None where it is not known.
        """
        return self.metrics[-1].baseline

    def __str__(self) -> str:
        verdict = self.judged.verdict
        said = str(self.judged) if verdict is None or self.judged.loss is None else f"{verdict} {self.judged}"
        return f"{said}; {self.guarantee}"

    @property
    def model_sha256(self) -> str:
        """Digest of the weights (little-endian float64)."""
        return digest_of_weights(self.weights)


def train(
    model: Model,
    people: Population,
    plan: Plan,
    *,
    test: Examples | None = None,
    features: FeatureMap | None = None,
    workers: Workers | Crew | None = None,
    only_sums: bool = False,
    resume: Progress | None = None,
    rounds: int | None = None,
    keys: RunKeys | None = None,
    after_round: Callable[[Progress], None] = lambda progress: None,
) -> TrainingResult:
    """Simulate all three parties and train a model; everybody takes part as long as target and own target allow it.

    Args:
        model: What to train.
        people: Who takes part, with their data and budgets.
        plan: Terms, schedule and seed, if there is one. A target is enforced before the round that would pass it;
            people's own ones too.
        test: Public examples to judge the model by; by default those that come with the people, if any do.
        features: A public map that users apply to their rows first; applied to ``test`` as well.
        workers: Who does the work: threads, processes, a cluster, an executor. Does not change the result. What is
            started for a run ends with it; a crew (`Workers.open`) is whoever opened it's to close.
        only_sums: See `run_round`.
        resume: Where to go on, from an earlier run with the same model, people and plan.
        keys: The run's secrets; by default those of ``resume``, or new ones: noise is under a secret key from the
            operating system, or follows from the plan's seed, and the guarantee says so.
        rounds: With ``resume``: rounds in all, where more are wanted than the plan has. Whoever asks for them has seen
            what was released, so the target is what is guaranteed then, for everybody; without one it is refused.
        after_round: Called after every round.

    Raises:
        BudgetExceeded: If not even the first round keeps within the target, or none beyond those that were planned.
    """
    plan = _checked(model, people, plan)
    test = getattr(people, "test", None) if test is None else test
    schema, judges = schema_of(people), str(getattr(test, "digest", ""))
    if features is not None:
        people, test = mapped(people, test, features)
    brought, own = getattr(people, "targets", None), people.budgets
    plan = fitted(plan, own, model) if brought is None else plan
    budgets = plan.terms.applied(own)
    # How rows of a table were encoded is part of what users agree to, as a feature map is.
    digest = plan.terms.digest(model, " ".join(part.digest for part in (schema, features) if part is not None))
    keys, noise = _keys(plan, resume, keys)
    bound = {"test": judges and keys.digest(judges), "schema": "" if schema is None else schema.digest}
    bound["seed"] = keys.digest(noise.material.hex()) if noise.is_seeded else ""
    bound["name"] = keys.name
    identity = Identity(digest, schedule_digest(plan.schedule), keys.digest(people.digest), **bound)
    start, targets = check_model(model), plan.terms.targets(own, brought, of_table=schema is not None)
    # Settled: who takes part in which round, and how many fit, follows from budgets and targets alone.
    cohorts = plan.terms.cohorts(budgets, check_memory(start.size, plan.terms, own.size, workers, only_sums), targets)
    of, names = (plan.terms, plan.schedule, model, identity), cohort_names(cohorts, budgets)
    run = Run(*of, start=start, users=budgets.size, test=test, cohorts=names, resume=resume, rounds=rounds, keys=keys)
    cohorts = (*cohorts, *cohorts[-1:] * (run.rounds - len(cohorts)))
    with opened(workers) as crew:
        while not run.is_done and run.allows(budgets[users := cohorts[run.progress.rounds]]):
            began, own, present = time.perf_counter(), budgets[users], cohort_of(people, users)
            run.charge(own)
            source, now = SimulationSource(noise, run.progress.rounds + 1), run.progress.state.weights
            batch = run_round(plan.terms, model, now, present, source, budgets=own, workers=crew, only_sums=only_sums)
            run.conclude(batch, began)
            after_round(run.progress)
    return _result(run, plan, Trained(model, run.model(), schema, features), budgets, cohorts)


def _keys(plan: Plan, resume: Progress | None, keys: RunKeys | None) -> tuple[RunKeys, StreamKey]:
    """The run's secrets, and what its noise is drawn under."""
    if keys is None and resume is not None:
        keys = exactly("resume", resume, Progress).keys
        if keys is None:
            raise ParameterError("keys must be given with resume: those of the run's folder; got None")
    if keys is None:
        keys = RunKeys.draw(plan.seed)
    # It was destroyed when the run ended: rounds that are added have one of their own.
    noise = noise_key(plan.seed) if keys.noise is None else keys.noise
    if plan.seed is not None and noise != StreamKey.from_seed(plan.seed):
        began = (
            "resume must be of the same seed as this run" if resume is not None else "keys must be of the plan's seed"
        )
        raise ParameterError(f"{began}, got others than those of {plan.seed}")
    return replace(keys, noise=noise), noise


def _checked(model: Model, people: Population, plan: Plan) -> Plan:
    """A copy of the plan, which is one and nothing else, if model and people offer what is asked of them."""
    offering("model", model, "start", "updates", "evaluate", "digest")
    offering("people", people, "block")
    return replace(exactly("plan", plan, Plan))


def _result(run: Run, plan: Plan, trained: Trained, budgets: F64, cohorts: tuple[Bools, ...]) -> TrainingResult:
    done = run.progress
    if not done.metrics:
        raise BudgetExceeded(f"not even one round keeps within target_epsilon {plan.target_epsilon!r}: it costs more")
    cap, schema = plan.terms.cap, trained.schema
    guarantee = replace(
        run.guarantee, cap=math.inf if cap is None else cap, caveats=() if schema is None else schema.caveats
    )
    facts = (guarantee, done.metrics, done.exposures, budgets, plan, trained)
    stopped = ROUNDS if run.is_done else TARGET
    if run.is_done and done.rounds < plan.terms.rounds:
        stopped = OWN_TARGETS
    return TrainingResult(trained.weights, *facts, rounds_by_user(cohorts[: done.rounds]), stopped)
