"""What releases cost: a Gaussian shift that covers them, and a probability that is left. Costs add up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apes.accounting.composition.gaussian import gaussian_epsilon
from apes.checks import within

MOST_ROUNDS = 1_000_000
"""Rounds that can be charged in all."""
SUMS = 1 + 1e-9
"""Sums of so many costs are off by less."""


@dataclass(frozen=True)
class Cost:
    """What releases cost one person: covered by a Gaussian shift of mu, and by an event of probability ``delta``.

    Costs add up, also where the next release is chosen by what came out of the last (docs/proofs.md, 13).
    """

    mu_squared: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        within("mu_squared", self.mu_squared, 0, math.inf)
        within("delta", self.delta, 0, math.inf)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.mu_squared + other.mu_squared, self.delta + other.delta)

    def times(self, rounds: int) -> "Cost":
        """The same release so many times."""
        return Cost(self.mu_squared * rounds, self.delta * rounds)

    def fits(self, limit: "Cost") -> bool:
        """Whether it is within a limit, up to the rounding of sums, which `epsilon` allows for."""
        return self.mu_squared <= limit.mu_squared * SUMS and self.delta <= limit.delta * SUMS

    def epsilon(self, delta: float) -> float:
        """Epsilon at delta of everything together, from above."""
        return gaussian_epsilon(math.sqrt(self.mu_squared) * SUMS, delta - self.delta * SUMS)


Personal = tuple[float, Cost]
"""Somebody's certified epsilon, at the guarantee's delta, and the cost that covers it."""


def least(*figures: Personal) -> Personal:
    """The smaller of several that hold."""
    return min(epsilon for epsilon, _ in figures), min((cost for _, cost in figures), key=lambda cost: cost.mu_squared)


def worst(figures: Sequence[Personal]) -> Personal:
    """What covers everybody of whom one of the figures is."""
    costs = [cost for _, cost in figures]
    largest = Cost(max(cost.mu_squared for cost in costs), max(cost.delta for cost in costs))
    return max(epsilon for epsilon, _ in figures), largest
