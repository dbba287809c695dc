"""The accountant of a run, its gate: a filter that is asked before a release, with those who would be in it."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from threading import RLock
from typing import Any

import numpy as np

from apes.accounting import Array
from apes.accounting.composition.exact import SMALLEST_DELTA
from apes.accounting.composition.gaussian import largest_mu
from apes.accounting.cost import MOST_ROUNDS, Cost, Personal, worst
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import FEW, Guarantee, cover_of, exact_epsilon
from apes.accounting.victims import EVERYBODY, Victims, by_presence, worst_of
from apes.checks import exactly, half_open, positive, truth, unused, whole
from apes.errors import BudgetExceeded, ParameterError

_RESERVE = 100  # times the expected rounds that a filter has room for
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
        expected_rounds: About how many rounds there will be, at least 1; a hundred times as many are answered too.
        target: Largest epsilon allowed, or None.
        colluders: Users of each round who tell the adversary what they reported.
        settled: Whether who takes part in which round, and how many rounds there are, was fixed before the first
            release; by default, whether there is neither target nor limit.
        limit: What may be spent in all, in place of a target.
        keep_budgets: Whether everybody has one budget, the same in all their rounds. Only then what rounds cost people
            of one budget is what they cost a person: else, over several rounds, everybody has everybody's guarantee.

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
        settled: bool | None = None,
        limit: Cost | None = None,
        keep_budgets: bool = False,
    ) -> None:
        self._delta = half_open("delta", delta, SMALLEST_DELTA, 1)
        self._target = None if target is None else positive("target_epsilon", target)
        if target is not None:
            unused({"limit": limit}, "the target is one")
        self._limit = _checked(limit, delta) if target is None else _allowed(self.target, delta)
        self._settled = self._limit is None if settled is None else truth("settled", settled)
        self._keep_budgets = truth("keep_budgets", keep_budgets)
        self._expected = whole("expected_rounds", expected_rounds, 1, MOST_ROUNDS)
        self._colluders = whole("colluders", colluders, 0)
        self._kinds: dict[str, Exposure] = {}
        self._rounds: Counter[str] = Counter()
        self._known: dict[tuple[Victims | None, frozenset[tuple[str, int]]], float] = {}
        self._spent = Cost()
        # What is asked and what is charged belong together, on whichever threads rounds are.
        self._lock = RLock()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Accountant":
        """An accountant that has charged nothing, from `as_dict`."""
        limit = plain["limit"]
        return cls(**{**plain, "limit": None if limit is None else Cost(**limit)})

    def as_dict(self) -> dict[str, Any]:
        """What it was made of, as plain values."""
        limit = None if self.limit is None or self.target is not None else asdict(self.limit)
        names = {"delta": self.delta, "expected_rounds": self._expected, "target": self.target, "limit": limit}
        return {**names, "colluders": self._colluders, "settled": self.settled, "keep_budgets": self._keep_budgets}

    delta = property(lambda self: self._delta)
    target = property(lambda self: self._target)
    settled = property(lambda self: self._settled)
    limit = property(lambda self: self._limit)
    spent = property(lambda self: self._spent)

    @property
    def epsilon(self) -> float:
        """Epsilon of everything charged so far; 0 if nothing was, infinite where there is no certificate."""
        return self._epsilon(self._rounds, self._spent)

    @property
    def rounds(self) -> int:
        """Rounds charged so far."""
        return self._rounds.total()

    def cost(self, exposure: Exposure, victims: Victims | None = None) -> Cost:
        """What one such round costs anybody, or those victims."""
        exactly("exposure", exposure, Exposure)
        # So that all uses of all rounds stay below what is set aside. Below about 1e-16 curves are loose.
        rounds = self._expected if self.settled else _RESERVE * self._expected
        delta_0 = cover_of(self.delta) / (rounds * max(exposure.uses))
        return exposure.cost(delta_0, self._colluders, victims)

    def charge(self, exposure: Exposure, rounds: int = 1) -> float:
        """Charge rounds that are about to be released, and return the epsilon of all so far.

        Raises:
            BudgetExceeded: If that would go beyond the limit; nothing is charged then.
            ParameterError: If the round is not the next one, or not one of this run.
        """
        with self._lock:
            if not self.allows(exposure, rounds):
                beyond = "limit that was set" if self.target is None else f"target {self.target:g}"
                after = self.after(exposure, rounds)
                raise BudgetExceeded(f"the round would bring epsilon to {after:.4g}, beyond the {beyond}")
            return self.record(exposure, rounds)

    def record(self, exposure: Exposure, rounds: int = 1) -> float:
        """Charge rounds that are out already, whatever they come to."""
        with self._lock:
            epsilon = self.after(exposure, rounds)
            self._rounds, self._spent = self._with(exposure, rounds), self._spent + self.cost(exposure).times(rounds)
            return epsilon

    def allows(self, exposure: Exposure, rounds: int = 1) -> bool:
        """Whether further rounds like this one keep within the limit."""
        with self._lock:
            epsilon = self.after(exposure, rounds)
            if self.settled and self.target is not None:
                return bool(epsilon <= self.target)
            return self.limit is None or (self._spent + self.cost(exposure).times(rounds)).fits(self.limit)

    def after(self, exposure: Exposure, rounds: int = 1) -> float:
        """Epsilon of all rounds if further ones like this took place; nothing is charged."""
        cost = self.cost(exposure).times(whole("rounds", rounds, 1, MOST_ROUNDS))
        with self._lock:
            form = self._kinds[next(iter(self._rounds))].form if self._rounds else exposure.form
            # But for the last, why nothing is certified of it: that costs infinitely much.
            if exposure.form[:-1] != form[:-1]:
                raise ParameterError(f"exposure must have the form of this run's rounds, {form}, got {exposure.form}")
            if self._rounds and exposure.round and exposure.round != self.rounds + 1:
                raise ParameterError(f"round must be {self.rounds + 1}, the next to be charged; got {exposure.round}")
            whole("rounds charged in all", self.rounds + rounds, 1, MOST_ROUNDS)
            return self._epsilon(self._with(exposure, rounds), self._spent + cost)

    @property
    def guarantee(self) -> Guarantee:
        """What is certified for everything charged so far, for everybody and by budget; or why nothing is."""
        with self._lock:
            kinds = [self._kinds[name] for name in self._rounds]
            if not kinds:
                return Guarantee(0.0, self.delta, method="nothing was released", cost=Cost(), budgets=np.empty(0))
            why = next((kind.why_not_certified for kind in kinds if kind.why_not_certified is not None), None)
            epsilon, cost, account = self.epsilon, self._spent, self._account()
        if not self.settled:
            if why is None and (self.limit is None or not cost.fits(self.limit)):
                why = _UNLIMITED if self.limit is None else _BEYOND
            cost = Cost(math.inf) if why is not None or self.limit is None else self.limit
            epsilon = min(math.inf if why is not None else self.target or math.inf, cost.epsilon(self.delta))
        level, method = kinds[0].level(self.rounds), kinds[0].method
        facts = Guarantee(epsilon, self.delta, level=level, method=method, why_not_certified=why, account=account)
        return replace(facts, cost=cost, is_adaptive=not self.settled, budgets=_everybody(kinds))

    def _account(self) -> Callable[[Victims], Personal] | None:
        """What the rounds so far cost some users; None where all have what everybody has.

        Cohorts that were chosen may have hidden some better than others, and somebody whose budget changes may have
        been one of each: everybody has the limit then, or what all rounds cost whoever is hidden worst.
        """
        if not self.settled or not (self._keep_budgets or self.rounds == 1):
            return None
        rounds = list(self._rounds.items())
        budgets = [self._kinds[name].budgets for name, _ in rounds]

        def personal(victims: Victims) -> Personal:
            groups = by_presence(victims, budgets)
            return worst([self._personal(Counter(dict(rounds[k] for k in where)), some) for some, where in groups])

        return personal

    def _personal(self, rounds: Counter[str], victims: Victims) -> Personal:
        """Certified epsilon of users who took part in these rounds, and what they spent."""
        spent = Cost()
        for name, count in rounds.items():
            spent += self.cost(self._kinds[name], victims).times(count)
        return self._epsilon(rounds, spent, victims), spent

    def _with(self, exposure: Exposure, rounds: int) -> Counter[str]:
        """Rounds by the name of their curves, with these added."""
        self._kinds[name := f"{exposure.budgets_sha256} {exposure.form}"] = exposure
        return self._rounds + Counter({name: rounds})

    def _epsilon(self, rounds: Counter[str], spent: Cost, victims: Victims | None = None) -> float:
        """Epsilon of rounds: by the Gaussian that covers them; settled, by budgets too, and among few exactly."""
        epsilon, few = spent.epsilon(self.delta), any(self._kinds[name].budgets.size <= FEW for name in rounds)
        if not self.settled:
            return epsilon
        local = sum(self._kinds[name].local(victims or EVERYBODY) * count for name, count in rounds.items())
        if not (few and math.isfinite(local)):
            return min(epsilon, local)
        key = victims, frozenset(rounds.items())
        if key not in self._known:
            self._known[key] = self._exactly(rounds, victims)
        return min(epsilon, self._known[key])

    def _exactly(self, rounds: Counter[str], victims: Victims | None) -> float:
        """Epsilon of the composed curves: of the same people's rounds by whoever is hidden worst in them."""
        sequence = [(self._kinds[name], count) for name, count in rounds.items()]

        def composed(some: Victims) -> float:
            return exact_epsilon(sequence, self.delta, self._expected, self._colluders, some)

        if victims is not None or len(sequence) > 1:
            return composed(victims or EVERYBODY)
        return worst_of(sequence[0][0].budgets, composed)


def _allowed(target: float, delta: float) -> Cost:
    """What a filter for the target may spend."""
    return Cost((largest_mu(target, delta - 2 * cover_of(delta)) * (1 - 1e-8)) ** 2, cover_of(delta))


def _checked(limit: Cost | None, delta: float) -> Cost | None:
    if limit is not None and not exactly("limit", limit, Cost).delta < delta:
        raise ParameterError(f"limit must leave less than delta uncovered, in [0, {delta:g}), got {limit.delta!r}")
    return limit


def _everybody(kinds: list[Exposure]) -> Array:
    """Everybody's budgets: as many of each as were in a round together."""
    different = np.unique(np.concatenate([kind.budgets for kind in kinds]))
    counts = [np.bincount(np.searchsorted(different, kind.budgets), minlength=different.size) for kind in kinds]
    return np.repeat(different, np.max(counts, axis=0))
