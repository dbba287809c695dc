"""What a worker does in a round: lets some users report, and gathers what they say. The same code for every crew."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apes.client.client import Client
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.mathematics.compiled import quiet_blas
from apes.mathematics.randomness import SimulationSource
from apes.population import Population, UserBlock
from apes.shuffler.parts import Part
from apes.shuffler.shuffle import Collector
from apes.terms.terms import Terms
from apes.training.cohort import Cohort
from apes.training.crews.same_code import check_version

# Numbers of a block that are in memory at once: 16 MB of updates per thread, or one update if that is longer.
_NUMBERS_AT_ONCE = 1 << 22
# Users in a block, unless somebody says otherwise: as many as have 6 MB of updates together, within limits. In a block
# that is done too soon, threads spend their time handing the interpreter's lock to and fro; and counts per level are
# brought into the first cache once per block.
FEWEST_USERS, _MOST_USERS, _NUMBERS_THAT_SUIT = 64, 1024, 3 << 19


@dataclass(frozen=True, eq=False)
class Present:
    """Who of some users takes part in a round.

    Attributes:
        first: Number, in the round, of the first of them; the others follow.
        budgets: What is charged, user by user.
        users: Their numbers in the population, in increasing order; None where those are the round's numbers.
    """

    first: int
    budgets: F64
    users: NDArray[np.intp] | None = None

    @property
    def span(self) -> range:
        """Their numbers in the round."""
        return range(self.first, self.first + self.budgets.size)

    def blocks(self, population: Population, edges: list[tuple[int, int]]) -> Iterator[UserBlock]:
        """Blocks of those who take part, from ``start`` to before ``stop`` by their numbers in the round."""
        if self.users is None:
            yield from (self._checked(population, population.block(*ends), *ends) for ends in edges)
            return
        among = Cohort(population, self.users)
        for start, stop in edges:
            yield self._checked(population, among.block(start - self.first, stop - self.first), start, stop)

    def _checked(self, population: Population, block: UserBlock, start: int, stop: int) -> UserBlock:
        """A block as the population hands it out, under the budgets that were charged, whatever it says itself."""
        if len(block.offsets) != stop - start + 1:
            name = f"{type(population).__name__}.block({start}, {stop})"
            raise ParameterError(f"{name} must have {stop - start} users, got {len(block.offsets) - 1}")
        # A copy: a stranger's model that could write to the run's own would give one user another's budget.
        own = self.budgets[start - self.first : stop - self.first].copy()
        return UserBlock(start, own, _writable(block.features), _writable(block.labels), block.offsets)


def _writable(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows that compiled loops take for the same kind on every worker: what travelled may be in read-only memory."""
    return rows.copy() if isinstance(rows, np.ndarray) and not rows.flags.writeable else rows


@dataclass(frozen=True, eq=False)
class Order:
    """What everybody's worker has to know of a round: sent anew every round.

    Attributes:
        terms: What users agreed to: how reports are gathered depends on them.
        weights: The model as it is.
        source: The round's randomness.
        users: How many take part, on all workers together.
        only_sums: As for `apes.train`.
        users_at_once: Most users in a block, or None (`users_in_block`).
        version: Of the package, where the order was given; for workers elsewhere, who compare it with their own.
    """

    terms: Terms
    weights: F32
    source: SimulationSource
    users: int
    only_sums: bool
    users_at_once: int | None
    version: str = ""

    @property
    def block_users(self) -> int:
        """Users in a block of this model."""
        return users_in_block(self.users_at_once, self.weights.size)

    def collector(self, span: range | None = None, threads: int = 1) -> Collector:
        """What gathers the reports of a span of users, or everybody's."""
        where, how = (self.users, self.weights.size, self.source, threads), self.only_sums
        return self.terms.collector(*where, only_sums=how, span=span)


def gather(client: Client, population: Population, present: Present, order: Order) -> Part:
    """Let those report who take part of some users, on a worker."""
    check_version(order.version)
    gathered = order.collector(present.span)
    with quiet_blas():
        take_reports(client, population, present, order, (gathered, edges(present.span, order.block_users)))
    return gathered.part()


def take_reports(
    client: Client,
    population: Population,
    present: Present,
    order: Order,
    into: tuple[Collector, list[tuple[int, int]]],
) -> None:
    """Let the users of some blocks report into a collector."""
    collector, blocks = into
    for block in present.blocks(population, blocks):
        for report in client.reports(order.weights, block, order.source):
            collector.add(report)


def users_in_block(most: int | None, dimensions: int) -> int:
    """How many users are in a block, for a model of so many coordinates: at least 1; None takes what suits it."""
    if most is None:
        most = min(max(FEWEST_USERS, _NUMBERS_THAT_SUIT // dimensions), _MOST_USERS)
    return max(1, min(most, _NUMBERS_AT_ONCE // dimensions))


def edges(span: range, size: int) -> list[tuple[int, int]]:
    """Where blocks of so many users begin and end."""
    return [(start, min(start + size, span.stop)) for start in range(span.start, span.stop, size)]
