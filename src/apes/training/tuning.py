"""Tuning: an open plan's choices, searched for on public data, for private data to be trained by.

People are made of the *training* part of a public set: as many as will train, and a quarter more who are kept aside and
judge. The test part is never looked at, nor is the private set. Every candidate trains under the same certified
target, with the clip bound and the cap that go with it. First settings are tried at random, then next to the best so
far; the last runs repeat the best three and the defaults with other noise, lest luck decides. So nothing is chosen that
did not do better than the defaults.
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from apes.budgets import make_budgets
from apes.checks import whole
from apes.data import Dataset, partition
from apes.defaults import NORM, ROUNDS
from apes.errors import ParameterError
from apes.features.oriented_gradients import OrientedGradients
from apes.people.people import People
from apes.population import Examples
from apes.terms.fitting import fitted
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation
from apes.training.baseline import largest_share
from apes.training.knob_search import Knob, KnobSearch, Setting, readable
from apes.training.train import train
from apes.training.workers import Workers

FEWEST_RUNS, MOST_RUNS = 8, 10_000
"""Half of them compare the best few, which takes as many different settings."""
# So many users train for one that judges.
_FIT_PER_JUDGE = 4
_SEED_BITS = 48
# Accuracy of so many last rounds is averaged: one round alone is luck.
_LAST_ROUNDS = 3
Progress = Callable[[float, float, str], None]


# Factors of defaults, but for cells, which are counted.
KNOBS = (
    Knob("cells", (4, 5, 6, 7), float(OrientedGradients().cells)),
    Knob("rounds", (0.5, 0.75, 1.0, 1.5, 2.0)),
    Knob("norm", (0.5, 0.7, 1.0, 1.4)),
    Knob("cap", (1.0, 1.4, 2.0)),
    Knob("learning_rate", (0.5, 0.7, 1.0, 1.4, 2.0)),
    Knob("last_step", (1 / 3, 1.0, 10 / 3)),
)
DEFAULTS: Setting = tuple(knob.default for knob in KNOBS)


@dataclass(frozen=True)
class Trial:
    """What a setting comes to: its choices, and its accuracy on those who judge, run by run, in [0, 1]."""

    choices: dict[str, Any]
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        """Mean over its runs."""
        return mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Sample standard deviation over its runs; 0 for one."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0


@dataclass(frozen=True)
class Tuned:
    """What a search found: the best of all that were run again in the end, the defaults beside it, and all trials.

    Attributes:
        baseline: What always guessing the most frequent class of those who judge gets right, in (0, 1].
    """

    best: Trial
    default: Trial
    trials: tuple[Trial, ...]
    baseline: float


def tune(
    dataset: Dataset,
    simulation: Simulation,
    plan: Plan,
    *,
    runs: int = 20,
    fixed: tuple[str, ...] = (),
    workers: Workers | None = None,
    progress: Progress = lambda done, total, what: None,
) -> Tuned:
    """Search for the choices that train best under an open plan's target.

    Args:
        dataset: Public images; its training part alone is used.
        simulation: Users, budgets, split, features; those who will train, but for their data.
        plan: Open; its target and delta are kept. Its seed is the search's and its runs' too; without one,
            another search tries other settings.
        runs: Trainings in all, in [8, 10000].
        fixed: Names of knobs that stay as they are (``cells`` where features were named).
        workers: Who does the work; does not change the result.
        progress: Called with runs done, all runs, and what is being done.
    """
    whole("runs", runs, FEWEST_RUNS, MOST_RUNS)
    if not plan.is_open:
        raise ParameterError("plan must be open (apes, without clip, levels and calibration) to be tuned")
    search = _Search(dataset, simulation, plan, fixed)
    for done, setting in enumerate(search.knobs.settings(runs)):
        what = ", ".join(f"{name} {value}" for name, value in search.choices(setting).items()) or "defaults"

        def tell(share: float, before: int = done, what: str = what) -> None:
            progress(before + share, runs, what)

        tell(0.0)
        search.run(setting, workers, tell)
    progress(runs, runs, "done")
    return search.outcome()


def fit_and_judge(dataset: Dataset, simulation: Simulation) -> People:
    """As many people as will train, of the training part; a quarter as many again are the examples that judge."""
    users, judges = simulation.users, -(-simulation.users // _FIT_PER_JUDGE)
    images, labels = dataset.train_images, dataset.train_labels
    if users + judges > len(labels):
        most = len(labels) * _FIT_PER_JUDGE // (_FIT_PER_JUDGE + 1)
        raise ParameterError(f"users must be in [1, {most}], so that others are left to judge; got {users}")
    order, offsets = partition(labels, users + judges, simulation.split, simulation.seed, dataset.classes)
    fit, judge = order[: offsets[users]], order[offsets[users] :]
    budgets = make_budgets(simulation.budgets, users, simulation.seed)
    test = Examples(images[judge], labels[judge])
    return People(images[fit], labels[fit], offsets[: users + 1], budgets, test=test, classes=dataset.classes)


class _Search:
    """Settings that were run, and how they did."""

    def __init__(self, dataset: Dataset, simulation: Simulation, plan: Plan, fixed: tuple[str, ...]) -> None:
        self._people = fit_and_judge(dataset, simulation)
        if self._people.test is None:
            raise ParameterError("people must have examples that judge, got none")
        self._baseline = largest_share(self._people.test)
        self._dataset, self._simulation, self._plan = dataset, simulation, plan
        # The data are public: what the noise follows from need not be secret.
        self._seed = secrets.randbits(_SEED_BITS) if plan.seed is None else plan.seed
        self.knobs = KnobSearch(KNOBS, self._seed, fixed=fixed)
        self._choices: dict[Setting, dict[str, Any]] = {}

    def run(self, setting: Setting, workers: Workers | None, tell: Callable[[float], None]) -> None:
        """Train once more under a setting, with noise that it has not met yet."""
        choices = self.choices(setting)
        simulation = replace(self._simulation, **_part(choices, Simulation))
        seed = self._seed + self.knobs.times_run(setting)
        plan = replace(self._plan, **_part(choices, Plan), seed=seed)
        rounds = ROUNDS if plan.rounds is None else plan.rounds
        result = train(
            simulation.model(self._dataset),
            self._people,
            plan,
            features=simulation.feature_map(),
            workers=workers,
            after_round=lambda run: tell(run.rounds / rounds),
        )
        last = [math.nan if entry.accuracy is None else entry.accuracy for entry in result.metrics[-_LAST_ROUNDS:]]
        self.knobs.record(setting, mean(last))

    def outcome(self) -> Tuned:
        """The best of those that were run again in the end."""
        trials = {setting: Trial(self.choices(setting), tuple(found)) for setting, found in self.knobs.found.items()}
        return Tuned(
            trials[self.knobs.best()],
            trials[DEFAULTS],
            tuple(sorted(trials.values(), key=lambda trial: -trial.accuracy)),
            self._baseline,
        )

    def choices(self, setting: Setting) -> dict[str, Any]:
        """What a setting chooses, as fields of plan and simulation; defaults are left out."""
        if setting not in self._choices:
            self._choices[setting] = self._settle(setting)
        return self._choices[setting]

    def _settle(self, setting: Setting) -> dict[str, Any]:
        turned = {knob.name: place for knob, place in zip(KNOBS, setting, strict=True) if place != knob.default}
        found: dict[str, Any] = {}
        if "cells" in turned:
            found["features"] = f"oriented-gradients:{int(turned['cells'])}"
        if "rounds" in turned:
            found["rounds"] = round(turned["rounds"] * ROUNDS)
        if "norm" in turned:
            found["norm"] = turned["norm"] * NORM
        model = replace(self._simulation, **_part(found, Simulation)).model(self._dataset)
        settled = fitted(replace(self._plan, **_part(found, Plan)), self._people.budgets, model)
        if "cap" in turned and settled.cap is not None:
            found["cap"] = readable(min(turned["cap"] * settled.cap, float(self._people.budgets.max())))
            settled = fitted(replace(self._plan, **_part(found, Plan)), self._people.budgets, model)
        noise = settled.terms.calibrator().standard_error(settled.terms.applied(self._people.budgets))
        steps = settled.schedule.steps(settled.terms, model, noise)
        for name in ("learning_rate", "last_step"):
            if name in turned:
                found[name] = readable(turned[name] * getattr(steps, name))
        return found


def _part(choices: dict[str, Any], kind: type[Plan] | type[Simulation]) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if name in kind.__dataclass_fields__}
