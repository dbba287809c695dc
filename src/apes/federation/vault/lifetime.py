"""What a vault's owner grants centrally in all: a filter over every run and every federation (docs/proofs.md, 13).

A device does not know who else is in a round, and the analyzer chooses it. So a round is charged at the worst cohort
that the agreed limits allow: of the others, only their number and their largest budget are relied on, which the
shuffler insists on.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting.accountant import Accountant
from apes.accounting.composition.exact import SMALLEST_DELTA
from apes.accounting.cost import Cost
from apes.accounting.victims import Victims
from apes.checks import positive, within
from apes.federation.terms import FederationTerms

# Nobody knows how many rounds a life has, nor how many coordinates; so every round leaves the same part of delta
# uncovered, whatever its coordinates are. A filter has room for a hundred times as many: for a million rounds.
_ROUNDS = 10_000
# A certificate takes half a second, and a silo may have thousands of budgets.
_MOST_BUDGETS = 32


@dataclass(frozen=True)
class Lifetime:
    """Largest central epsilon over everything that ever leaves for a user, and the delta that it holds up to."""

    epsilon: float | None = None  # in (0, inf); None if there is no limit
    delta: float = 1e-6  # in [1e-100, 0.5]

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            positive("lifetime_epsilon", self.epsilon)
        within("lifetime_delta", self.delta, SMALLEST_DELTA, 0.5)

    @property
    def limit(self) -> Cost:
        """What all rounds together may cost."""
        limit = Accountant(self.delta, expected_rounds=_ROUNDS, target=self.epsilon).limit
        return Cost(math.inf, math.inf) if limit is None else limit

    def costs(self, terms: FederationTerms, budgets: NDArray[np.float64]) -> list[Cost]:
        """What a round under the terms costs users with these budgets at most.

        Costs grow with the own budget, so where there are many budgets, they are rounded up to a few.
        """
        taken = terms.taken
        taken.check(budgets)
        if np.unique(budgets).size > _MOST_BUDGETS:
            steps = np.geomspace(taken.smallest_budget, taken.largest_budget, _MOST_BUDGETS)
            budgets = steps[np.searchsorted(steps, budgets)]
        accountant, worst = Accountant(self.delta, expected_rounds=_ROUNDS, settled=False), terms.worst
        known = {own: accountant.cost(worst, Victims(own)) for own in np.unique(budgets).tolist()}
        return [known[own] for own in budgets.tolist()]
