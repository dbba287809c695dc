"""The shuffler's policy: what it takes and from whom. Its own file; no caller can change it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting.composition.exact import SMALLEST_DELTA
from apes.accounting.cost import MOST_ROUNDS
from apes.checks import hex_names, positive, whole, within
from apes.errors import ParameterError
from apes.mathematics.thresholds import MAX_LEVELS
from apes.wire.envelope import RUN_BYTES, SENDER_BYTES, TERMS_BYTES


@dataclass(frozen=True)
class Limits:
    """Which budgets the shuffler takes, and how many reports it needs."""

    smallest_budget: float  # local, in (0, inf)
    largest_budget: float  # at least the smallest, finite
    # Fewer are never released; at least 1. Each hides among the others present, so a cohort of 1 hides nobody.
    smallest_cohort: int

    def __post_init__(self) -> None:
        if positive("smallest_budget", self.smallest_budget) > positive("largest_budget", self.largest_budget):
            least = f"smallest_budget {self.smallest_budget!r}"
            raise ParameterError(f"largest_budget must be at least {least}, got {self.largest_budget!r}")
        whole("smallest_cohort", self.smallest_cohort, 1)

    def takes(self, budgets: NDArray[np.float64]) -> bool:
        """Whether all of these budgets are taken."""
        return bool(((self.smallest_budget <= budgets) & (budgets <= self.largest_budget)).all())

    def check(self, budgets: NDArray[np.float64]) -> None:
        """Raise unless all of these budgets are taken."""
        if not self.takes(budgets):
            range_ = f"[{self.smallest_budget:g}, {self.largest_budget:g}]"
            raise ParameterError(f"budgets must be in {range_}, which is what the shuffler takes")


@dataclass(frozen=True)
class Policy(Limits):
    """What the shuffler takes, and how it is charged."""

    terms: str  # digest of those that reports must be made under, 64 hexadecimal digits
    runs: tuple[str, ...]  # that may be held under it, 32 hexadecimal digits each
    rounds: int  # of a run, at least 1
    dimensions: int  # coordinates of a report, at least 1
    levels: int  # K in [2, 256]; a level is in 0 .. K - 1
    charged: int  # coordinates of a report that are charged for, in [1, dimensions]
    delta: float  # of the central guarantee, in [1e-100, 0.5]
    senders: tuple[str, ...]  # public keys of those who may report, 64 hexadecimal digits each; at least a cohort
    top_b_first: int | None = None  # b, where users keep b coordinates before perturbing
    clip: float = 1.0  # C, bound of a coordinate, in (0, inf)
    norm: float | None = None  # R, bound of an update's L2 norm in the unit of C, where there are two levels
    target_epsilon: float | None = None  # no round is released after which anybody's certified epsilon would exceed it

    def __post_init__(self) -> None:
        super().__post_init__()
        hex_names("terms", (self.terms,), TERMS_BYTES)
        hex_names("runs", self.runs, RUN_BYTES)
        whole("rounds", self.rounds, 1, MOST_ROUNDS)
        whole("dimensions", self.dimensions, 1, 2**31)
        whole("levels", self.levels, 2, MAX_LEVELS)
        whole("charged", self.charged, 1, self.dimensions)
        within("delta", self.delta, SMALLEST_DELTA, 0.5)
        if self.top_b_first is not None:
            whole("top_b_first", self.top_b_first, 1, self.charged)
        positive("clip", self.clip)
        if self.norm is not None:
            positive("norm", self.norm)
            whole("levels", self.levels, 2, 2)
        if self.target_epsilon is not None:
            positive("target_epsilon", self.target_epsilon)
        hex_names("senders", self.senders, SENDER_BYTES)
        whole("smallest_cohort", self.smallest_cohort, 1, len(self.senders))
