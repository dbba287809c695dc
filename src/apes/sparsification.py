"""Sparsification, as a plan chooses it: what users do, how the analyzer reads it, what is charged for it."""

from dataclasses import dataclass

import numpy as np

from apes.analyzer.expected import Channel, law_at_zero, padded, top_levels
from apes.client.sparsifier import DeviceSparsifier, RandomB, Threshold, TopB
from apes.codes import level_probabilities, levels_beyond
from apes.errors import ParameterError
from apes.parameters import one_of, within

_STRATEGIES = ("top-b", "random-b", "threshold")
_PADDING_EPSILON = 4.0
DEFAULT_KEEP = 0.2


@dataclass(frozen=True)
class Sparsification:
    """Which of a user's reports say something.

    Attributes:
        strategy: ``top-b`` (the b of largest size), ``random-b`` (any b) or ``threshold`` (those of size (1 - keep) C).
        keep: Fraction of reports that are kept, in (0, 1].
    """

    strategy: str
    keep: float = DEFAULT_KEEP

    def __post_init__(self) -> None:
        one_of("sparsifier", self.strategy, _STRATEGIES)
        within("keep", self.keep, 1e-6, 1)

    @property
    def why_not_certified(self) -> str | None:
        """Why no central guarantee covers it; None if one does (docs/proofs.md, 8 and 9)."""
        return "top-b looks at all of a user's coordinates at once" if self.strategy == "top-b" else None

    def coordinates_from_data(self, dimensions: int) -> int:
        """How many of a report's coordinates depend on data, given everything that was chosen without looking at it."""
        return self._kept(dimensions) if self.strategy == "random-b" else dimensions

    def sparsifier(self, dimensions: int) -> TopB | RandomB | Threshold:
        """What every user runs on reports of this many coordinates."""
        if self.strategy == "threshold":
            return Threshold(1 - self.keep, _PADDING_EPSILON)
        return (TopB if self.strategy == "top-b" else RandomB)(self._kept(dimensions))

    def on_device(self, dimensions: int) -> DeviceSparsifier:
        """What a real device runs.

        Raises:
            ParameterError: If nothing central would be certified.
        """
        chosen = self.sparsifier(dimensions)
        if isinstance(chosen, TopB):
            raise ParameterError(f"sparsifier must be one with a certificate on devices: {self.why_not_certified}")
        return chosen

    def channel(self, channel: Channel) -> Channel:
        """Law of a reported level for each input level, from the one before sparsification."""
        levels = channel.shape[0]
        if self.strategy == "threshold":
            public = law_at_zero(level_probabilities(np.array([_PADDING_EPSILON]), levels)[0])
            return padded(channel, levels_beyond(levels, 1 - self.keep).astype(np.float64), public)
        kept = top_levels(channel, self.keep) if self.strategy == "top-b" else np.full(levels, self.keep)
        return padded(channel, kept, law_at_zero(channel))

    def _kept(self, dimensions: int) -> int:
        return max(1, round(self.keep * dimensions))
