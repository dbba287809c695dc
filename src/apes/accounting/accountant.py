"""The accountant of a run, its gate: what is certified after each round, and whether another one fits the target."""

import math
from collections import Counter
from functools import cache

from apes.accounting.certificate.curve import check_delta
from apes.accounting.composition.exact import Composer
from apes.accounting.exposure import Exposure, Ways
from apes.accounting.guarantee import Guarantee, took_part
from apes.checks import positive, whole
from apes.errors import BudgetExceeded, ParameterError


class Accountant:
    """Certified central epsilon of any one user, charged round by round; each round may have other participants.

    Who takes part must not depend on anybody's data. In every round the victim is whoever took part with the largest
    budget, so the figure covers everybody, also those who took part in some rounds only. An accountant belongs to one
    run: rounds come in order, each once, and all have the form of the first.

    Args:
        delta: Of the guarantee, in (0, 1); at least 1e-100 where rounds or coordinates are composed.
        expected_rounds: About how many rounds there will be, at least 1; figures are tightest there, valid for any.
        target: Largest epsilon allowed, or None.
        colluders: Users of each round who tell the adversary what they reported.
        victim: Budget of the user that the figures are about, or None for everybody.

    >>> import numpy as np
    >>> accountant = Accountant(1e-6, expected_rounds=2)
    >>> full, fewer = Exposure(np.full(1000, 0.5), 10), Exposure(np.full(900, 0.5), 10)
    >>> accountant.charge(full) < accountant.charge(fewer) == accountant.epsilon
    True
    """

    def __init__(
        self,
        delta: float,
        *,
        expected_rounds: int,
        target: float | None = None,
        colluders: int = 0,
        victim: float | None = None,
    ) -> None:
        self._delta = check_delta(delta)
        self._target = None if target is None else positive("target_epsilon", target)
        self._expected = whole("expected_rounds", expected_rounds, 1)
        self._colluders = whole("colluders", colluders, 0)
        self._victim = None if victim is None else positive("victim", victim)
        self._composer = cache(lambda uses: Composer(self.delta, uses * self._expected))
        self._exposures: list[Exposure] = []
        self._curves: dict[str, Ways] = {}
        self._rounds: Counter[str] = Counter()
        self._known: dict[frozenset[tuple[str, int]], float] = {frozenset(): 0.0}

    delta = property(lambda self: self._delta)
    target = property(lambda self: self._target)

    @property
    def epsilon(self) -> float:
        """Certified epsilon of everything charged so far; 0 if nothing was, infinite where there is no certificate."""
        return self._epsilon(self._rounds)

    @property
    def rounds(self) -> int:
        """Rounds charged so far."""
        return len(self._exposures)

    def charge(self, exposure: Exposure, rounds: int = 1) -> float:
        """Charge rounds that are about to be released, and return the certified epsilon of all so far.

        Raises:
            BudgetExceeded: If that would go beyond the target; nothing is charged then.
            ParameterError: If the round is not the next one, or not one of this run.
        """
        epsilon = self.after(exposure, rounds)
        if self.target is not None and not epsilon <= self.target:
            raise BudgetExceeded(f"the round would bring epsilon to {epsilon:.4g}, beyond the target {self.target:g}")
        self._rounds = self._with(exposure, rounds)
        self._exposures += [exposure] * rounds
        return epsilon

    def allows(self, exposure: Exposure, rounds: int = 1) -> bool:
        """Whether further rounds like this one keep within the target."""
        return self.target is None or self.after(exposure, rounds) <= self.target

    def after(self, exposure: Exposure, rounds: int = 1) -> float:
        """Certified epsilon if further rounds like this one took place; nothing is charged."""
        form = self._exposures[0].form if self._exposures else exposure.form
        # But for the last, why nothing is certified of it: that costs infinitely much.
        if exposure.form[:-1] != form[:-1]:
            raise ParameterError(f"exposure must have the form of this run's rounds, {form}, got {exposure.form}")
        if self._exposures and exposure.round and exposure.round != self.rounds + 1:
            raise ParameterError(f"round must be {self.rounds + 1}, the next to be charged; got {exposure.round}")
        return self._epsilon(self._with(exposure, whole("rounds", rounds, 1)))

    @property
    def guarantee(self) -> Guarantee:
        """What is certified for everything charged so far, for everybody and by budget; or why nothing is."""
        if not self._exposures:
            return Guarantee(self.epsilon, self.delta, method="nothing was released", account=self._of)
        level, method = self._exposures[0].level(self.rounds), self._exposures[0].method
        why = next((e.why_not_certified for e in self._exposures if e.why_not_certified is not None), None)
        return Guarantee(self.epsilon, self.delta, level=level, method=method, why_not_certified=why, account=self._of)

    def _of(self, budget: float) -> float:
        """Certified epsilon of a user with this budget, in the same rounds."""
        own = took_part(budget, max((float(exposure.budgets.max()) for exposure in self._exposures), default=0.0))
        personal = Accountant(self.delta, expected_rounds=self._expected, colluders=self._colluders, victim=own)
        # One of each multiset of participants, as often as it was charged.
        for name, count in self._rounds.items():
            exposure = next(e for e in self._exposures if _name(e) == name)
            personal._rounds = personal._with(exposure, count)
        return min(self.epsilon, personal.epsilon)

    def _with(self, exposure: Exposure, rounds: int) -> Counter[str]:
        """Rounds by the name of their curves, with these added."""
        name = _name(exposure)
        if name not in self._curves and exposure.why_not_certified is None:
            self._curves[name] = exposure.curves(self.delta, self._expected, self._colluders, self._victim)
        return self._rounds + Counter({name: rounds})

    def _epsilon(self, rounds: Counter[str]) -> float:
        if not rounds.keys() <= self._curves.keys():
            return math.inf
        key = frozenset(rounds.items())
        if key not in self._known:
            ways = zip(*(self._curves[name] for name in rounds), strict=True)
            self._known[key] = min(
                self._composer(way[0][1]).epsilon(
                    [(curve, uses * n) for (curve, uses), n in zip(way, rounds.values(), strict=True)]
                )
                for way in ways
            )
        return self._known[key]


def _name(exposure: Exposure) -> str:
    """Of the curves of an exposure: another form, or one without a certificate, has other curves."""
    return f"{exposure.budgets_sha256} {exposure.form}"
