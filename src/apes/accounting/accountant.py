"""The accountant of a run: what is certified after each round, and whether another one fits the target."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from apes.accounting.certificate import HidingCurve, check_delta, check_levels, hiding_curve, honest_others
from apes.accounting.composition import Composer
from apes.accounting.event import budgets_digest
from apes.errors import BudgetExceeded
from apes.parameters import positive, positive_array, whole

Array = NDArray[np.float64]


class Accountant:
    """Certified central epsilon of any one user, charged round by round; each round may have other participants.

    Who takes part must not depend on anybody's data. In every round the victim is whoever took part with the largest
    budget, so the figure covers everybody, also those who took part in some rounds only.

    Args:
        dimensions: Coordinates of a report, at least 1.
        delta: Of the guarantee, in [1e-100, 1).
        levels: Levels of coded reports, or None for continuous ones.
        expected_rounds: About how many rounds there will be, at least 1; figures are tightest there, valid for any.
        colluders: Users of each round who tell the adversary what they reported.
        target: Largest epsilon allowed, or None.

    >>> accountant = Accountant(dimensions=10, delta=1e-6, levels=256, expected_rounds=2)
    >>> full, fewer = np.full(1000, 0.5), np.full(900, 0.5)
    >>> accountant.charge(full) < accountant.charge(fewer) == accountant.epsilon
    True
    """

    def __init__(
        self,
        dimensions: int,
        delta: float,
        levels: int | None,
        *,
        expected_rounds: int,
        colluders: int = 0,
        target: float | None = None,
    ) -> None:
        self._dimensions, self._levels = whole("dimensions", dimensions, 1), check_levels(levels)
        self._colluders = whole("colluders", colluders, 0)
        self.delta = check_delta(delta)
        self.target = None if target is None else positive("target_epsilon", target)
        self._uses = self._dimensions * whole("expected_rounds", expected_rounds, 1)
        self._composer = Composer(delta, self._uses)
        self._curves: dict[str, HidingCurve] = {}
        self._rounds: Counter[str] = Counter()
        self._known: dict[frozenset[tuple[str, int]], float] = {frozenset(): 0.0}

    @property
    def epsilon(self) -> float:
        """Certified epsilon of everything charged so far; 0 if nothing was."""
        return self._epsilon(self._rounds)

    def charge(self, budgets: Array, rounds: int = 1) -> float:
        """Charge rounds that took place with these participants' budgets, and return the certified epsilon of all.

        Raises:
            BudgetExceeded: If that would go beyond the target; nothing is charged then.
        """
        after = self._with(budgets, rounds)
        epsilon = self._epsilon(after)
        if self.target is not None and epsilon > self.target:
            raise BudgetExceeded(f"the round would bring epsilon to {epsilon:.4g}, beyond the target {self.target:g}")
        self._rounds = after
        return epsilon

    def allows(self, budgets: Array, rounds: int = 1) -> bool:
        """Whether further rounds with these participants keep within the target."""
        return self.target is None or self.after(budgets, rounds) <= self.target

    def after(self, budgets: Array, rounds: int = 1) -> float:
        """Certified epsilon if further rounds with these participants took place; nothing is charged."""
        return self._epsilon(self._with(budgets, rounds))

    def _with(self, budgets: Array, rounds: int) -> Counter[str]:
        return self._rounds + Counter({self._known_curve(budgets): whole("rounds", rounds, 1)})

    def _known_curve(self, budgets: Array) -> str:
        """Name of the curve of a round with these participants."""
        budgets = positive_array("budgets", budgets)
        name = budgets_digest(budgets)
        if name not in self._curves:
            others = honest_others(budgets, self._colluders, self._levels)
            self._curves[name] = hiding_curve(float(budgets.max()), others, self.delta / self._uses, self._levels)
        return name

    def _epsilon(self, rounds: Counter[str]) -> float:
        key = frozenset(rounds.items())
        if key not in self._known:
            uses = [(self._curves[name], self._dimensions * count) for name, count in rounds.items()]
            self._known[key] = self._composer.epsilon(uses)
        return self._known[key]
