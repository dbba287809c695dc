"""The accountant of a run, its gate: a filter that is asked before a release, with those who would be in it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.curve import check_delta
from apes.accounting.composition.gaussian import largest_mu
from apes.accounting.exposure import Cost, Exposure
from apes.accounting.guarantee import FEW, Guarantee, Personal, cover_of, exact_epsilon, took_part
from apes.accounting.victims import EVERYBODY, Victims, worst_of
from apes.checks import positive, whole
from apes.errors import BudgetExceeded, ParameterError

_UNLIMITED = "who took part was chosen on the way and no target was set, and only a limit is a guarantee then"
_BEYOND = "more was released than the limit allows, and a filter that let it pass guarantees nothing"


class Accountant:
    """What releases cost any one user, charged round by round; each round may have other participants.

    In every round the victim is whoever is hidden worst, so the figure covers everybody, also those who took part in
    some rounds only. An accountant belongs to one run: rounds come in order, each once, and all have the form of the
    first.

    Guarantee:
        With a target, who takes part, when, and how many rounds there are may be chosen by what was released before:
        what is guaranteed is then the target, never what happened to be spent (docs/proofs.md, 13). What was spent is
        the guarantee only where all of that was settled beforehand.

    Args:
        delta: Of the guarantee, in [1e-100, 1).
        expected_rounds: About how many rounds there will be, at least 1; a thousand times as many are answered too.
        target: Largest epsilon allowed, or None.
        colluders: Users of each round who tell the adversary what they reported.
        victims: Those whom the figures are about, or None for everybody.
        settled: Whether who takes part in which round, and how many rounds there are, was fixed before the first
            release; by default, whether there is no target.
        limit: What may be spent in all where nothing was settled; by default what the target allows.

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
        victims: Victims | None = None,
        settled: bool | None = None,
        limit: Cost | None = None,
    ) -> None:
        self._delta = check_delta(delta)
        self._target = None if target is None else positive("target_epsilon", target)
        self.settled = target is None if settled is None else settled
        self._expected = whole("expected_rounds", expected_rounds, 1)
        self._colluders = whole("colluders", colluders, 0)
        self._victims = victims
        self.limit = limit if target is None else self._allowed(self.target or 0.0)
        self._exposures: list[Exposure] = []
        self._kinds: dict[str, Exposure] = {}
        self._rounds: Counter[str] = Counter()
        self._known: dict[frozenset[tuple[str, int]], float] = {frozenset(): 0.0}
        self.spent = Cost()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Accountant":
        """An accountant that has charged nothing, from `as_dict`."""
        limit = plain["limit"]
        return cls(**{**plain, "limit": None if limit is None else Cost(**limit)})

    def as_dict(self) -> dict[str, Any]:
        """What it was made of, as plain values."""
        limit = None if self.limit is None or self.target is not None else asdict(self.limit)
        names = {"delta": self.delta, "expected_rounds": self._expected, "target": self.target}
        return {**names, "colluders": self._colluders, "settled": self.settled, "limit": limit}

    delta = property(lambda self: self._delta)
    target = property(lambda self: self._target)

    @property
    def epsilon(self) -> float:
        """Epsilon of everything charged so far; 0 if nothing was, infinite where there is no certificate."""
        return self._epsilon(self._rounds, self.spent)

    @property
    def rounds(self) -> int:
        """Rounds charged so far."""
        return len(self._exposures)

    def cost(self, exposure: Exposure) -> Cost:
        """What one such round costs."""
        # Per use of a curve: all uses of a thousand times the expected rounds stay below what is set aside.
        delta_0 = cover_of(self.delta) / (1e3 * self._expected * max(exposure.uses))
        return exposure.cost(delta_0, self._colluders, self._victims)

    def charge(self, exposure: Exposure, rounds: int = 1) -> float:
        """Charge rounds that are about to be released, and return the epsilon of all so far.

        Raises:
            BudgetExceeded: If that would go beyond the limit; nothing is charged then.
            ParameterError: If the round is not the next one, or not one of this run.
        """
        if not self.allows(exposure, rounds):
            beyond = "limit that was set" if self.target is None else f"target {self.target:g}"
            raise BudgetExceeded(f"the round would bring epsilon to {self.after(exposure):.4g}, beyond the {beyond}")
        return self.record(exposure, rounds)

    def record(self, exposure: Exposure, rounds: int = 1) -> float:
        """Charge rounds that are out already, whatever they come to."""
        epsilon = self.after(exposure, rounds)
        self._rounds, self.spent = self._with(exposure, rounds), self.spent + self.cost(exposure).times(rounds)
        self._exposures += [exposure] * rounds
        return epsilon

    def allows(self, exposure: Exposure, rounds: int = 1) -> bool:
        """Whether further rounds like this one keep within the limit."""
        epsilon, limit = self.after(exposure, rounds), self.limit
        if limit is None:
            return True
        if self.settled:
            return self.target is None or epsilon <= self.target
        return (self.spent + self.cost(exposure).times(rounds)).fits(limit)

    def after(self, exposure: Exposure, rounds: int = 1) -> float:
        """Epsilon of all rounds if further ones like this took place; nothing is charged."""
        form = self._exposures[0].form if self._exposures else exposure.form
        # But for the last, why nothing is certified of it: that costs infinitely much.
        if exposure.form[:-1] != form[:-1]:
            raise ParameterError(f"exposure must have the form of this run's rounds, {form}, got {exposure.form}")
        if self._exposures and exposure.round and exposure.round != self.rounds + 1:
            raise ParameterError(f"round must be {self.rounds + 1}, the next to be charged; got {exposure.round}")
        cost = self.cost(exposure).times(whole("rounds", rounds, 1))
        return self._epsilon(self._with(exposure, rounds), self.spent + cost)

    @property
    def guarantee(self) -> Guarantee:
        """What is certified for everything charged so far, for everybody and by budget; or why nothing is."""
        if not self._exposures:
            return Guarantee(0.0, self.delta, method="nothing was released", account=_equally(0.0, Cost()))
        level, method = self._exposures[0].level(self.rounds), self._exposures[0].method
        why = next((e.why_not_certified for e in self._exposures if e.why_not_certified is not None), None)
        epsilon, cost = self.epsilon, self.spent
        account: Callable[[Victims], Personal] = self._of
        if not self.settled:
            if why is None and (self.limit is None or not self.spent.fits(self.limit)):
                why = _UNLIMITED if self.limit is None else _BEYOND
            cost = Cost(math.inf) if why is not None or self.limit is None else self.limit
            epsilon = min(math.inf if why is not None else self.target or math.inf, cost.epsilon(self.delta))
            # Cohorts that were chosen may have hidden some better than others: everybody has the limit.
            account = _equally(epsilon, cost)
        facts = Guarantee(epsilon, self.delta, level=level, method=method, why_not_certified=why, account=account)
        return replace(facts, cost=cost, is_adaptive=not self.settled, budgets=self._budgets())

    def _budgets(self) -> Array:
        """Everybody's: as many of each budget as were in a round together."""
        kinds = [self._kinds[name].budgets for name in self._rounds]
        different = np.unique(np.concatenate(kinds))
        counts = [np.bincount(np.searchsorted(different, budgets), minlength=different.size) for budgets in kinds]
        return np.repeat(different, np.max(counts, axis=0))

    def _of(self, victims: Victims) -> Personal:
        """Certified epsilon of some users, and what they spent, in the same rounds."""
        kinds = {name: self._kinds[name].budgets for name in self._rounds}
        took_part(victims, np.concatenate(list(kinds.values())))
        personal = Accountant(self.delta, expected_rounds=self._expected, colluders=self._colluders, victims=victims)
        # One of each multiset of participants, as often as it was charged. Somebody whose budget is known took part
        # where it is found.
        with_it = [name for name, budgets in kinds.items() if _are_there(victims, budgets)] or list(kinds)
        for name, count in self._rounds.items():
            if name not in with_it:
                continue
            personal._rounds = personal._with(self._kinds[name], count)
            personal.spent += personal.cost(self._kinds[name]).times(count)
        return min(self.epsilon, personal.epsilon), personal.spent

    def _allowed(self, target: float) -> Cost:
        """What a filter for the target may spend."""
        cover = cover_of(self.delta)
        return Cost((largest_mu(target, self.delta - 2 * cover) * (1 - 1e-8)) ** 2, cover)

    def _with(self, exposure: Exposure, rounds: int) -> Counter[str]:
        """Rounds by the name of their curves, with these added."""
        name = f"{exposure.budgets_sha256} {exposure.form}"
        self._kinds[name] = exposure
        return self._rounds + Counter({name: rounds})

    def _epsilon(self, rounds: Counter[str], spent: Cost) -> float:
        """Epsilon of rounds: by the Gaussian that covers them; settled, by budgets too, and among few exactly."""
        epsilon, few = spent.epsilon(self.delta), any(self._kinds[name].budgets.size <= FEW for name in rounds)
        if not self.settled:
            return epsilon
        local = sum(self._kinds[name].local(self._victims or EVERYBODY) * count for name, count in rounds.items())
        if not (few and math.isfinite(local)):
            return min(epsilon, local)
        key = frozenset(rounds.items())
        if key not in self._known:
            self._known[key] = self._exactly(rounds)
        return min(epsilon, self._known[key])

    def _exactly(self, rounds: Counter[str]) -> float:
        """Epsilon of the composed curves: of the same people's rounds by whoever is hidden worst in them."""
        sequence = [(self._kinds[name], count) for name, count in rounds.items()]

        def composed(victims: Victims) -> float:
            return exact_epsilon(sequence, self.delta, self._expected, self._colluders, victims)

        if self._victims is not None or len(sequence) > 1:
            return composed(self._victims or EVERYBODY)
        return worst_of(sequence[0][0].budgets, composed)


def _are_there(victims: Victims, budgets: Array) -> bool:
    return bool(((budgets >= victims.timidest) & (budgets <= victims.boldest)).any())


def _equally(epsilon: float, cost: Cost) -> Callable[[Victims], Personal]:
    return lambda victims: (epsilon, cost)
