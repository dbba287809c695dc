"""The shuffler's policy: what it takes and from whom. Its own file; no caller can change it."""

from dataclasses import dataclass

from apes.checks import hex_names, positive, whole
from apes.errors import ParameterError
from apes.mathematics.thresholds import MAX_LEVELS
from apes.wire.envelope import RUN_BYTES, SENDER_BYTES, TERMS_BYTES


@dataclass(frozen=True)
class Limits:
    """Which budgets the shuffler takes, and how many reports it needs.

    Attributes:
        smallest_budget: Smallest local budget taken, in (0, inf).
        largest_budget: Largest local budget taken: at least the smallest, finite.
        smallest_cohort: Fewer reports than this are never released, at least 1; of those present, each hides among
            the others, so a cohort of 1 hides nobody.
    """

    smallest_budget: float
    largest_budget: float
    smallest_cohort: int

    def __post_init__(self) -> None:
        if positive("smallest_budget", self.smallest_budget) > positive("largest_budget", self.largest_budget):
            raise ParameterError(
                f"largest_budget must be at least smallest_budget {self.smallest_budget!r}, got {self.largest_budget!r}"
            )
        whole("smallest_cohort", self.smallest_cohort, 1)


@dataclass(frozen=True)
class Policy(Limits):
    """What the shuffler takes.

    Attributes:
        terms: Digest of the terms that reports must be made under, 64 hexadecimal digits.
        runs: The runs that may be held under it, 32 hexadecimal digits each.
        rounds: Rounds of a run, at least 1.
        dimensions: Coordinates of a report, at least 1.
        levels: K: a level is in 0 .. K - 1, K in [2, 256].
        senders: Public keys of those who may report, 64 hexadecimal digits each; at least as many as the cohort.
    """

    terms: str
    runs: tuple[str, ...]
    rounds: int
    dimensions: int
    levels: int
    senders: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        hex_names("terms", (self.terms,), TERMS_BYTES)
        hex_names("runs", self.runs, RUN_BYTES)
        whole("rounds", self.rounds, 1, 2**32 - 1)
        whole("dimensions", self.dimensions, 1, 2**31)
        whole("levels", self.levels, 2, MAX_LEVELS)
        hex_names("senders", self.senders, SENDER_BYTES)
        whole("smallest_cohort", self.smallest_cohort, 1, len(self.senders))
