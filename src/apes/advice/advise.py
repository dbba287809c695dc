"""Advice: every certified way to train under a target, the best first."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from apes.advice.accuracy import measured
from apes.advice.commands import train_command
from apes.advice.question import Question
from apes.advice.reporting import BITS, FIRST, LEVELS, NAMES, Setting, noise_of_weight
from apes.advice.search import capped, crowded, shortened
from apes.advice.way import Way, groups_of
from apes.advice.words import TRUST, UNIT, reason_for, why_first
from apes.mathematics.search import Progress

KINDS = (BITS, FIRST, LEVELS)
NONE, CAP, ROUNDS, USERS = "none", "cap", "rounds", "users"
# What may bring a kind of reports within the target that is beyond it as asked.
_REMEDIES: dict[str, Callable[[Setting], Setting | None]] = {CAP: capped, ROUNDS: shortened, USERS: crowded}


@dataclass(frozen=True, eq=False)
class Advice:
    """The ways, best first: within the target with these people, then with more, then those that cost more."""

    question: Question
    ways: tuple[Way, ...]
    basis: str  # what an expected accuracy is
    unit: str = UNIT
    trust: str = TRUST

    @property
    def best(self) -> Way | None:
        """The recommended way; None if nothing keeps within the target."""
        return self.ways[0] if self.ways[0].meets_target else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        asked = self.question
        names = ("users", "rounds", "target_epsilon", "dimensions", "cap")
        question = {"budgets": asked.named, "delta": asked.central_delta} | {
            name: getattr(asked, name) for name in names
        }
        said = {"unit": self.unit, "trust": self.trust, "accuracy_is": self.basis}
        return {
            "question": question,
            "feasible": self.best is not None,
            "ways": [w.as_dict() for w in self.ways],
            **said,
        }


def advise(question: Question, progress: Progress = lambda done, total: None) -> Advice:
    """Compare every certified way to train under a question's target.

    Args:
        question: Who, how often, how much at most.
        progress: Called with how many ways were looked at, and how many there are.

    Guarantee:
        Every way's epsilon is certified for just its choices, and its command trains by just those. Accuracy is an
        expectation, from public data; nobody's data is looked at.
    """
    looked_at, lock = [0], Lock()

    def tell(more: int) -> None:
        with lock:
            looked_at[0] += more
            progress(looked_at[0], len(KINDS) * (1 + len(_REMEDIES)))

    # Certificates of bits take longest, in compiled loops: the others are found meanwhile.
    with ThreadPoolExecutor(len(KINDS)) as threads:
        found = threads.map(lambda kind: _of_kind(kind, question, tell), KINDS)
        ways = [way for of_kind in found for way in of_kind]
    return Advice(question, _ranked(ways, question), measured().basis)


def way_of(setting: Setting, change: str = NONE, asked: Question | None = None) -> Way:
    """One way with all its figures; ``asked`` is the question, where the setting is of more people."""
    question = setting.question
    guarantee, noise = setting.guarantee(), setting.noise()
    meets = guarantee.epsilon <= question.target_epsilon
    left = noise_of_weight(setting.optimizer(noise), noise) if math.isfinite(noise) else math.inf
    # A target that is kept is part of the plan: the gate of every round.
    plan = replace(setting.plan, target_epsilon=question.target_epsilon) if meets else setting.plan
    choices = {name: value for name, value in plan.as_dict().items() if value is not None}
    way = Way(
        name=NAMES[setting.kind],
        kind=setting.kind,
        framework=plan.framework,
        change=change,
        choices=choices,
        command=train_command(question, choices),
        users=question.users,
        rounds=setting.rounds,
        cap=setting.cap,
        epsilon=guarantee.epsilon,
        delta=question.central_delta,
        groups=groups_of(guarantee, question.budgets),
        noise=noise,
        noise_of_weight=left,
        accuracy=measured().expected(setting.kind, noise, setting.rounds, question.dimensions),
        meets_target=meets,
        guarantee=guarantee,
    )
    return replace(way, reason=reason_for(way, asked or question))


def _of_kind(kind: str, question: Question, tell: Callable[[int], None]) -> list[Way]:
    """A kind of reports as asked, and what would bring it within the target if it is not."""
    plain = Setting(kind, question, question.rounds, _needed(question.cap, question))
    ways = [way_of(plain)]
    tell(1)
    if ways[0].meets_target:
        tell(len(_REMEDIES))
        return ways
    for change, remedy in _REMEDIES.items():
        found = remedy(plain)
        if found is not None:
            ways.append(way_of(found, change, question))
        tell(1)
    return ways


def _needed(cap: float | None, question: Question) -> float | None:
    """A cap, if it lowers anybody's budget."""
    return cap if cap is not None and (question.budgets > cap).any() else None


def _ranked(ways: list[Way], question: Question) -> tuple[Way, ...]:
    """Best first, with the reason why the first one is."""
    table = measured()
    now = sorted((way for way in ways if way.meets_target and way.change != USERS), key=_accuracy_first)
    more = sorted((way for way in ways if way.meets_target and way.change == USERS), key=lambda way: way.users)
    beyond = sorted((way for way in ways if not way.meets_target), key=lambda way: way.epsilon)
    if now and now[0].accuracy is not None:
        # Of those that no measurement tells apart, the one that costs people least.
        most, known = now[0].accuracy, [way for way in now if way.accuracy is not None]
        alike = [way for way in known if not table.can_tell_apart(way.accuracy or 0.0, most)]
        best = min(alike, key=lambda way: way.epsilon)
        now = [best, *(way for way in now if way is not best)]
    ranked = [*now, *more, *beyond]
    if ranked[0].meets_target:
        ranked[0] = replace(ranked[0], reason=f"{why_first(ranked[0], now[1:], question, table)} {ranked[0].reason}")
    return tuple(ranked)


def _accuracy_first(way: Way) -> tuple[float, float, float]:
    """Those of expected accuracy first, the most accurate of them first; then by noise; of equals, by epsilon."""
    return -(way.accuracy if way.accuracy is not None else -1.0), way.noise_of_weight, way.epsilon
