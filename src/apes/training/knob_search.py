"""A search among the settings of some knobs: at random first, then next to the best so far; the best are run again.

What is run, and how, is the caller's: tuning on public data (`apes.training.tuning`), and both sides of the frontier
(`apes.paper.frontier.search`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import mean

import numpy as np

# So many settings, the defaults among them, are run again with other noise, and one of them is chosen.
FINALISTS = 4
# Keeps the stream apart from those that other parts of the package derive from the same seed.
_STREAM = 0x5455_4E45


@dataclass(frozen=True)
class Knob:
    """Something to choose: factors of its default, but for what says otherwise."""

    name: str
    places: tuple[float, ...]
    default: float = 1.0


Setting = tuple[float, ...]
"""A place for every knob."""


class KnobSearch:
    """Which settings to run, one after the other, and how they did.

    Args:
        knobs: What there is to choose.
        seed: Of the search.
        fixed: Names of knobs that stay at their defaults.
        first: Settings to begin with, after the defaults.
        share_anywhere: Of the settings that are tried, the share that is over before the search stays near the best.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        seed: int,
        *,
        fixed: Sequence[str] = (),
        first: Sequence[Setting] = (),
        share_anywhere: Fraction = Fraction(2, 3),
    ) -> None:
        self._knobs = tuple(knobs)
        self.defaults: Setting = tuple(knob.default for knob in knobs)
        self._first = tuple(dict.fromkeys([self.defaults, *first]))
        self._share_anywhere = share_anywhere
        self._free = [i for i, knob in enumerate(knobs) if knob.name not in fixed]
        self._rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([_STREAM, seed])))
        self._finalists: tuple[Setting, ...] = ()
        self.found: dict[Setting, list[float]] = {}

    def settings(self, runs: int) -> Iterator[Setting]:
        """What to run; each is recorded before the next one is asked for, since that depends on how it did.

        The defaults and the best others are yielded again in the end.
        """
        times = max(1, runs // (4 * FINALISTS))
        tried = runs - times * FINALISTS
        yield from self._first[:tried]
        for number in range(len(self._first), tried):
            yield self._new(self.anywhere if number < math.floor(tried * self._share_anywhere) else self._near_best)
        others = [setting for setting in self._ranked() if setting != self.defaults]
        self._finalists = (self.defaults, *others[: FINALISTS - 1])
        for _ in range(times):
            yield from self._finalists

    def record(self, setting: Setting, accuracy: float) -> None:
        """Say how a run of a setting did."""
        self.found.setdefault(setting, []).append(accuracy)

    def times_run(self, setting: Setting) -> int:
        """How often a setting was run so far."""
        return len(self.found.get(setting, ()))

    def best(self) -> Setting:
        """The best of those that were run again in the end."""
        return max(self._finalists, key=lambda setting: mean(self.found[setting]))

    def anywhere(self) -> Setting:
        """A setting at random."""
        chosen = list(self.defaults)
        for i in self._free:
            chosen[i] = float(self._rng.choice(self._knobs[i].places))
        return tuple(chosen)

    def _near_best(self) -> Setting:
        """One or two knobs of the best setting so far, moved by one place."""
        chosen = list(self._ranked()[0])
        for i in self._rng.choice(self._free, size=min(2, len(self._free)), replace=False)[: self._rng.integers(1, 3)]:
            places = self._knobs[i].places
            at = places.index(chosen[i]) + int(self._rng.choice([-1, 1]))
            chosen[i] = places[min(max(at, 0), len(places) - 1)]
        return tuple(chosen)

    def _new(self, propose: Callable[[], Setting]) -> Setting:
        """A setting that was not run yet, if a few tries find one."""
        return next((s for s in (propose() for _ in range(20)) if s not in self.found), self.anywhere())

    def _ranked(self) -> list[Setting]:
        return sorted(self.found, key=lambda setting: -mean(self.found[setting]))


def readable(value: float) -> float:
    """Two digits are enough."""
    return float(np.format_float_positional(value, precision=2, fractional=False))
