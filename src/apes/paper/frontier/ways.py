"""The ways that the frontier compares, each at a target epsilon of the whole training.

One bit per coordinate and the trusted server are run with settings that were searched for on the data set's training
part, for both alike (`apes.paper.frontier.search`), where such a search was made. All else was fixed on the embedded
digits (docs/frontier.md), before any other data set was looked at; what spends the target is found for the budgets,
which are public.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from apes.defaults import NORM, ROUNDS
from apes.paper.frontier.search import Choices, usual_rounds
from apes.paper.frontier.tuned import choices_at, tuned
from apes.paper.parts import Part
from apes.paper.setting import PUBLISHED, Setting, training

LAW, DELTA = "uniform2", 1e-5
GRADIENTS, PIXELS = "oriented-gradients", "pixels"
# The settings' rounds are the paper's 40; ours are counted against them, so that a coarse version is coarse in all.
_PAPER_ROUNDS = 40


@dataclass(frozen=True)
class Way:
    """A way to train under a target.

    Attributes:
        title: As people read it.
        kind: Of its parts.
        choices: Fields of plan and simulation.
        rounds: How many are meant, from the target.
        finds_cap: Whether budgets are capped so that all rounds fit; else it stops where the target is reached.
        is_repeated: Whether it is run with every seed, or with the first alone.
        is_searched_for: Whether it takes settings that were searched for on the data set, where they were.
        has_own_length: Whether it is shown after all its rounds, too, whatever they cost.
    """

    title: str
    kind: str = "within-target"
    choices: Mapping[str, Any] = field(default_factory=dict)
    rounds: Callable[[float], int] = lambda target: _PAPER_ROUNDS
    finds_cap: bool = False
    is_repeated: bool = False
    is_searched_for: bool = False
    has_own_length: bool = False


def _trusted(title: str, features: str) -> Way:
    return Way(title, "trusted-server", {"features": features}, usual_rounds, is_repeated=True, is_searched_for=True)


def _one_bit(title: str, features: str) -> Way:
    """The open plan: the clip bound is found for the target, and the cap where none was searched for."""
    return Way(title, choices={"features": features}, rounds=usual_rounds, is_repeated=True, is_searched_for=True)


def _one_bit_as_it_is(title: str, features: str) -> Way:
    """What `apes train` does without options but the target: nobody looked at the data set before."""
    return Way(title, choices={"features": features}, rounds=lambda target: ROUNDS, is_repeated=True)


def _first(title: str, features: str, keep: float) -> Way:
    choices = {"framework": "s-apes-first", "features": features, "clip": 0.1, "keep": keep}
    return Way(title, choices=choices, finds_cap=True)


TRUSTED, ONE_BIT, ONE_BIT_AS_IT_IS, FIRST, APES = "trusted", "one-bit", "one-bit-as-it-is", "first", "apes"
TRUSTED_PIXELS, ONE_BIT_PIXELS, FIRST_PIXELS = "trusted-pixels", "one-bit-pixels", "first-pixels"
AS_PUBLISHED = "as-published"
WAYS: dict[str, Way] = {
    TRUSTED: _trusted("trusted server, features", GRADIENTS),
    ONE_BIT: _one_bit("one bit, features", GRADIENTS),
    ONE_BIT_AS_IT_IS: _one_bit_as_it_is("one bit, features, defaults", GRADIENTS),
    FIRST: _first("s-apes-first, features", GRADIENTS, 0.2),
    APES: Way("apes, features", choices={"features": GRADIENTS, "clip": 0.03}, finds_cap=True),
    TRUSTED_PIXELS: _trusted("trusted server, pixels", PIXELS),
    ONE_BIT_PIXELS: _one_bit("one bit, pixels", PIXELS),
    FIRST_PIXELS: _first("s-apes-first, pixels", PIXELS, 0.05),
    AS_PUBLISHED: Way("APES as published, pixels", has_own_length=True),
}


def way_parts(setting: Setting, name: str, target: float | None) -> list[Part]:
    """Runs of a way at a target, one for each seed that it is run with; without a target after all its rounds."""
    way, arguments = WAYS[name], _as_published(setting) if name == AS_PUBLISHED else _ours(setting, WAYS[name], target)
    seeds = setting.seeds if way.is_repeated else setting.seeds[:1]
    arguments |= {"delta": DELTA} | ({} if target is None else {"target_epsilon": target})
    arguments |= searched_for(setting, name, target) or {}
    return [Part(way.kind, arguments | {"seed": seed}) for seed in seeds]


def searched_for(setting: Setting, name: str, target: float | None) -> Choices | None:
    """Settings that were searched for, for this way at this target; None where there are none for runs of this size."""
    kept = tuned(setting.data)
    if kept is None or target is None or (setting.users, setting.rounds) != (kept["users"], _PAPER_ROUNDS):
        return None
    if not WAYS[name].is_searched_for or name not in kept["ways"]:
        return None
    return choices_at(kept["ways"][name]["points"], target)


def targets_of(setting: Setting, name: str) -> tuple[float | None, ...]:
    """Where a way is run: at every target, and, where it has a length of its own, without one."""
    return (*setting.targets, None) if WAYS[name].has_own_length else setting.targets


def _ours(setting: Setting, way: Way, target: float | None) -> dict[str, Any]:
    rounds = math.ceil(way.rounds(target or math.inf) * setting.rounds / _PAPER_ROUNDS)
    size = {"data": setting.data, "users": setting.users, "budgets": LAW, "rounds": rounds}
    own: dict[str, Any] = {"norm": NORM} if way.kind == "trusted-server" else {"finds_cap": way.finds_cap}
    return size | own | dict(way.choices)


def _as_published(setting: Setting) -> dict[str, Any]:
    """The authors' settings, with reports of 256 levels: continuous ones have no certificate in finite precision."""
    return training(setting, PUBLISHED, "apes", LAW, levels=256)[0].arguments | {"finds_cap": False}
