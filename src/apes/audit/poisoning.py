"""Poisoning: what people who lie do to the model of a plan.

A report cannot be checked: the noise that makes it private also hides whether its sender followed the protocol. Clip
and norm bound what an honest person's data can do, and nobody else. A liar sends the report that hurts most: in every
coordinate the level at the end that lies against the honest people's mean update, without noise, in every round. Liars
know the model and that mean, and claim the smallest budget that anybody has, which makes every report count for more.

Everything else is the real pipeline: everybody reports, liars' values are replaced on their way to the shuffler, and
what the shuffler releases is calibrated, stepped along and judged as in any training. Another lie may hurt more: what
comes out is an attack's success, and no bound.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import ClassVar, Self

import numpy as np

from apes.accounting.accountant import Accountant
from apes.analyzer.calibrator import CodedInverse, Signs
from apes.analyzer.expected import Channel, pooled_channel
from apes.checks import whole
from apes.client.client import Client
from apes.client.clip import clip_updates
from apes.client.randomizer import Place, Randomizer, Tables
from apes.errors import ParameterError
from apes.features.feature_map import FeatureMap
from apes.mathematics.arrays import F32, F64, I64, U8, Bools
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.levels import level_values
from apes.mathematics.randomness import SimulationSource
from apes.messages import Batch, Report
from apes.models.model import Model
from apes.population import Examples, Population, UserBlock
from apes.terms.fitting import fitted
from apes.terms.plan import Plan
from apes.terms.terms import Terms
from apes.training.cohort import Cohort
from apes.training.crews.crew import Facts, Job
from apes.training.crews.work import Order, Present, edges
from apes.training.run import Progress
from apes.training.train import TrainingResult, train
from apes.training.workers import Workers

ATTACK = (
    "every liar sends, in every round and coordinate, the level at the end that lies against the honest people's mean "
    "update, without noise, and claims the smallest budget that anybody has"
)
OWN_TARGETS_ATTACK = (
    "every liar sends, in every round and coordinate, the level at the end that lies against the honest people's mean "
    "update, without noise, under the budget that is known of them (people have targets of their own)"
)
# Budgets that are shown each by itself; of more, these quantiles.
_MOST_BUDGETS = 8
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Influence:
    """How far one person moves the estimate of the mean update: a liar, and an honest person's data at the most.

    Attributes:
        budget: Local budget that the person claims, as it is applied.
        people: Who have it, or less than it and more than the one before.
        liar: Of one coordinate, from where the estimate would be without the person's report, in units of C.
        honest: The same for an honest person, on average over the noise: what data can do.
        liar_norm: Of all coordinates together (L2), in units of C.
        honest_norm: The same for an honest person.
    """

    budget: float
    people: int
    liar: float
    honest: float
    liar_norm: float
    honest_norm: float

    @property
    def ratio(self) -> float:
        """How many times as far a liar moves a coordinate."""
        return self.liar / self.honest

    @property
    def norm_ratio(self) -> float:
        """How many times as far a liar moves the whole estimate (L2)."""
        return self.liar_norm / self.honest_norm


@dataclass(frozen=True)
class Poisoned:
    """What some liars did.

    Attributes:
        liars: How many.
        share: Of all people, in (0, 1).
        accuracy: Of the model on the test examples, in [0, 1]; None where labels are numbers.
        loss: Mean loss on the test examples.
        epsilon: Certified central epsilon of an honest person where the liars tell the analyzer what they sent: they
            hide nobody then. Infinite where nothing is certified.
    """

    liars: int
    share: float
    accuracy: float | None
    loss: float
    epsilon: float


@dataclass(frozen=True)
class PoisoningResult:
    """A plan without liars, and with them.

    Attributes:
        plan: What was trained under, with everything settled that was left open.
        attack: What liars do, in words.
        users: How many people there are, liars included.
        dimensions: Coordinates of a report.
        accuracy, loss: Of the model without liars.
        epsilon: Certified without liars.
        poisoned: One entry per share of liars.
        influences: One entry per budget, or for some where there are many.
    """

    plan: Plan
    attack: str
    users: int
    dimensions: int
    accuracy: float | None
    loss: float
    epsilon: float
    poisoned: tuple[Poisoned, ...]
    influences: tuple[Influence, ...]


def poison(
    model: Model,
    people: Population,
    plan: Plan,
    liars: Sequence[int],
    *,
    test: Examples | None = None,
    features: FeatureMap | None = None,
    threads: int | None = None,
    after_round: Callable[[Progress], None] = lambda progress: None,
) -> PoisoningResult:
    """Train a plan without liars, and with each of these numbers of them.

    Who lies is drawn at random; the liars of a smaller number are among those of a larger one.

    Args:
        model: What to train.
        people: Who takes part, as for `apes.train`; some of them lie.
        plan: As for `apes.train`. Reports must be levels, with a certificate.
        liars: How many people lie, each number in [1, n - 1] of n people.
        test: Public examples to judge the model by; by default those that come with the people.
        features: A public map that users apply to their rows first.
        threads: Worker threads, at least 1; by default one per core.
        after_round: Called after every round of every training.

    Raises:
        ParameterError: If a number of liars is out of range, if reports are no levels, or without test examples.
    """
    budgets = people.budgets
    for number in liars:
        whole("liars", number, 1, budgets.size - 1)
    brought = getattr(people, "targets", None)
    if brought is None:
        plan = fitted(plan, budgets, model)
    terms = plan.terms
    _check(terms, getattr(people, "test", None) if test is None else test)
    order = np.random.default_rng(plan.seed).permutation(budgets.size)
    has_own_targets = brought is not None or isinstance(terms.target_epsilon, str)

    def trained(count: int) -> TrainingResult:
        is_lying = np.zeros(budgets.size, dtype=bool)
        is_lying[order[:count]] = True
        claimed = people if has_own_targets else _Claiming(people, np.where(is_lying, budgets.min(), budgets))
        crew = _CrewWithLiars(is_lying, threads)
        how = {"test": test, "features": features, "workers": crew}
        return train(model, claimed, plan, **how, after_round=after_round)  # type: ignore[arg-type]  # named above

    honest = trained(0)
    influences = tuple(_influences(terms, plan.calibration, honest.budgets, honest.exposures[0].dimensions))
    poisoned = []
    for count in liars:
        result = trained(count)
        last, hidden = result.metrics[-1], _epsilon_among_honest(terms, result, order[:count])
        poisoned.append(Poisoned(count, count / budgets.size, last.accuracy, _known(last.loss), hidden))
    last = honest.metrics[-1]
    return PoisoningResult(
        plan=plan,
        attack=OWN_TARGETS_ATTACK if has_own_targets else ATTACK,
        users=int(budgets.size),
        dimensions=honest.exposures[0].dimensions,
        accuracy=last.accuracy,
        loss=_known(last.loss),
        epsilon=honest.guarantee.epsilon,
        poisoned=tuple(poisoned),
        influences=influences,
    )


def _check(terms: Terms, test: Examples | None) -> None:
    if terms.reports.levels is None:
        must = "levels must be in [2, 256]: liars send the level at an end"
        raise ParameterError(f"{must}; got {'continuous' if terms.levels is None else terms.levels!r}")
    if terms.why_not_certified is not None:
        raise ParameterError(f"framework must be one with a certificate: {terms.why_not_certified}")
    if test is None:
        raise ParameterError("test must be given: without a test part no accuracy is known that liars could harm")


def _known(loss: float | None) -> float:
    return math.nan if loss is None else loss


@dataclass(frozen=True, eq=False)
class _Claiming:
    """People, some of whom claim another budget than theirs."""

    people: Population
    budgets: F64

    @property
    def digest(self) -> str:
        return self.people.digest

    @property
    def test(self) -> Examples | None:
        return getattr(self.people, "test", None)

    @property
    def schema(self) -> object:
        return getattr(self.people, "schema", None)

    def block(self, start: int, stop: int) -> UserBlock:
        return replace(self.people.block(start, stop), budgets=self.budgets[start:stop])


class _CrewWithLiars:
    """Threads of this process, on which the reports of those who lie are replaced before the shuffler gets them."""

    def __init__(self, is_lying: Bools, threads: int | None) -> None:
        self._is_lying = is_lying
        self._workers = Workers(threads=threads)

    @property
    def facts(self) -> Facts:
        return Facts("threads", self._workers.count)

    def round(self, job: Job) -> Batch:
        """Let every user report, replace what liars report, and release the batch."""
        present, weights = Present(0, job.budgets), job.broadcast
        order = Order(job.terms, weights, job.source, job.budgets.size, False, None)
        client, collector = job.terms.client(job.model, weights.size), order.collector(threads=self._workers.count)
        is_lying = self._is_lying
        if isinstance(job.population, Cohort):
            is_lying = is_lying[job.population.users]
        blocks = edges(present.span, order.block_users)

        def honest_sum(ends: tuple[int, int]) -> F64:
            (block,) = present.blocks(job.population, [ends])
            return _sum_of_updates(client, job.terms, order, block, ~is_lying[slice(*ends)])

        def report(ends: tuple[int, int]) -> None:
            (block,) = present.blocks(job.population, [ends])
            for honest in client.reports(weights, block, order.source):
                collector.add(_with_lies(honest, is_lying[slice(*ends)], lies))

        with quiet_blas(), ThreadPoolExecutor(self._workers.count) as pool:
            lies = np.zeros(weights.size, dtype=np.uint8)
            if is_lying.any():
                # Added up in the order of the blocks, so that no sign depends on which thread was quicker.
                lies = against(sum(pool.map(honest_sum, blocks), np.zeros(weights.size)), job.terms.reports.levels or 2)
            _all(pool.map(report, blocks))
            return collector.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _all(results: Iterable[None]) -> None:
    """Wait for all, and raise what one of them raised."""
    for _ in results:
        pass


def against(total: F64, levels: int) -> U8:
    """The report that hurts most where honest updates add up to ``total``: every level at the end against it."""
    return np.where(total > 0, 0, levels - 1).astype(np.uint8)


def _with_lies(report: Report, is_lying: Bools, lies: U8) -> Report:
    """A block's report, in which liars' rows are replaced."""
    values = report.values.copy()
    values[is_lying] = lies[report.first_coordinate : report.first_coordinate + values.shape[1]]
    return replace(report, values=values)


@dataclass(frozen=True)
class _ClippedUpdates(Randomizer):
    """Updates as they are clipped, and scaled to their norm, without noise: what honest reports are about."""

    norm: float | None = None
    needs_whole_update: ClassVar[bool] = True

    def draw(self, updates: F32, tables: Tables, place: Place, source: SimulationSource) -> F32:
        clipped = clip_updates(updates, self.clip)
        if self.norm is None:
            return clipped
        lengths = np.linalg.norm(clipped, axis=1, keepdims=True)
        return np.asarray(clipped * np.minimum(1.0, self.norm / np.maximum(lengths, 1e-30)), dtype=np.float32)


def _sum_of_updates(client: Client, terms: Terms, order: Order, block: UserBlock, is_honest: Bools) -> F64:
    """What the clipped updates of a block's honest people add up to."""
    plain = replace(client, randomizer=_ClippedUpdates(terms.reports.randomizer.clip, terms.norm), sparsifier=None)
    (updates,) = plain.reports(order.weights, block, order.source)
    return np.asarray(updates.values[is_honest].sum(axis=0, dtype=np.float64))


