"""Personal filters: whoever would pass the own target is left out of all further rounds, and everybody else goes on.

Leaving people out takes echoes from those who stay, so it is repeated until nobody else has to go, and what is charged
is the cohort that is left. All of it follows from budgets, targets and terms: no data, no reports, nothing released.
"""

from collections.abc import Callable, Iterator
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from apes.accounting import Array
from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import cover_of
from apes.accounting.victims import Victims
from apes.checks import positive_array
from apes.errors import ParameterError

# A certificate is computed per cohort and budget, so there may not be many of either. Budgets are raised to the largest
# one of those similar to them: a factor of 20 between the extremes makes steps of a fifth. Of bits a cohort's
# certificates are one table, and twice as many cost little.
_STEPS, _STEPS_OF_BITS = 16, 32
# Of all rounds at most about so many have another cohort than the one before.
_CHANGES = 20
# Targets are lowered onto a grid: their limits take a moment each.
_LIMITS = 256


def own_cohorts(
    budgets: Array, targets: Array, delta: float, rounds: int, exposure: Callable[[Array], Exposure]
) -> Iterator[NDArray[np.bool_]]:
    """Who takes part, round after round, until nobody is left or the rounds are over.

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
    most = _STEPS_OF_BITS if exposure(budgets).levels == 2 else _STEPS
    limits, (step, boldest) = _limits(targets, delta), _steps(budgets, most)
    gate, cover = Accountant(delta, expected_rounds=rounds), cover_of(delta)
    staying, left, spent = np.ones(budgets.size, dtype=bool), rounds, np.zeros((2, boldest.size))
    while left and staying.any():
        present, cost = exposure(budgets[staying]), np.zeros((2, boldest.size))
        for k in np.unique(step[staying]).tolist():
            cost[:, k] = astuple(gate.cost(present, Victims(float(boldest[k]))))
        after = spent + cost
        if (after[1] > cover).any():
            return
        if (staying & ~(after[0][step] <= limits)).any():
            ahead = min(-(-rounds // _CHANGES), left)
            staying = _without_the_full(staying, spent[0][step], ahead * cost[0][step], limits)
            continue
        yield staying
        left, spent = left - 1, after


def _without_the_full(staying: NDArray[np.bool_], spent: Array, cost: Array, limits: Array) -> NDArray[np.bool_]:
    """Those who stay when everybody has left whom the cost would bring beyond the own limit.

    What the others cost rises with every one who leaves, about as their number falls; that is a guess, to spare
    certificates, and what is charged later does not rest on it. Whoever could not even pay what it costs now is out.
    """
    before, number = staying.sum(), 0
    while number != staying.sum():
        number = staying.sum()
        staying = staying & (spent + cost * (before / max(number, 1)) <= limits)
    return staying


def _steps(budgets: Array, most: int) -> tuple[NDArray[np.intp], Array]:
    """The step of each budget, and the largest budget of each step."""
    values, place = np.unique(budgets, return_inverse=True)
    if values.size > most:
        edges = np.geomspace(values[0], values[-1], most + 1)[1:-1]
        place = np.unique(np.searchsorted(edges, budgets), return_inverse=True)[1]
    boldest = np.zeros(place.max() + 1)
    np.maximum.at(boldest, place, budgets)
    return place, boldest


def _limits(targets: Array, delta: float) -> Array:
    """The mu^2 that each target allows, from below."""
    values, place = np.unique(targets, return_inverse=True)
    if values.size > _LIMITS:
        grid = np.geomspace(values[0], values[-1], _LIMITS)
        grid[0] = values[0]
        values, place = grid, np.searchsorted(grid, targets, side="right") - 1
    allowed = [Accountant(delta, expected_rounds=1, target=target).limit for target in values.tolist()]
    return np.array([0.0 if limit is None else limit.mu_squared for limit in allowed])[place]
