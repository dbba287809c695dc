"""How large a reproduction is: the paper's own size, or a coarse version of everything."""

from dataclasses import asdict, dataclass
from typing import Any

DIMENSIONS = 7850
"""784 x 10 weights and 10 biases."""
DELTA_S = 1e-8
"""The paper's delta of a shuffled coordinate."""
DELTA_USER = 3.6e-5
"""The paper's delta of a user."""
KEPT = 0.2
"""Share of the coordinates that S-APES keeps."""


@dataclass(frozen=True)
class Setting:
    """What is run.

    Attributes:
        data: Name of the data set.
        users: Users of a training run, and of the privacy columns.
        rounds: Rounds of a training run.
        seeds: One run for each.
        populations: Numbers of users in the figures of bounds.
        clips: Clip bounds of figure 3a.
        ratios: Kept shares b/d of figure 3b.
        sweep_rounds: Rounds of the runs of figures 3a and 3b.
        quick: Whether this is the coarse version.
    """

    data: str
    users: int = 10_000
    rounds: int = 40
    seeds: tuple[int, ...] = (1, 2, 3)
    populations: tuple[int, ...] = (1_000, 2_154, 4_642, 10_000, 21_544, 46_416, 100_000, 215_443, 464_159, 1_000_000)
    clips: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    ratios: tuple[float, ...] = (0.05, 0.1, 0.2)
    sweep_rounds: int = 20
    quick: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The setting as plain values."""
        return asdict(self)


def full(data: str) -> Setting:
    """The paper's size."""
    return Setting(data)


def quick(data: str) -> Setting:
    """A coarse version of everything, in two minutes."""
    return Setting(
        data,
        users=1_000,
        rounds=5,
        seeds=(1, 2),
        populations=(1_000, 10_000, 100_000),
        clips=(0.03, 0.1, 0.3),
        ratios=(0.05, 0.2),
        sweep_rounds=3,
        quick=True,
    )
