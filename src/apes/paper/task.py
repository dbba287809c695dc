"""A task: who trains what under which plan, made from the plain values of a part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apes.data import Dataset
from apes.features.feature_map import FeatureMap
from apes.models.logistic import LogisticRegression
from apes.people.people import People
from apes.terms.plan import Plan
from apes.terms.simulation import Simulation


@dataclass(frozen=True, eq=False)
class Task:
    """What a training run of a part is given."""

    plan: Plan
    model: LogisticRegression
    people: People
    features: FeatureMap | None
    images: int  # for training, in all
    source: str  # where they are from


def task_of(arguments: dict[str, Any], dataset: Callable[[str, str], Dataset]) -> Task:
    """The task of a part's arguments: fields of `apes.Plan` and `apes.Simulation`; others are not looked at.

    The data set is loaded by its name and normalisation.
    """
    of_plan, of_simulation = (
        {name: value for name, value in arguments.items() if name in kind.__dataclass_fields__}
        for kind in (Plan, Simulation)
    )
    # A figure can be made again: it is of a seed, and nobody's guarantee.
    of_plan = {"seed": 1} | of_plan
    # Tables and figures are of the paper's pixels unless a part says otherwise.
    simulation = Simulation(**{"features": "pixels"} | of_simulation)
    images = dataset(simulation.data, simulation.normalise)
    model, people = simulation.model(images), simulation.people(images)
    count = len(images.train_labels)
    return Task(Plan(**of_plan), model, people, simulation.feature_map(), count, images.provenance)
