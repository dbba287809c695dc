"""The planner: which cap on budgets, how many users, or how many rounds reach a target.

Each search is monotone; its answer is on the safe side and was certified once more before it is returned.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting.accountant import Accountant
from apes.accounting.certificate import check_delta, check_levels
from apes.accounting.guarantee import certify
from apes.errors import ParameterError
from apes.parameters import positive, positive_array, whole

Array = NDArray[np.float64]
# A cap is found to this relative precision.
_PRECISION = 1e-3
_SMALLEST_CAP = 1e-6
_MOST_USERS = 10**9
_MOST_ROUNDS = 10**6


@dataclass(frozen=True)
class Goal:
    """What is to be reached.

    Attributes:
        epsilon: Largest certified central epsilon of a user over all rounds, in (0, inf).
        delta: In [1e-9, 1).
        dimensions: Coordinates of a report.
        rounds: Rounds of training.
        levels: Levels of coded reports, or None for continuous ones.
    """

    epsilon: float
    delta: float
    dimensions: int
    rounds: int
    levels: int | None = 256

    def __post_init__(self) -> None:
        positive("target_epsilon", self.epsilon)
        check_delta(self.delta)
        whole("dimensions", self.dimensions, 1)
        whole("rounds", self.rounds, 1)
        check_levels(self.levels)

    def cost(self, budgets: Array) -> float:
        """Certified epsilon of these budgets."""
        return certify(
            budgets, delta=self.delta, dimensions=self.dimensions, rounds=self.rounds, levels=self.levels
        ).epsilon


@dataclass(frozen=True)
class Answer:
    """What a search found.

    Attributes:
        value: The cap, users or rounds; None if nothing reaches the target.
        epsilon: Certified at that value, at most the target; None if infeasible.
        advice: What would make an infeasible target feasible; empty if it is.
    """

    value: float | None
    epsilon: float | None
    advice: str = ""


def largest_cap(budgets: Array, goal: Goal) -> Answer:
    """Largest cap on budgets that reaches the goal; those above it are lowered to it."""
    budgets = positive_array("budgets", budgets)
    highest = float(budgets.max())
    cost = goal.cost(budgets)
    if cost <= goal.epsilon:
        return Answer(highest, cost)
    cheapest = goal.cost(np.minimum(budgets, _SMALLEST_CAP))
    if cheapest > goal.epsilon:
        advice = f"even a cap of {_SMALLEST_CAP:g} costs {cheapest:.3g}: take fewer rounds or more users"
        return Answer(None, None, advice)
    safe, unsafe = (_SMALLEST_CAP, cheapest), (highest, cost)
    return _checked(*_search(lambda cap: goal.cost(np.minimum(budgets, cap)), safe, unsafe, goal), goal)


def fewest_users(population: Callable[[int], Array], goal: Goal) -> Answer:
    """Fewest users that reach the goal, to three digits.

    Args:
        population: Budgets of a population of a given size.
        goal: What is to be reached.
    """
    users, cost = 1, goal.cost(population(1))
    before = users, cost
    while cost > goal.epsilon:
        before = users, cost
        users *= 8
        if users > _MOST_USERS:
            return Answer(None, None, f"not even {_MOST_USERS:,} users are enough: lower the budgets or the rounds")
        cost = goal.cost(population(users))
    if users == 1:
        return Answer(1, cost)
    found, epsilon = _search(lambda n: goal.cost(population(math.ceil(n))), (users, cost), before, goal)
    return _checked(math.ceil(found), epsilon, goal)


def _search(
    cost: Callable[[float], float], safe: tuple[float, float], unsafe: tuple[float, float], goal: Goal
) -> tuple[float, float]:
    """Close in on where the cost crosses the goal, from (place, cost) pairs on both sides; return the safe one.

    On logarithmic scales the cost is nearly a straight line, so each guess is where it would cross, moved a little to
    the side that was not reached last, until the two sides are a thousandth apart.
    """
    while abs(math.log(unsafe[0] / safe[0])) > _PRECISION:
        width = math.log(unsafe[0] / safe[0])
        # A cost may be 0, where delta covers all there is.
        floor = math.log(max(safe[1], 1e-6 * goal.epsilon))
        step = (math.log(goal.epsilon) - floor) / (math.log(unsafe[1]) - floor)
        # Just past the crossing, to move the far end; then just before it.
        nudge = _PRECISION / 3 / abs(width)
        step += nudge if step < 0.5 else -nudge
        place = safe[0] * math.exp(width * min(max(step, 0.02), 0.98))
        reached = cost(place)
        if reached <= goal.epsilon:
            safe = place, reached
        else:
            unsafe = place, reached
    return safe


def most_rounds(budgets: Array, goal: Goal) -> Answer:
    """Most rounds that reach the goal, everybody taking part in each."""
    budgets = positive_array("budgets", budgets)
    one = Accountant(budgets, goal.dimensions, 1, goal.delta, goal.levels).epsilon_after(1)
    if one > goal.epsilon:
        return Answer(None, None, f"one round alone costs {one:.3g}: cap the budgets, or find more users")
    low, high = 1, 2
    accountant = Accountant(budgets, goal.dimensions, high, goal.delta, goal.levels)
    while accountant.epsilon_after(high) <= goal.epsilon and high < _MOST_ROUNDS:
        low, high = high, 2 * high
        accountant = Accountant(budgets, goal.dimensions, high, goal.delta, goal.levels)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if accountant.epsilon_after(middle) <= goal.epsilon else (low, middle)
    return _checked(low, accountant.epsilon_after(low), goal)


def _checked(value: float, epsilon: float, goal: Goal) -> Answer:
    if epsilon > goal.epsilon:
        raise ParameterError(f"target_epsilon must be reachable: {value!r} was found, but costs {epsilon!r}")
    return Answer(value, epsilon)
