"""Whom a figure is about: each victim is one person, hidden by everybody else; and who is hidden worst."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting import Array
from apes.checks import positive_array, whole
from apes.errors import ParameterError

# Among more users than this it hardly ever matters who is left out: it is whoever hides best.
_CROWD = 100
# Groups of victims that are looked at: where that is not enough to single one out, the bound of a group is the answer.
_MOST_GROUPS = 16


@dataclass(frozen=True)
class Victims:
    """People of whom none has more than the boldest's budget, nor less than the timidest's.

    They are charged as the boldest and hidden by all but the timidest, which covers each of them (docs/proofs.md, 4).
    If nobody has just the timidest's budget (0: not known), it may be anybody, and whoever hides best is left out.
    """

    boldest: float
    timidest: float = 0.0


EVERYBODY = Victims(float("inf"))


def victims_among(budgets: Array, victims: Victims) -> Victims:
    """The same victims, as far as it matters: nobody has more than the largest budget, or a timidest in a crowd."""
    is_known = budgets.size <= _CROWD and victims.timidest in budgets
    return Victims(min(victims.boldest, float(budgets.max())), victims.timidest if is_known else 0.0)


def honest_others(budgets: Array, colluders: int, victims: Victims = EVERYBODY) -> Array:
    """The budgets that hide each of the victims: without one of their own and the colluders', whichever hide best."""
    ordered = np.sort(positive_array("budgets", budgets))
    if not whole("colluders", colluders, 0) < ordered.size:
        raise ParameterError(f"colluders must be in [0, {ordered.size - 1}], got {colluders}")
    # Echoes get rarer with the budget, so the smallest budgets hide best.
    own = int(np.searchsorted(ordered, victims_among(ordered, victims).timidest))
    return np.delete(ordered, own)[colluders:]


def by_presence(victims: Victims, rounds: Sequence[Array]) -> list[tuple[Victims, list[int]]]:
    """The victims by which rounds they were in; of the rounds everybody's budgets are given.

    Whoever has a budget may have been wherever it is found; whoever was in no other rounds than somebody bolder is
    taken together with them. If nobody had any of the victims' budgets, they are anybody with no more, anywhere.
    """
    different = np.unique(np.concatenate(rounds))[::-1]
    some = different[(different >= victims.timidest) & (different <= victims.boldest)]
    if not some.size:
        return [(victims, list(range(len(rounds))))]
    # Budgets x rounds, the boldest first.
    present = np.stack([np.isin(some, budgets) for budgets in rounds], axis=1)
    patterns, first, kind = np.unique(present, axis=0, return_index=True, return_inverse=True)
    found: list[tuple[NDArray[np.bool_], Victims]] = []
    for number in np.argsort(first).tolist():
        pattern, timidest = patterns[number], float(some[kind.reshape(-1) == number].min())
        covering = next((k for k, (more, _) in enumerate(found) if (pattern <= more).all()), None)
        if covering is None:
            found.append((pattern, Victims(float(some[first[number]]), timidest)))
        else:
            more, bolder = found[covering]
            found[covering] = more, Victims(bolder.boldest, min(bolder.timidest, timidest))
    return [(group, np.flatnonzero(pattern).tolist()) for pattern, group in found]


def worst_of(budgets: Array, figure: Callable[[Victims], float]) -> float:
    """The largest figure of all who took part, each hidden by everybody else.

    ``figure`` bounds all the victims that it is given. The group with the largest bound is halved until that group is
    of a single budget; a crowd is one group.
    """
    if budgets.size > _CROWD:
        return figure(EVERYBODY)
    different = np.unique(budgets)

    def bounded(first: int, last: int) -> tuple[float, int, int]:
        group = Victims(float(different[last]), float(different[first]))
        return -figure(group), last - first, first

    # Hardly ever anybody but the boldest.
    groups = [bounded(different.size - 1, different.size - 1)]
    if different.size > 1:
        heapq.heappush(groups, bounded(0, different.size - 2))
    while len(groups) < _MOST_GROUPS and groups[0][1] > 0:
        _, others, first = heapq.heappop(groups)
        middle, last = first + others // 2, first + others
        heapq.heappush(groups, bounded(first, middle))
        heapq.heappush(groups, bounded(middle + 1, last))
    return -groups[0][0]
