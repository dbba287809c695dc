"""Certified guarantees: the answer of the accountant, with what it is about."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting.certificate.curve import check_delta, check_levels
from apes.accounting.charges import Charges
from apes.accounting.composition.exact import composed_epsilon
from apes.accounting.lower import lower_epsilon
from apes.checks import whole
from apes.mathematics.thresholds import MAX_LEVELS

NEIGHBOURS = "replace-one-user"


@dataclass(frozen=True)
class Guarantee:
    """A proved central guarantee, for every user of the population.

    Attributes:
        epsilon: Certified, in nats, rounded up.
        delta: What it holds up to.
        neighbours: The relation: one user's data replaced by any other, the number of users public.
        level: ``coordinate``, ``user`` (all coordinates of one round) or ``rounds`` (all coordinates of all rounds).
        method: How it was proved.
        lower: What some dataset forces at the same delta: how tight epsilon is; 0 where none is known. Over many
            coordinates or rounds its own rounding is not bounded, so it is a measure, not a theorem.
    """

    epsilon: float
    delta: float
    neighbours: str
    level: str
    method: str
    lower: float


def certify(
    budgets: NDArray[np.float64],
    *,
    delta: float,
    dimensions: int = 1,
    rounds: int = 1,
    levels: int | None = MAX_LEVELS,
    colluders: int = 0,
    chosen: int | None = None,
) -> Guarantee:
    """Certify what the shuffled reports of a population reveal about any one of its users.

    Args:
        budgets: Local budgets of those who took part, per coordinate and round, each in (0, inf).
        delta: In (0, 1); at least 1e-100 where coordinates or rounds are composed.
        dimensions: Coordinates of a report, each perturbed under the whole budget, at least 1.
        rounds: Rounds with the same participants, at least 1.
        levels: Levels of coded reports in [2, 256], or None for continuous Clip-Laplace.
        colluders: Users, apart from the victim, who tell the adversary what they reported.
        chosen: b, where every user sets all but b coordinates to zero before perturbing (``s-apes-first``).

    Returns:
        A guarantee for every user, whatever their budget.

    Guarantee:
        For any two datasets that differ in one user's data and any set of outcomes S of the shuffler,
        P(S) <= exp(epsilon) P'(S) + delta (docs/proofs.md).

    >>> certify(np.full(1000, 0.5), delta=1e-6).epsilon < 0.04
    True
    """
    epsilon = certified_epsilon(
        budgets, delta=delta, dimensions=dimensions, rounds=rounds, levels=levels, colluders=colluders, chosen=chosen
    )
    level = "rounds" if rounds > 1 else "user" if dimensions > 1 else "coordinate"
    method = f"privacy blanket, {'continuous' if levels is None else f'{levels} levels'}"
    # The datasets that force a loss change every coordinate; what sparse updates force is not known.
    lower = lower_epsilon(budgets, delta, levels, dimensions * rounds) if chosen is None else 0.0
    return Guarantee(epsilon, delta, NEIGHBOURS, level, method, lower)


def certified_epsilon(
    budgets: NDArray[np.float64],
    *,
    delta: float,
    dimensions: int = 1,
    rounds: int = 1,
    levels: int | None = MAX_LEVELS,
    colluders: int = 0,
    chosen: int | None = None,
) -> float:
    """The epsilon of `certify` alone, for those who ask often: searches, audits, pictures."""
    levels, delta = check_levels(levels), check_delta(delta)
    charges, rounds = Charges(dimensions, chosen), whole("rounds", rounds, 1)
    ways = charges.curves(budgets, colluders, delta, rounds, levels)
    return min(composed_epsilon(curve, delta, uses * rounds) for curve, uses in ways)
