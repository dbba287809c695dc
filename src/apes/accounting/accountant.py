"""The accountant of a run: what is certified after each round, and whether another one fits the target."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from apes.accounting.certificate.curve import check_delta, check_levels
from apes.accounting.charges import Charges
from apes.accounting.composition.exact import Composer, Use
from apes.accounting.exposure import budgets_digest
from apes.checks import positive, positive_array, whole
from apes.errors import BudgetExceeded

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
        chosen: b, where every user sets all but b coordinates to zero before perturbing, or None.

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
        chosen: int | None = None,
    ) -> None:
        self._charges, self._levels = Charges(dimensions, chosen), check_levels(levels)
        self._colluders = whole("colluders", colluders, 0)
        self.delta = check_delta(delta)
        self.target = None if target is None else positive("target_epsilon", target)
        self._expected = whole("expected_rounds", expected_rounds, 1)
        self._composers = [Composer(delta, uses * self._expected) for uses in self._charges.uses]
        self._curves: dict[str, list[Use]] = {}
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
            self._curves[name] = self._charges.curves(
                budgets, self._colluders, self.delta, self._expected, self._levels
            )
        return name

    def _epsilon(self, rounds: Counter[str]) -> float:
        key = frozenset(rounds.items())
        if key not in self._known:
            self._known[key] = min(
                composer.epsilon([_times(self._curves[name][way], count) for name, count in rounds.items()])
                for way, composer in enumerate(self._composers)
            )
        return self._known[key]


def _times(use: Use, rounds: int) -> Use:
    return use[0], use[1] * rounds
