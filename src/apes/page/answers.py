"""Answers to a setting, in parts: the figure that is dragged for first, what takes longer after it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from apes.accounting.account import local_figures, published_figures
from apes.accounting.guarantee import certified_epsilon
from apes.accounting.lower import forced_epsilon
from apes.accounting.victims import Victims
from apes.accounting.words import meaning
from apes.errors import ParameterError
from apes.mathematics.arrays import F64
from apes.page.advising import accuracy
from apes.page.copies import copies
from apes.page.estimate import about
from apes.page.setting import Setting
from apes.page.words import sentence, trusted

Part = dict[str, Any]
# Delta at which published bounds per coordinate are compared, as in `apes account`.
_DELTA_S = 1e-8
_MOST_GROUPS = 8
# Where curves are looked at; few enough to be there soon, and the same ones for whoever drags along them.
_ROUNDS = (1, 3, 10, 30, 100, 300, 1000)
# Among fewer than these, curves are composed exactly, which takes longer; one bit takes longest at some 30,000.
_USERS = (2_000, 5_000, 10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)


def parts(setting: Setting) -> Iterator[tuple[str, Callable[[], Part]]]:
    """Names of the parts and what makes each: an estimate at once, then the proof, then the rest."""
    yield "about", lambda: outline(setting)
    yield "total", lambda: total(setting)
    yield "lower", lambda: {"lower": forced(setting)}
    for number, (budget, smallest, users) in enumerate(groups(setting)):
        yield "group", lambda ends=(number, budget, smallest, users): group(setting, *ends)  # type: ignore[misc]
    for rounds in _with(_ROUNDS, setting.rounds):
        yield "curve", lambda rounds=rounds: point(replace(setting, rounds=rounds), "rounds")  # type: ignore[misc]
    for users in _with(_USERS, setting.users):
        yield "curve", lambda users=users: point(setting.with_users(users), "users")  # type: ignore[misc]
    yield "published", lambda: {"published": published(setting), "delta_s": _DELTA_S}


def _with(places: tuple[int, ...], own: int) -> list[int]:
    """Places in order, the setting's own among them."""
    return sorted({*places, own})


def outline(setting: Setting) -> Part:
    """What takes a moment: an estimate of epsilon, noise, who is who, and the setting to take away."""
    return {
        "about": _finite(about(setting.exposure, setting.delta, setting.rounds)),
        "trusted": trusted(setting, _local(setting)),
        "accuracy": accuracy(setting, noise(setting)),
        "noise": noise(setting),
        "users": setting.users,
        "rounds": setting.rounds,
        "budgets": [{"budget": budget, "smallest": low, "users": users} for budget, low, users in groups(setting)],
        "copies": copies(setting),
    }


def total(setting: Setting) -> Part:
    """What everybody is guaranteed, in figures and words."""
    epsilon = certified(setting)
    said = {"meaning": meaning(epsilon, setting.delta), "sentence": sentence(epsilon, setting.delta)}
    return {"epsilon": _finite(epsilon), "delta": setting.delta, **said}


# Figures are small, and whoever drags to and fro asks again.
@lru_cache(maxsize=4096)
def certified(setting: Setting, boldest: float | None = None, smallest: float = 0.0) -> float:
    """Certified epsilon of everybody, or of those with budgets up to the boldest's; infinite where there is none."""
    if boldest is None:
        return certified_epsilon(setting.exposure, setting.delta, setting.rounds)
    victims = Victims(boldest, smallest)
    own = certified_epsilon(setting.exposure, setting.delta, setting.rounds, victims=victims)
    return min(certified(setting), own)


@lru_cache(maxsize=1024)
def forced(setting: Setting, budget: float | None = None) -> float:
    """What no proof can come below for somebody with this budget, by default the largest; 0 where nothing is known."""
    return forced_epsilon(setting.exposure, setting.delta, setting.rounds, budget)


@lru_cache(maxsize=256)
def noise(setting: Setting) -> float | None:
    """Standard error of a coordinate's mean update, per round, in the unit of the clip bound; None if without bound."""
    try:
        return _finite(setting.terms.calibrator().standard_error(setting.exposure.budgets))
    except ParameterError:
        # Budgets so small that reports say nothing.
        return None


@lru_cache(maxsize=64)
def published(setting: Setting) -> dict[str, float | None]:
    """What the literature would claim: no guarantees."""
    found = published_figures(setting.exposure.budgets, _DELTA_S, setting.dimensions)
    return {name: None if value is None else _finite(value) for name, value in found.items()}


def groups(setting: Setting) -> list[tuple[float, float, int]]:
    """At most eight groups of people by the budgets that they use: the largest, the smallest, how many."""
    return _grouped(replace(setting, rounds=1, delta=1e-6))


@lru_cache(maxsize=16)
def _grouped(setting: Setting) -> list[tuple[float, float, int]]:
    different, counts = setting.exposure.crowd
    last = np.arange(different.size)
    if different.size > _MOST_GROUPS:
        share = np.searchsorted(np.cumsum(counts), setting.users * np.arange(1, _MOST_GROUPS + 1) / _MOST_GROUPS)
        last = np.unique(np.append(share, different.size - 1))
    sizes, first = np.diff(np.cumsum(counts)[last], prepend=0), np.append(0, last[:-1] + 1)
    ends = (different[last].tolist(), different[first].tolist(), sizes.tolist())
    return [(high, low, users) for high, low, users in zip(*ends, strict=True)]


# parameters: a group is its number, its ends and its size.
def group(setting: Setting, number: int, budget: float, smallest: float, users: int) -> Part:
    """What the people of one group are guaranteed."""
    epsilon = certified(setting, budget, smallest)
    figures = {"number_of_group": number, "budget": budget, "smallest": smallest, "users": users}
    said = {"epsilon": _finite(epsilon), "meaning": meaning(epsilon, setting.delta)}
    return {**figures, **said, "lower": min(forced(setting, budget), epsilon)}


def point(setting: Setting, along: str) -> Part:
    """One point of a curve of epsilon."""
    return {"along": along, "place": getattr(setting, along), "epsilon": _finite(certified(setting))}


def _local(setting: Setting) -> dict[str, float]:
    different: F64 = setting.exposure.crowd[0]
    return local_figures(setting.exposure, float(different[-1]), setting.delta)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
