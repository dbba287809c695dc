"""The accountant of a run: what is certified after each round, and whether another one fits the target."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apes.accounting.certificate import check_delta, check_levels, hiding_curve, honest_others
from apes.accounting.composition import Composer
from apes.parameters import positive, positive_array, whole


class Accountant:
    """Certified central epsilon of a user after any number of rounds, everybody taking part in each.

    Args:
        budgets: Local budgets of all users, per coordinate and round.
        dimensions: Coordinates of a report.
        rounds: Most rounds that may run.
        delta: Of the guarantee, in [1e-9, 1).
        levels: Levels of coded reports, or None for continuous ones.
        target: Largest epsilon allowed, or None.
    """

    def __init__(
        self,
        budgets: NDArray[np.float64],
        dimensions: int,
        rounds: int,
        delta: float,
        levels: int | None,
        target: float | None = None,
    ) -> None:
        self._budgets = positive_array("budgets", budgets)
        self._dimensions, self._rounds = whole("dimensions", dimensions, 1), whole("rounds", rounds, 1)
        self._levels = check_levels(levels)
        self.delta = check_delta(delta)
        self.target = None if target is None else positive("target_epsilon", target)
        self._known: dict[int, float] = {}

    def epsilon_after(self, rounds: int) -> float:
        """Certified epsilon of all that was released in that many rounds."""
        if rounds not in self._known:
            self._known[rounds] = self._composer.epsilon(self._dimensions * whole("rounds", rounds, 1, self._rounds))
        return self._known[rounds]

    def allows(self, rounds: int) -> bool:
        """Whether that many rounds keep within the target."""
        return self.target is None or self.epsilon_after(rounds) <= self.target

    @cached_property
    def _composer(self) -> Composer:
        count = self._dimensions * self._rounds
        others = honest_others(self._budgets, 0, self._levels)
        curve = hiding_curve(float(self._budgets.max()), others, self.delta / count, self._levels)
        return Composer(curve, self.delta, count)
