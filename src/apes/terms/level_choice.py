"""The choice of levels: under one target, which coded reports estimate the mean update best.

Fewer levels take fewer bits, but reveal more under the same budget, so their budgets have to be capped lower. The noise
of an estimate is proportional to the clip bound C; what a smaller C loses is the part of updates beyond it, which
depends on the data and is not predicted here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from apes.accounting.planner import Goal, largest_cap
from apes.analyzer.calibrator import CodedInverse, adaptive_statistic
from apes.analyzer.expected import pooled_channel
from apes.checks import positive_array
from apes.mathematics.arrays import F64
from apes.mathematics.search import Progress

LEVELS = (2, 4, 16, 64, 256)
"""Numbers of levels that are compared: 1, 2, 4, 6 and 8 bits per coordinate."""


@dataclass(frozen=True)
class Offer:
    """What reports of some number of levels come to under a target."""

    levels: int
    bits: int  # per coordinate
    cap: float | None  # the largest on budgets that reaches the target, if one does
    epsilon: float | None  # certified at that cap
    error: float  # of the mean update, per coordinate and round, near 0, in units of C; infinite without a cap
    advice: str = ""  # what would make the target feasible


@dataclass(frozen=True)
class LevelChoice:
    """What a target leaves to choose from: an offer per number of levels, in increasing order."""

    offers: tuple[Offer, ...]

    @property
    def best(self) -> Offer:
        """The offer with the smallest error; of equals, the one with the fewest bits. Without a cap if none has one."""
        return min(self.offers, key=lambda offer: offer.error)

    def errors(self, clips: Sequence[float]) -> F64:
        """Standard errors (offers, clips) in the units of the updates, for clip bounds C in (0, inf)."""
        return np.multiply.outer([offer.error for offer in self.offers], positive_array("clip", clips))


def choose_levels(
    goal: Goal, progress: Progress = lambda done, total: None, levels: Sequence[int] = LEVELS
) -> LevelChoice:
    """Find for each number of levels the largest cap on budgets that reaches a goal, and the error that is left.

    >>> from apes.accounting.exposure import Exposure
    >>> goal = Goal(epsilon=1.0, delta=1e-6, rounds=1, exposure=Exposure(np.full(10_000, 3.0), 100))
    >>> choice = choose_levels(goal, levels=(64, 256))
    >>> choice.offers[0].cap < choice.offers[1].cap < 3.0
    True
    """
    offers: list[Offer] = []

    def part(done: int, total: int) -> None:
        progress(int(100 * (len(offers) + done / total) / len(levels)), 100)

    # Many levels are certified sooner than few: begun with, they show progress early.
    for K in sorted(levels, reverse=True):
        offers.append(_offer(replace(goal, exposure=replace(goal.exposure, levels=K)), K, part))
        part(0, 100)
    return LevelChoice(tuple(reversed(offers)))


def _offer(goal: Goal, K: int, progress: Progress) -> Offer:
    answer = largest_cap(goal, progress)
    bits = math.ceil(math.log2(K))
    if answer.value is None:
        return Offer(K, bits, None, None, math.inf, answer.advice)
    error = standard_error(np.minimum(goal.exposure.budgets, answer.value), K)
    return Offer(K, bits, answer.value, answer.epsilon, error)


def standard_error(budgets: F64, levels: int) -> float:
    """Standard error of the default calibration's estimate of the mean update, in units of C.

    Per coordinate and round, where the updates are near 0, from the law of the reports; it falls like 1 / sqrt(n).
    """
    return CodedInverse(1.0, lambda e: pooled_channel(e, levels), adaptive_statistic).standard_error(budgets)
