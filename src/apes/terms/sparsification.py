"""Sparsification, as a plan chooses it: what users do, how the analyzer reads it, what is charged for it."""

from dataclasses import dataclass

import numpy as np

from apes.analyzer.expected import Channel, law_at_zero, padded, top_levels
from apes.checks import one_of, within
from apes.client.sparsifier import DeviceSparsifier, RandomB, Threshold, TopB
from apes.errors import ParameterError
from apes.mathematics.levels import level_probabilities, levels_beyond

# Each with the share that it keeps by default. The paper keeps a fifth; with top-b-first a twentieth of coordinates
# costs less than half a point on MNIST at the paper's budgets, or nothing (docs/reproduction.md).
_STRATEGIES = {"top-b": 0.2, "random-b": 0.2, "threshold": 0.2, "top-b-first": 0.05}
_PADDING_EPSILON = 4.0


@dataclass(frozen=True)
class Sparsification:
    """Which of a user's coordinates say something.

    Attributes:
        strategy: ``top-b`` (the b reports of largest size), ``random-b`` (any b), ``threshold`` (reports of at least
            (1 - keep) C), or ``top-b-first`` (the b coordinates of largest size, chosen before they are perturbed).
        keep: Fraction of coordinates that are kept, in (0, 1].
    """

    strategy: str
    keep: float

    def __post_init__(self) -> None:
        one_of("sparsifier", self.strategy, list(_STRATEGIES))
        within("keep", self.keep, 1e-6, 1)

    @classmethod
    def with_default(cls, strategy: str, keep: float | None) -> "Sparsification":
        """The strategy with the share to keep, or with its default."""
        return cls(strategy, _STRATEGIES.get(strategy, 1.0) if keep is None else keep)

    @property
    def why_not_certified(self) -> str | None:
        """Why no central guarantee covers it; None if one does (docs/proofs.md, 9 to 11)."""
        return "top-b looks at all of a user's coordinates at once" if self.strategy == "top-b" else None

    @property
    def pads(self) -> bool:
        """Whether reports are replaced after perturbation."""
        return self.strategy != "top-b-first"

    def charged(self, dimensions: int) -> int:
        """In how many coordinates the reports on two updates can differ, given choices that do not look at data."""
        if self.strategy == "top-b-first":
            return min(dimensions, 2 * self._kept(dimensions))
        return self._kept(dimensions) if self.strategy == "random-b" else dimensions

    def top_b_first(self, dimensions: int) -> int | None:
        """How many coordinates every user keeps before perturbing; None if the choice is made afterwards."""
        return self._kept(dimensions) if self.strategy == "top-b-first" else None

    def sparsifier(self, dimensions: int) -> TopB | RandomB | Threshold | None:
        """What becomes of every user's reports after perturbation; None if they stay as they are."""
        match self.strategy:
            case "top-b":
                return TopB(self._kept(dimensions))
            case "random-b":
                return RandomB(self._kept(dimensions))
            case "threshold":
                return Threshold(1 - self.keep, _PADDING_EPSILON)
            case _:
                return None

    def on_device(self, dimensions: int) -> DeviceSparsifier | None:
        """The same on a real device; refused if nothing central would be certified."""
        chosen = self.sparsifier(dimensions)
        if isinstance(chosen, TopB):
            raise ParameterError(f"sparsifier must be one with a certificate on devices: {self.why_not_certified}")
        return chosen

    def channel(self, channel: Channel) -> Channel:
        """Law of a reported level for each input level, from the one before sparsification."""
        levels = channel.shape[0]
        match self.strategy:
            case "top-b":
                return padded(channel, top_levels(channel, self.keep), law_at_zero(channel))
            case "random-b":
                return padded(channel, np.full(levels, self.keep), law_at_zero(channel))
            case "threshold":
                public = law_at_zero(level_probabilities(np.array([_PADDING_EPSILON]), levels)[0])
                return padded(channel, levels_beyond(levels, 1 - self.keep).astype(np.float64), public)
            case _:
                return channel

    def _kept(self, dimensions: int) -> int:
        return max(1, round(self.keep * dimensions))