def _influences(terms: Terms, calibration: str | None, budgets: F64, dimensions: int) -> Iterable[Influence]:
    """How far a person moves the estimate, for each budget or some of them."""
    distinct = np.unique(budgets)
    if distinct.size > _MOST_BUDGETS:
        distinct = np.unique(np.quantile(budgets, _QUANTILES, method="higher"))
    counts = np.diff(np.searchsorted(np.sort(budgets), distinct, side="right"), prepend=0)
    for budget, people in zip(distinct.tolist(), counts.tolist(), strict=True):
        liar, honest = influence(terms, calibration, budgets, budget)
        # A norm R, or b coordinates that are kept, bound how many coordinates an honest person can fill.
        filled = float(dimensions if terms.norm is None else min(dimensions, (terms.norm / terms.clip) ** 2))
        if terms.sparsification is not None:
            filled = float(terms.sparsification.top_b_first(dimensions) or dimensions)
        yield Influence(budget, people, liar, honest, liar * math.sqrt(dimensions), honest * math.sqrt(filled))


def influence(terms: Terms, calibration: str | None, budgets: F64, budget: float) -> tuple[float, float]:
    """How far one person with this budget moves a coordinate of the estimate near 0, in units of C.

    For bits a liar counts for 1 and an honest person for tanh(budget / 2) at the most: that is how much a sign leans
    towards the coordinate's, and the estimate is divided by everybody's mean of it. On more levels the statistic psi
    of the calibrator takes the place of the sign: a liar counts for psi at the end, an honest person for its mean on
    the input that leans most.

    Returns:
        That of a liar, who picks the report, and that of an honest person, on average over the noise.
    """
    everybody, own, psi = _channels(terms, calibration, budgets, budget)
    expected = everybody @ psi
    levels = level_values(psi.size, 1.0)
    low, high = (psi.size - 1) // 2, psi.size // 2
    if low == high:
        low, high = low - 1, high + 1
    slope = (expected[high] - expected[low]) / (levels[high] - levels[low])
    reach = 1 / (slope * budgets.size)
    return float(np.abs(psi).max() * reach), float(np.abs(own @ psi).max() * reach)


def _channels(terms: Terms, calibration: str | None, budgets: F64, budget: float) -> tuple[Channel, Channel, F64]:
    """The channel of everybody together, that of one budget, and the statistic that a level counts for."""
    calibrator, one = terms.calibrator(calibration), np.array([budget])
    if isinstance(calibrator, Signs):
        return pooled_channel(budgets, 2), pooled_channel(one, 2), np.array([-1.0, 1.0])
    if not isinstance(calibrator, CodedInverse):
        raise ParameterError("levels must be in [2, 256]: only levels have ends")
    everybody = calibrator.channel(budgets)
    return everybody, calibrator.channel(one), calibrator.statistic(everybody, budgets.size)


def _epsilon_among_honest(terms: Terms, result: TrainingResult, liars: I64) -> float:
    """Certified epsilon of an honest person, hidden by honest people alone."""
    honest = np.ones(result.budgets.size, dtype=bool)
    honest[liars] = False
    accountant = Accountant(terms.central_delta(honest.size), expected_rounds=terms.rounds)
    for number, exposure in enumerate(result.exposures, 1):
        present = honest & (result.rounds_by_user >= number)
        accountant.record(terms.exposure(number, result.budgets[present], exposure.dimensions))
    return accountant.guarantee.epsilon
