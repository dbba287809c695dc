"""The search for settings of both sides of the frontier: one bit per coordinate, and the trusted server.

Both are searched for in the same way, with as many runs, on the same people: those of the *training* part of a data set
who are held out of training judge. The test part is never looked at. What is found at a target is also tried at the
next larger one.

The search looks at training images without any noise of its own, so it costs privacy that no epsilon of the frontier
counts, on either side. It says how good either side can be; who trains on private data tunes on other, public data
(`apes tune`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from statistics import mean
from typing import Any, Protocol

from apes.data import Dataset
from apes.defaults import NORM
from apes.paper.frontier.trusted_server import TrustedServer
from apes.people.people import People
from apes.terms.fitting import fitted
from apes.terms.plan import Plan
from apes.terms.schedule import Schedule
from apes.terms.simulation import Simulation
from apes.terms.terms import Terms
from apes.training.knob_search import Knob, KnobSearch, Setting, readable
from apes.training.train import train
from apes.training.tuning import fit_and_judge
from apes.training.workers import Workers

Choices = dict[str, Any]
# Factors of what is used without a search, but for momentum, which is itself.
KNOBS = (
    Knob("rounds", (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)),
    Knob("norm", (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)),
    Knob("learning_rate", (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)),
    Knob("momentum", (0.0, 0.5, 0.8, 0.9), 0.8),
    Knob("last_step", (1 / 3, 1.0, 10 / 3)),
)
# One bit has a cap on budgets, too; a trusted server has nothing that would correspond to it.
CAP = Knob("cap", (1.0, 1.4, 2.0))
# What a longer trial with the trusted server alone came to on MNIST, at several targets: both sides begin with these.
FIRST = (
    {"norm": 0.5, "learning_rate": 1.4, "momentum": 0.5},
    {"norm": 0.25, "learning_rate": 1.4, "momentum": 0.5},
    {"norm": 0.25, "momentum": 0.5, "last_step": 10 / 3},
    {"norm": 0.25, "learning_rate": 1.4, "rounds": 2.0},
)
# Few settings are tried at a target, and what was found at the one before is a good place to be near.
_SHARE_ANYWHERE = Fraction(1, 2)
# Accuracy of so many last rounds is averaged: one round alone is luck.
_LAST_ROUNDS = 3


def usual_rounds(target: float) -> int:
    """Rounds of updates within a norm where nothing was searched for: more help once there is little noise."""
    return 60 if target <= 1 else 120


@dataclass(frozen=True, eq=False)
class HeldOut:
    """People who train and, as their test examples, others of the training part who judge; seen through features."""

    data: str
    features: str
    people: People
    simulation: Simulation
    dataset: Dataset

    @classmethod
    def of(cls, dataset: Dataset, simulation: Simulation) -> "HeldOut":
        """Of a data set's training part; its images are mapped once, for all runs."""
        map_ = simulation.feature_map()
        seen = dataset if map_ is None else replace(dataset, train_images=map_(dataset.train_images))
        bare = replace(simulation, features="pixels")
        return cls(simulation.data, simulation.features, fit_and_judge(seen, bare), bare, seen)


class Side(Protocol):
    """What is searched for: a way to train at a target."""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """What there is to choose."""

    def choices(self, setting: Setting) -> Choices:
        """Fields of a plan, all of them as numbers."""

    def accuracies(self, choices: Choices, seed: int) -> list[float]:
        """Accuracy on those who judge, after every round."""


class OneBitSide:
    """One bit per coordinate: the open plan, whose clip bound is found for the target."""

    knobs = (*KNOBS, CAP)

    def __init__(self, held: HeldOut, target: float, delta: float, threads: int | None = None) -> None:
        self._people, self._model = held.people, held.simulation.model(held.dataset)
        self._workers = Workers(threads=threads)
        self._plan, self._usual = Plan(target_epsilon=target, delta=delta), usual_rounds(target)
        self._fitted = cache(self._fit)

    def choices(self, setting: Setting) -> Choices:
        """Fields of a plan."""
        turned = _turned(self.knobs, setting)
        chosen: Choices = {"rounds": round(turned["rounds"] * self._usual), "norm": turned["norm"] * NORM}
        most, cap = float(self._people.budgets.max()), self._fitted(chosen["rounds"], NORM, None).cap
        if cap is not None:
            chosen["cap"] = readable(min(turned["cap"] * cap, most))
        settled = self._fitted(chosen["rounds"], chosen["norm"], chosen.get("cap"))
        noise = settled.terms.calibrator().standard_error(settled.terms.applied(self._people.budgets))
        steps = settled.schedule.steps(settled.terms, self._model, noise)
        return chosen | _stepped(turned, steps.learning_rate, steps.last_step)

    def accuracies(self, choices: Choices, seed: int) -> list[float]:
        """Accuracy on those who judge, after every round."""
        settled = self._fitted(choices["rounds"], choices["norm"], choices.get("cap"))
        plan = replace(settled, **choices, seed=seed)
        result = train(self._model, self._people, plan, workers=self._workers)
        return [float(entry.accuracy or 0) for entry in result.metrics]

    def _fit(self, rounds: int, norm: float, cap: float | None) -> Plan:
        return fitted(replace(self._plan, rounds=rounds, norm=norm, cap=cap), self._people.budgets, self._model)


