"""The shuffler's policy: what it takes and from whom. Its own file, secret for the budgets; no caller can change it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apes.accounting.composition.exact import SMALLEST_DELTA
from apes.accounting.cost import MOST_ROUNDS
from apes.checks import hex_names, positive, positive_array, whole, within
from apes.errors import ParameterError
from apes.mathematics.thresholds import MAX_LEVELS
from apes.wire.envelope import RUN_BYTES, SENDER_BYTES, TERMS_BYTES

KEY_BYTES = 32
MOST_DIMENSIONS = 2**31
"""Most coordinates of a report."""
_LARGEST_COHORT = 10_000_000


@dataclass(frozen=True)
class Limits:
    """Which budgets the shuffler takes, how many reports it needs, and who may be on the analyzer's side."""

    smallest_budget: float  # local, in (0, inf)
    largest_budget: float  # at least the smallest, finite
    # Honest senders; a round of fewer is never released; in [1, 10^7]. Each hides among the others, so 1 hides nobody.
    smallest_cohort: int
    largest_card: int = 1  # most senders that one device or silo may bring, at least 1
    # How many of a round's senders may tell the analyzer what they reported; None, as many as the largest card has.
    colluding: int | None = None

    def __post_init__(self) -> None:
        if positive("smallest_budget", self.smallest_budget) > positive("largest_budget", self.largest_budget):
            least = f"smallest_budget {self.smallest_budget!r}"
            raise ParameterError(f"largest_budget must be at least {least}, got {self.largest_budget!r}")
        # Whoever reads an invitation certifies a cohort of so many before they are asked anything.
        whole("smallest_cohort", self.smallest_cohort, 1, _LARGEST_COHORT)
        whole("largest_card", self.largest_card, 1)
        if self.colluding is None:
            object.__setattr__(self, "colluding", self.largest_card)
        whole("colluding", self.distrusted, 0)

    @property
    def distrusted(self) -> int:
        """How many senders of a round may collude with the analyzer, as a number."""
        return self.largest_card if self.colluding is None else self.colluding

    @property
    def needed(self) -> int:
        """Fewest reports of a release: the smallest cohort of honest senders, and those who may collude."""
        return self.smallest_cohort + self.distrusted

    def check_enrolled(self, senders: int) -> None:
        """Raise unless so many senders are enough for a round."""
        if senders < self.needed:
            cohort = f"smallest_cohort {self.smallest_cohort} of honest senders beside colluding {self.distrusted}"
            raise ParameterError(f"{cohort} needs at least {self.needed} senders in all, got {senders}")

    def takes(self, budgets: NDArray[np.float64]) -> bool:
        """Whether all of these budgets are taken."""
        return bool(((self.smallest_budget <= budgets) & (budgets <= self.largest_budget)).all())

    def check(self, budgets: NDArray[np.float64]) -> None:
        """Raise unless all of these budgets are taken."""
        if not self.takes(budgets):
            range_ = f"[{self.smallest_budget:g}, {self.largest_budget:g}]"
            raise ParameterError(f"budgets must be in {range_}, which is what the shuffler takes")


@dataclass(frozen=True, kw_only=True)
class Policy(Limits):
    """What the shuffler takes, and how it is charged."""

    terms: str  # digest of those that reports must be made under, 64 hexadecimal digits
    runs: tuple[str, ...]  # that may be held under it, 32 hexadecimal digits each
    rounds: int  # of a run, at least 1
    dimensions: int  # coordinates of a report, at least 1
    levels: int  # K in [2, 256]; a level is in 0 .. K - 1
    charged: int  # coordinates of a report that are charged for, in [1, dimensions]
    delta: float  # of the central guarantee, in [1e-100, 0.5]
    analyzer: str  # Ed25519 public key that announcements are signed with, 64 hexadecimal digits
    senders: tuple[str, ...]  # public keys of those who may report, 64 hexadecimal digits each
    budgets: tuple[float, ...]  # that they enrolled with, in the same order
    top_b_first: int | None = None  # b, where users keep b coordinates before perturbing
    clip: float = 1.0  # C, bound of a coordinate, in (0, inf)
    norm: float | None = None  # R, bound of an update's L2 norm in the unit of C, where there are two levels
    target_epsilon: float | None = None  # no round is released after which anybody's certified epsilon would exceed it

    def __post_init__(self) -> None:
        super().__post_init__()
        hex_names("terms", (self.terms,), TERMS_BYTES)
        hex_names("runs", self.runs, RUN_BYTES)
        whole("rounds", self.rounds, 1, MOST_ROUNDS)
        whole("dimensions", self.dimensions, 1, MOST_DIMENSIONS)
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
        hex_names("analyzer", (self.analyzer,), KEY_BYTES)
        self.check(positive_array("budgets", self.budgets))
        if len(self.budgets) != len(self.senders):
            raise ParameterError(f"budgets must be one per sender, {len(self.senders)}, got {len(self.budgets)}")
        # There may be fewer senders than a round needs: a member whose key was stolen must be dismissed at once,
        # and rounds are refused until others are admitted.

    @cached_property
    def members(self) -> dict[bytes, float]:
        """Those who may report, and the budgets that they enrolled with."""
        return dict(zip(map(bytes.fromhex, self.senders), self.budgets, strict=True))
