"""Certified guarantees: the answer of the accountant, with what it is about."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.curve import check_delta
from apes.accounting.composition.exact import composed_epsilon
from apes.accounting.composition.gaussian import gaussian_delta
from apes.accounting.cost import MOST_ROUNDS, Cost, Personal, least
from apes.accounting.exposure import NEIGHBOURS, Exposure
from apes.accounting.lower import forced_epsilon
from apes.accounting.victims import Victims, worst_of
from apes.accounting.words import UNDER_A_SEED, meaning, upwards
from apes.checks import positive, whole, within
from apes.errors import ParameterError
from apes.mathematics.thresholds import MAX_LEVELS

FEW = 1000
"""Users from which on the exact composition of a fixed sequence gains nothing over one Gaussian."""

_MOST_USES = 10**9
# Share of delta that is set aside for what the Gaussians do not cover.
_COVER = 1e-3
_UNKNOWN = Cost(math.inf)
_UNBOUNDED = "no finite figure covers it: budgets are too large, or too few are there to hide among"


def cover_of(delta: float) -> float:
    """The part of delta that all uses together may leave uncovered."""
    return _COVER * delta


@dataclass(frozen=True)
class Guarantee:
    """A proved central guarantee, for every user of the population or for some; or the reason why there is none.

    Attributes:
        epsilon: Certified, in nats, rounded up; infinite where nothing is certified, and only there.
        delta: What it holds up to.
        neighbours: The relation: one user's data replaced by any other, the number of users public.
        level: ``coordinate``, ``user`` (all coordinates of one round) or ``rounds`` (all coordinates of all rounds).
        method: How it was proved.
        lower: What some dataset forces at the same delta: how tight epsilon is; 0 where none is known. Over many
            coordinates or rounds its own rounding is not bounded, so it is a measure, not a theorem.
        why_not_certified: Why nothing is certified; None if something is.
        cost: Gaussian shift and probability that cover everything; what `epsilon_at` and `delta_at` come from.
        is_adaptive: Which road it came by. True: it holds whoever chose, by what was released before, who took part
            and when to stop; it is the limit that was set, not what was spent. False: it holds for this sequence of
            participants, settled before the first release.
        account: Certified epsilon and cost of some of the users; see `of`. None where all have everybody's.
        budgets: Of everybody who took part: as many of each budget as were in a round together.
        whom: Whom it is about, where that is not everybody; see `of`.
        cap: The largest budget that was used: whoever has a larger one used this much.
        caveats: What it does not cover though it was made from people's data, in words; said wherever it is.
        is_seeded: Whether the noise follows from a seed. The guarantee holds only as long as that stays secret: whoever
            has it can draw the same noise and subtract it.
    """

    epsilon: float
    delta: float
    neighbours: str = NEIGHBOURS
    level: str = "rounds"
    method: str = ""
    lower: float = 0.0
    why_not_certified: str | None = None
    cost: Cost = _UNKNOWN
    is_adaptive: bool = False
    account: Callable[[Victims], Personal] | None = field(default=None, repr=False, compare=False)
    budgets: Array = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    whom: Victims | None = None
    cap: float = math.inf
    caveats: tuple[str, ...] = ()
    is_seeded: bool = False

    def __post_init__(self) -> None:
        if self.why_not_certified is None and not self.epsilon < math.inf:
            object.__setattr__(self, "why_not_certified", _UNBOUNDED)

    @property
    def mu(self) -> float:
        """The Gaussian shift that covers everything, up to ``cost.delta``."""
        return math.sqrt(self.cost.mu_squared)

    def epsilon_at(self, delta: float) -> float:
        """The same guarantee at another delta in (0, 1): epsilon, from above; infinite below the cost's delta.

        So from about a thousandth of the guarantee's own delta on, it is the whole curve.
        """
        known = self.epsilon if check_delta(delta) >= self.delta else math.inf
        return min(known, self.cost.epsilon(delta))

    def delta_at(self, epsilon: float) -> float:
        """The same guarantee at another epsilon in (0, inf): delta, from above."""
        known = self.delta if positive("epsilon", epsilon) >= self.epsilon else 1.0
        return min(known, gaussian_delta(self.mu, epsilon) + self.cost.delta)

    @property
    def road(self) -> str:
        """Which of the two roads it came by: ``adaptive`` or ``fixed sequence``."""
        return "adaptive" if self.is_adaptive else "fixed sequence"

    @property
    def condition(self) -> str | None:
        """What else has to hold, in words; None where nothing has to."""
        return UNDER_A_SEED if self.is_seeded and self.why_not_certified is None else None

    def of(self, budget: float, smallest: float | None = None) -> "Guarantee":
        """The guarantee of a user with this local budget, hidden by all the others: at most everybody's.

        It is less only where everybody keeps one budget over all rounds, as in `certify` and `apes.train`; a budget
        says nothing about a person who had another one in another round.

        Args:
            budget: Own budget of somebody who took part, in (0, largest budget], or beyond the cap if there is one. If
                nobody had just this one, what is certified holds for whoever had no more.
            smallest: Where it is about all users with budgets from this one up to ``budget``, in (0, budget].
        """
        own = min(positive("budget", budget), self.cap)
        asked = Victims(own, own if smallest is None else within("smallest", min(smallest, self.cap), 0, own))
        if self.budgets.size:
            took_part(asked, self.budgets)
        account = self.account or (lambda victims: (math.inf, _UNKNOWN))
        if self.whom is None:
            everybody = account
            account = lambda victims: least((self.epsilon, self.cost), everybody(victims))  # noqa: E731
        epsilon, cost = account(asked)
        return replace(self, epsilon=epsilon, cost=cost, lower=0.0, account=account, whom=asked)

    @property
    def _whom(self) -> str:
        """Whom it is about, in words."""
        if self.whom is None:
            return "anybody"
        low, high = self.whom.timidest, self.whom.boldest
        if not ((self.budgets >= low) & (self.budgets <= high)).any():
            return f"anybody with a budget of at most {high:g}"
        return f"anybody with a budget of {high:g}" if low == high else f"anybody with a budget in [{low:g}, {high:g}]"

    def as_dict(self, by_round: Sequence[float | None]) -> dict[str, Any]:
        """The guarantee of a run as plain values, with epsilon after each round; or why there is none."""
        why = self.why_not_certified
        epsilon = None if why else self.epsilon
        figures = {"epsilon": epsilon, "epsilon_by_round": None if why else list(by_round)}
        public = {"delta": self.delta, "neighbours": self.neighbours, "level": "user, all coordinates of all rounds"}
        said = {"road": self.road, **public, "why": why, "meaning": meaning(epsilon, self.delta)}
        said["caveats"] = list(self.caveats)
        seeded = {"seeded": self.is_seeded, "condition": self.condition}
        return {**figures, "mu": self.mu if math.isfinite(self.mu) else None, **said, **seeded}

    def __str__(self) -> str:
        if self.why_not_certified is not None:
            return f"nothing central is certified: {self.why_not_certified}"
        road = "whoever takes part" if self.is_adaptive else "for participants settled beforehand"
        return (
            f"epsilon {upwards(self.epsilon)} at delta {upwards(self.delta, 3)}, {road}: whatever the analyzer does, "
            f"what it learns about {self._whom} changes by a factor of e^{upwards(self.epsilon)} at most, unless the "
            f"shuffler colludes with it{'' if self.condition is None else f'; {self.condition}'}"
        ) + "".join(f"; but {caveat}" for caveat in self.caveats)


def certify(
    budgets: Array,
    *,
    delta: float,
    dimensions: int = 1,
    rounds: int = 1,
    levels: int | None = MAX_LEVELS,
    colluders: int = 0,
    top_b_first: int | None = None,
) -> Guarantee:
    """Certify what the shuffled reports of a population reveal about any one of its users.

    Args:
        budgets: Local budgets of those who took part, per coordinate and round, each in (0, inf).
        delta: In (0, 1); at least 1e-100 where coordinates or rounds are composed.
        dimensions: Coordinates of a report, each perturbed under the whole budget, in [1, 10^12].
        rounds: Rounds with the same participants and budgets, in [1, 1000000].
        levels: Levels of coded reports in [2, 256], or None for continuous Clip-Laplace.
        colluders: Users, apart from the victim, who tell the adversary what they reported.
        top_b_first: b, where every user sets all but b coordinates to zero before perturbing (``s-apes-first``).

    Returns:
        A guarantee for every user, whatever their budget.

    Guarantee:
        For any two datasets that differ in one user's data and any set of outcomes S of the shuffler,
        P(S) <= exp(epsilon) P'(S) + delta (docs/proofs.md).

    >>> certify([0.5] * 1000, delta=1e-6).epsilon < 0.04
    True
    """
    return certify_rounds(Exposure(budgets, dimensions, levels, top_b_first), delta, rounds, colluders)


def certify_rounds(exposure: Exposure, delta: float, rounds: int = 1, colluders: int = 0) -> Guarantee:
    """Certify rounds with the same participants: `certify`, by exposure."""
    epsilon = certified_epsilon(exposure, delta, rounds, colluders)
    lower = forced_epsilon(exposure, delta, rounds)

    def personal(victims: Victims) -> Personal:
        epsilon = certified_epsilon(exposure, delta, rounds, colluders, victims)
        return epsilon, _cost(exposure, delta, rounds, colluders, victims)

    level, method, cost = exposure.level(rounds), exposure.method, _cost(exposure, delta, rounds, colluders)
    facts = Guarantee(epsilon, delta, level=level, method=method, lower=lower, cost=cost, account=personal)
    return replace(facts, budgets=exposure.budgets)


def took_part(victims: Victims, budgets: Array) -> None:
    """Raise unless somebody who took part may be one of the victims."""
    if not victims.boldest <= (largest := float(budgets.max())):
        raise ParameterError(
            f"budget must be in (0, {largest:g}], that of somebody who took part; got {victims.boldest!r}"
        )


def certified_epsilon(
    exposure: Exposure, delta: float, rounds: int = 1, colluders: int = 0, victims: Victims | None = None
) -> float:
    """The epsilon of `certify` alone, of everybody or of some: for searches, audits and pictures."""
    if victims is None:
        return worst_of(exposure.budgets, lambda group: certified_epsilon(exposure, delta, rounds, colluders, group))
    cost = _cost(exposure, check_delta(delta), whole("rounds", rounds, 1, MOST_ROUNDS), colluders, victims)
    epsilon = min(cost.epsilon(delta), exposure.local(victims) * rounds)
    if exposure.budgets.size > FEW and max(exposure.uses) * rounds > 1:
        return epsilon
    return min(epsilon, exact_epsilon([(exposure, rounds)], delta, rounds, colluders, victims))


def exact_epsilon(
    sequence: Sequence[tuple[Exposure, int]], delta: float, expected: int, colluders: int, victims: Victims
) -> float:
    """Certified epsilon by composing curves, of rounds of one form, each as often as there were such.

    Infinite beyond a billion uses, where it would gain nothing over one Gaussian.
    """
    counts = [rounds for _, rounds in sequence]
    if sum(rounds * max(exposure.uses) for exposure, rounds in sequence) > _MOST_USES:
        return math.inf
    ways = zip(*(exposure.curves(delta, expected, colluders, victims) for exposure, _ in sequence), strict=True)
    return min(
        composed_epsilon(
            [(curve, uses * rounds) for (curve, uses), rounds in zip(way, counts, strict=True)],
            delta,
            way[0][1] * expected,
        )
        for way in ways
    )


def _cost(exposure: Exposure, delta: float, rounds: int, colluders: int, victims: Victims | None = None) -> Cost:
    delta_0 = cover_of(delta) / (rounds * max(exposure.uses))
    return exposure.cost(delta_0, colluders, victims).times(rounds)
