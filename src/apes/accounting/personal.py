"""Personal filters: whoever would pass the own target is left out of all further rounds, and everybody else goes on.

Leaving people out takes echoes from those who stay, so it is repeated until nobody else has to go, and what is charged
is the cohort that is left. All of it follows from budgets, targets and terms: no data, no reports, nothing released.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from apes.accounting import Array
from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.victims import Victims
from apes.checks import positive_array
from apes.errors import ParameterError

# Users are filtered in groups of similar budgets, each charged as its boldest and held to its strictest target.
_GROUPS = 16


def own_cohorts(
    budgets: Array, targets: Array, delta: float, rounds: int, exposure: Callable[[Array], Exposure]
) -> Iterator[NDArray[np.bool_]]:
    """Who takes part, round after round, until nobody is left; at most about so many rounds.

    Args:
        budgets: Local budgets of all users, per coordinate and round.
        targets: The largest central epsilon that each of them allows, over all rounds, in (0, inf).
        delta: Of the guarantees, in (0, 1).
        rounds: How many rounds there may be.
        exposure: What a round with these budgets reveals.

    Guarantee:
        Nobody takes part in a round that would bring the own certified epsilon beyond the own target.
    """
    if positive_array("targets", targets).shape != budgets.shape:
        raise ParameterError(f"targets must have one entry per user, {budgets.size}, got {targets.size}")
    edges = np.unique(np.linspace(0, np.unique(budgets).size, _GROUPS + 1).astype(int))
    # Equal budgets are in one group.
    group = np.searchsorted(edges, np.unique(budgets, return_inverse=True)[1], side="right") - 1
    boldest, (timidest, strictest) = np.zeros(edges.size - 1), np.full((2, edges.size - 1), np.inf)
    np.maximum.at(boldest, group, budgets)
    np.minimum.at(timidest, group, budgets)
    np.minimum.at(strictest, group, targets)
    filters = [
        Accountant(delta, expected_rounds=rounds, target=target, victims=Victims(*ends))
        for target, *ends in zip(strictest.tolist(), boldest.tolist(), timidest.tolist(), strict=True)
    ]
    staying = np.ones(len(filters), dtype=bool)
    while staying.any():
        present = exposure(budgets[staying[group]])
        full = [g for g in np.flatnonzero(staying) if not filters[g].allows(present)]
        if full:
            staying[full] = False
            continue
        yield staying[group]
        for g in np.flatnonzero(staying):
            filters[g].record(present)
