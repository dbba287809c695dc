"""What the same people train in one process, as `apes train` does: to put a trial federation's accuracy beside it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from apes.errors import BudgetExceeded
from apes.features.named import named_features
from apes.federation.installed import InstalledModel
from apes.federation.subject import Subject
from apes.people.people import People
from apes.storage.files import write_bytes
from apes.terms.plan import Plan
from apes.training.train import train

COMPARISON = "simulated.json"


@dataclass(frozen=True)
class Simulated:
    """How `apes train` did, of the same people, under the same choices; by the public test part."""

    accuracy: float | None  # in [0, 1]
    loss: float | None
    rounds: int
    epsilon: float | None  # certified for participants settled beforehand; None where nothing is
    delta: float


def simulate(plan: Plan, subject: Subject, people: People) -> Simulated | None:
    """Train the people in this process; None for an installed model, and where not even one round is within the target.

    The plan is as it was chosen: an open one is fitted as `apes train` fits it.
    """
    if isinstance(subject.model, InstalledModel):
        return None
    try:
        result = train(subject.model, people, plan, test=subject.test, features=named_features(subject.features))
    except BudgetExceeded:
        return None
    last, guarantee = result.metrics[-1], result.guarantee
    epsilon = guarantee.epsilon if guarantee.why_not_certified is None else None
    return Simulated(last.accuracy, last.loss, len(result.metrics), epsilon, guarantee.delta)


def write_comparison(folder: Path, simulated: Simulated | None) -> None:
    """Keep it in the folder of a trial."""
    if simulated is not None:
        write_bytes(folder / COMPARISON, (json.dumps(asdict(simulated), indent=1) + "\n").encode())
