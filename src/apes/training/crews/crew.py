"""A crew: whoever does the work of a run, round after round. Which one it is changes no bit of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeVar

import numpy as np

from apes.mathematics.arrays import F32, F64
from apes.mathematics.randomness import SimulationSource
from apes.messages import Batch
from apes.models.model import Model
from apes.population import Population
from apes.terms.terms import Terms

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Job:
    """One round's work.

    Attributes:
        terms: What users agreed to.
        model: What is trained.
        weights: The model as it is, flat.
        population: Those who take part.
        budgets: What was charged, user by user.
        source: The round's randomness.
        only_sums: As for `apes.train`.
    """

    terms: Terms
    model: Model
    weights: F64
    population: Population
    budgets: F64
    source: SimulationSource
    only_sums: bool = False

    @property
    def broadcast(self) -> F32:
        """The weights as users get them."""
        return self.weights.astype(np.float32)


@dataclass(frozen=True)
class Facts:
    """Who did the work, to be told.

    Attributes:
        way: ``threads``, ``processes``, ``dask``, ``ray`` or ``executor``.
        count: How many there are now; None where only the executor knows.
        lost: How many died on the way, whose work was done again, as far as it was noticed.
    """

    way: str
    count: int | None
    lost: int = 0

    def __str__(self) -> str:
        singular = {"threads": "thread", "processes": "process", "dask": "Dask worker", "ray": "Ray worker"}
        plural = {"thread": "threads", "process": "processes"}
        name = singular.get(self.way, self.way)
        if self.count is None:
            return f"an {name}"
        return f"{self.count} {name if self.count == 1 else plural.get(name, f'{name}s')}"

    @property
    def told(self) -> str:
        """Who did the work, and who died of it."""
        return f"on {self}" + (f", after {self.lost} died whose work was done again" if self.lost else "")


class Crew(Protocol):
    """Does rounds, one after the other. Opened by `apes.Workers.open`; closing it ends what was started for it."""

    @property
    def facts(self) -> Facts:
        """Who does the work."""

    def round(self, job: Job) -> Batch:
        """Let every user report, and release the batch."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def in_tree(values: Sequence[T], add: Callable[[T, T], T]) -> T:
    """Add values up pairwise, neighbours first: what stands in the way of an addition is as small as it can be."""
    while len(values) > 1:
        pairs = [add(one, other) for one, other in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]
