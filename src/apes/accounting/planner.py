"""The planner: which cap on budgets, how many users, or how many rounds reach a target.

Every place that a search looks at is certified; the answer is a place that keeps to the target, and a little beyond it
one was found that does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.curve import check_delta
from apes.accounting.cost import MOST_ROUNDS
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import certified_epsilon
from apes.checks import positive, whole
from apes.errors import ParameterError
from apes.mathematics.search import Point, Progress, Search

# A cap is found to this relative precision.
_PRECISION = 1e-3
_SMALLEST_CAP = 1e-6
_FIRST_USERS = 1000
MOST_USERS = 10**7
"""Largest population that is looked at: it takes 80 MB, and seconds to certify."""

_POINTS = 12
# A curve reaches from an eighth of the answer to eight times the answer.
_REACH = 8


@dataclass(frozen=True, eq=False)
class Goal:
    """What is to be reached: a certified central epsilon of a user over all rounds, at a delta in [1e-100, 1).

    An exposure says what a round reveals; its budgets are replaced by those that are looked at.
    """

    epsilon: float
    delta: float
    rounds: int
    exposure: Exposure

    def __post_init__(self) -> None:
        positive("target_epsilon", self.epsilon)
        check_delta(self.delta)
        whole("rounds", self.rounds, 1, MOST_ROUNDS)

    def cost(self, budgets: Array) -> float:
        """Certified epsilon of these budgets."""
        return certified_epsilon(replace(self.exposure, budgets=budgets), self.delta, self.rounds)


@dataclass(frozen=True)
class Answer:
    """What a search found: a cap, users or rounds, and the epsilon certified there, at most the target.

    Both are None if nothing reaches it; then there is advice what would.
    """

    value: float | None
    epsilon: float | None
    advice: str = ""


def _quiet(done: int, total: int) -> None:
    """Tell nobody."""


def largest_cap(goal: Goal, progress: Progress = _quiet) -> Answer:
    """Largest cap on budgets that reaches the goal; those above it are lowered to it.

    Guarantee:
        The cap reaches the goal. If it is below the largest budget, another one less than 0.11 % above it does not;
        epsilon increases with the cap, so nor does any larger one.
    """
    search = Search(cap_cost(goal), goal.epsilon, _PRECISION, progress)
    unsafe = search.at(float(goal.exposure.budgets.max()))
    if search.is_safe(unsafe):
        return _answer(search, unsafe)
    safe = search.at(_SMALLEST_CAP)
    if not search.is_safe(safe):
        costs = f"even a cap of {_SMALLEST_CAP:g} costs {safe.cost:.3g}"
        return Answer(None, None, f"{costs}: take fewer rounds or more users")
    return _answer(search, safe, unsafe)


def fewest_users(population: Callable[[int], Array], goal: Goal, progress: Progress = _quiet) -> Answer:
    """Fewest users that reach the goal; ``population`` gives the budgets of one of any size.

    Guarantee:
        That many users reach the goal, and one fewer do not. Where all budgets are equal, epsilon decreases with every
        user, so no smaller population does. Budgets drawn from a law are not so regular: one user more may bring the
        largest budget so far. The search comes from 1,000 users, lest it stop at a handful who got small ones.
    """
    search = Search(users_cost(population, goal), goal.epsilon, None, progress)
    start = search.at(_FIRST_USERS)
    if search.is_safe(start):
        return _answer(search, *search.bracket(start, 1))
    unsafe, found = search.bracket(start, MOST_USERS)
    if found is None:
        costs = f"{MOST_USERS:,} users still cost {unsafe.cost:.3g}"
        return Answer(None, None, f"{costs}: cap the budgets, or take fewer rounds")
    return _answer(search, found, unsafe)


def most_rounds(goal: Goal, progress: Progress = _quiet) -> Answer:
    """Most rounds that reach the goal, everybody taking part in each; 10^6 if that many do.

    Guarantee:
        That many rounds reach the goal, and one more does not.
    """
    search = Search(rounds_cost(goal), goal.epsilon, None, progress)
    first = search.at(1)
    if not search.is_safe(first):
        cap = largest_cap(replace(goal, rounds=1), progress).value
        remedy = "find more users" if cap is None else f"cap the budgets at {cap:.3g}, or find more users"
        return Answer(None, None, f"one round alone costs {first.cost:.3g}: {remedy}")
    return _answer(search, *search.bracket(first, MOST_ROUNDS))


def cap_cost(goal: Goal) -> Callable[[float], float]:
    """Certified epsilon as a function of the cap on budgets."""
    return lambda cap: goal.cost(np.minimum(goal.exposure.budgets, cap))


def users_cost(population: Callable[[int], Array], goal: Goal) -> Callable[[float], float]:
    """Certified epsilon as a function of the number of users."""
    return lambda users: goal.cost(population(int(users)))


def rounds_cost(goal: Goal) -> Callable[[float], float]:
    """Certified epsilon as a function of the number of rounds."""
    return lambda rounds: replace(goal, rounds=int(rounds)).cost(goal.exposure.budgets)


@dataclass(frozen=True)
class CostCurve:
    """Certified epsilon at a dozen places around an answer (caps, users or rounds), in increasing order."""

    places: tuple[float, ...]
    epsilons: tuple[float, ...]


def curve_around(
    cost: Callable[[float], float], middle: float, most: float, *, is_whole: bool, progress: Progress = _quiet
) -> CostCurve:
    """Certify a dozen places, evenly on a logarithmic scale, from an eighth of the middle to eight times as much.

    The middle, in (0, most], is one of them; whole places are at least 1. Progress is places done, and all.
    """
    low, high = middle / _REACH, min(middle * _REACH, most)
    places = np.append(np.geomspace(max(low, 1) if is_whole else low, high, _POINTS), middle)
    places = np.unique(np.round(places) if is_whole else places)
    epsilons = []
    for place in places.tolist():
        epsilons.append(cost(place))
        progress(len(epsilons), places.size)
    return CostCurve(tuple(places.tolist()), tuple(epsilons))


def _answer(search: Search, safe: Point, unsafe: Point | None = None) -> Answer:
    point = safe if unsafe is None else search.close_in(safe, unsafe)
    if not search.is_safe(point):
        raise ParameterError(f"target_epsilon must be reachable: {point.place!r} was found, but costs {point.cost!r}")
    return Answer(point.place, point.cost)
