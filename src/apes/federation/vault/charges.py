"""What rounds cost a user of a vault, locally and centrally, and whether that is within what the user grants."""

import math
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from apes.accounting.cost import Cost


class Charge(NamedTuple):
    """What one round costs a user; the central part is that of `Cost`, at the worst cohort that was agreed."""

    epsilon: float  # local, over all coordinates, in nats
    mu_squared: float
    delta: float


Rounds = Mapping[Charge, int]
"""How many rounds a user was in, by what one of them cost. They are counted, not added up."""


def local_epsilon(rounds: Rounds) -> float:
    """Local epsilon of rounds, in nats; an allowance of exactly so many rounds at one cost is met exactly."""
    counts: Counter[float] = Counter()
    for charge, count in rounds.items():
        counts[charge.epsilon] += count
    return math.fsum(epsilon * count for epsilon, count in counts.items())


def central_cost(rounds: Rounds) -> Cost:
    """Central cost of rounds."""
    squares, deltas = ([charge[part] * count for charge, count in rounds.items()] for part in (1, 2))
    return Cost(math.fsum(squares), math.fsum(deltas))


@dataclass(frozen=True)
class Grant:
    """What a user grants over all runs; infinite where there is no limit."""

    allowance: float  # local epsilon over all coordinates, in nats
    limit: Cost  # central

    def covers(self, rounds: Rounds) -> bool:
        """Whether rounds are within it."""
        return local_epsilon(rounds) <= self.allowance and central_cost(rounds).fits(self.limit)

    def rounds_left(self, rounds: Rounds, charge: Charge) -> int | None:
        """How many more rounds at this charge fit, by the sums that the vault itself forms; None for no limit."""
        if math.isinf(self.allowance) and math.isinf(self.limit.mu_squared):
            return None

        def is_beyond(further: int) -> bool:
            return not self.covers({**rounds, charge: rounds.get(charge, 0) + further})

        return bisect_left(range(1, sys.maxsize // 2), True, key=is_beyond)
