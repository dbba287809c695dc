"""What a roster says about a round: whom to charge it for, and whom to read it as. Functions of public numbers alone.

The analyzer may leave out whom it likes, so neither may depend on who is there: only on how many are.
"""

import numpy as np

from apes.accounting import Array
from apes.checks import positive, positive_array, whole


def with_later(roster: Array, later: int, largest: float) -> Array:
    """All who may be in a round, in order of size: those of the roster, and later members at the largest budget."""
    more = np.full(whole("later", later, 0), positive("largest", largest))
    return np.sort(np.concatenate([positive_array("roster", roster), more]))


def charged_as(enrolled: Array, present: int, colluding: int) -> Array:
    """A victim with the largest budget of the enrolled, among those with the largest: one per honest person present.

    Guarantee:
        What is certified for a round of these covers everybody in a round of ``present`` of the enrolled, whoever they
        are, of whom all but ``colluding`` are honest; and whichever of the enrolled budgets the victim has
        (docs/proofs.md, 18).

    Args:
        enrolled: Budgets of all who may be there, see `with_later`.
        present: How many reports count, in [1, number of enrolled].
        colluding: How many of them may have told the analyzer what they reported, in [0, present - 1].

    >>> charged_as([0.1, 0.2, 0.3, 0.4], 4, 1).tolist()
    [0.3, 0.4, 0.4]
    """
    ordered = np.sort(positive_array("enrolled", enrolled))
    whole("present", present, 1, ordered.size)
    others = present - whole("colluding", colluding, 0, present - 1) - 1
    return np.append(ordered[ordered.size - others :], ordered[-1])


def read_as(enrolled: Array, present: int) -> Array:
    """Budgets that ``present`` people are taken to have: evenly spaced quantiles of the enrolled, all if all are there.

    >>> read_as([0.1, 0.2, 0.3, 0.4], 4).tolist()
    [0.1, 0.2, 0.3, 0.4]
    >>> read_as([0.1, 0.3, 0.5, 0.7], 2).round(9).tolist()
    [0.2, 0.6]
    """
    ordered = np.sort(positive_array("enrolled", enrolled))
    places = (2 * np.arange(whole("present", present, 1, ordered.size)) + 1) * (ordered.size / (2 * present)) - 0.5
    return np.asarray(np.interp(places, np.arange(ordered.size), ordered), dtype=np.float64)