class TrustedSide:
    """The trusted server."""

    knobs = KNOBS

    def __init__(self, held: HeldOut, target: float, delta: float, threads: int | None = None) -> None:
        self._people, self._model = held.people, held.simulation.model(held.dataset)
        self._workers = Workers(threads=threads)
        self._target, self._delta, self._usual = target, delta, usual_rounds(target)

    def choices(self, setting: Setting) -> Choices:
        """Fields of a plan."""
        turned = _turned(self.knobs, setting)
        chosen: Choices = {"rounds": round(turned["rounds"] * self._usual), "norm": turned["norm"] * NORM}
        noise = TrustedServer(**chosen, target_epsilon=self._target, delta=self._delta).noise(self._people.budgets.size)
        terms = Terms(clip=chosen["norm"], norm=chosen["norm"], rounds=chosen["rounds"])
        steps = Schedule().steps(terms, self._model, noise)
        return chosen | _stepped(turned, steps.learning_rate, steps.last_step)

    def accuracies(self, choices: Choices, seed: int) -> list[float]:
        """Accuracy on those who judge, after every round."""
        schedule = Schedule(**{name: choices[name] for name in ("learning_rate", "momentum", "last_step")})
        size = {name: choices[name] for name in ("rounds", "norm")}
        server = TrustedServer(**size, target_epsilon=self._target, delta=self._delta, schedule=schedule, seed=seed)
        return list(server.train(self._model, self._people, workers=self._workers))


def _turned(knobs: tuple[Knob, ...], setting: Setting) -> dict[str, float]:
    return {knob.name: place for knob, place in zip(knobs, setting, strict=True)}


def _stepped(turned: dict[str, float], learning_rate: float, last_step: float) -> Choices:
    return {
        "learning_rate": readable(turned["learning_rate"] * learning_rate),
        "momentum": turned["momentum"],
        "last_step": readable(min(1.0, turned["last_step"] * last_step)),
    }


@dataclass(frozen=True)
class Found:
    """What a search came to at a target.

    Attributes:
        choices: Fields of a plan.
        setting: The knobs' places that they come of.
        runs: Trainings at this target; 0 where it takes over what was found at another.
        accuracy: On those who judge, in [0, 1], mean over the runs of this setting.
        usual: The same of what is used without a search.
    """

    choices: Choices
    setting: Setting
    runs: int
    accuracy: float | None = None
    usual: float | None = None


def search(
    sides: Sequence[Side],
    *,
    runs: Sequence[int],
    seed: int,
    first: Sequence[Setting] = (),
    ran: Callable[[int, Choices, int, Callable[[], float]], float] = lambda place, choices, seed, run: run(),
) -> list[Found]:
    """The best settings found for sides that are one way at rising targets.

    Args:
        sides: One per target.
        runs: Trainings for each side, at least 8; or 0, to take over what was found at the target before (or at the
            first one that is searched for), in proportion to what is used at this target without a search.
        seed: Of the search, and of the noise of first runs; later runs of a setting take the seeds after it.
        first: Settings to begin with at the first side that is searched for, before `FIRST`; at the others that is what
            was found at the side before.
        ran: Called with a side's place, choices, a seed and the training itself: keeps results, or answers from those.
    """
    found: dict[int, KnobSearch] = {}
    for place, side in enumerate(sides):
        if runs[place]:
            before = [knobs.best() for knobs in found.values()]
            first_here = [*(before[-1:] or first), *first_settings(side.knobs)]
            found[place] = KnobSearch(side.knobs, seed, first=first_here, share_anywhere=_SHARE_ANYWHERE)
            _search_at(place, side, found[place], runs[place], seed, ran)
    return [_found_at(place, side, found) for place, side in enumerate(sides)]


def first_settings(knobs: Sequence[Knob]) -> list[Setting]:
    """What both sides begin with, as settings of these knobs; what is not named stays at its default."""
    return [tuple(turned.get(knob.name, knob.default) for knob in knobs) for turned in FIRST]


def _search_at(
    place: int,
    side: Side,
    knobs: KnobSearch,
    runs: int,
    seed: int,
    ran: Callable[[int, Choices, int, Callable[[], float]], float],
) -> None:
    for setting in knobs.settings(runs):
        choices, own_seed = side.choices(setting), seed + knobs.times_run(setting)

        def run(choices: Choices = choices, own_seed: int = own_seed) -> float:
            return mean(side.accuracies(choices, own_seed)[-_LAST_ROUNDS:])

        knobs.record(setting, ran(place, choices, own_seed, run))


def _found_at(place: int, side: Side, found: Mapping[int, KnobSearch]) -> Found:
    if place in found:
        knobs = found[place]
        best = knobs.best()
        accuracy, usual = (mean(knobs.found[setting]) for setting in (best, knobs.defaults))
        return Found(side.choices(best), best, sum(map(len, knobs.found.values())), accuracy, usual)
    before = [other for other in found if other < place]
    best = found[max(before) if before else min(found)].best()
    return Found(side.choices(best), best, 0)
