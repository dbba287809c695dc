"""The accuracy to expect: measured on the embedded digits, which are public, and read off a table.

What a training learns from is the mean clipped update, plus noise whose standard error is known beforehand. So, for one
kind of reports, accuracy on given data is a function of that noise and of the number of rounds; who made the noise
(few people with large budgets, or many with small ones) does not matter. The table was made by real trainings
(``python -m benchmarks.expected_accuracy``); between its places it is interpolated, beyond them it says nothing.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from apes.errors import DataError
from apes.mathematics.arrays import F64

PATH = Path(__file__).with_name("expected_accuracy.json")


@dataclass(frozen=True, eq=False)
class Surface:
    """Accuracy of one kind of reports: of noises (ascending, per coordinate) times rounds (ascending)."""

    noises: F64
    rounds: F64
    accuracies: F64

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Surface":
        """From measured values; more noise never helps, so what chance turned round is evened out."""
        measured = np.array(plain["accuracy"])
        # The nearest that falls with noise: between the largest from above and the smallest from below.
        from_above = np.maximum.accumulate(measured[::-1], axis=0)[::-1]
        from_below = np.minimum.accumulate(measured, axis=0)
        return cls(np.array(plain["noise"]), np.array(plain["rounds"], dtype=float), (from_above + from_below) / 2)

    def at(self, noise: float, rounds: int) -> float | None:
        """Interpolated on logarithmic scales; None beyond what was measured, but for less noise, which does no harm."""
        if not (noise <= self.noises[-1] and self.rounds[0] <= rounds <= self.rounds[-1]):
            return None
        place = math.log(max(noise, self.noises[0]))
        by_rounds = [np.interp(place, np.log(self.noises), column) for column in self.accuracies.T]
        return float(np.interp(math.log(rounds), np.log(self.rounds), by_rounds))


@dataclass(frozen=True)
class Measured:
    """All that was measured, and how."""

    surfaces: dict[str, Surface]  # by kind of reports
    data: str
    dimensions: int
    error: float  # the largest difference seen from trainings that it was not made of, over the share of wrong answers
    images: int  # of every person
    loss_with_fewer: float  # the most that was lost beyond the table where people had fewer images
    baseline: float  # what always guessing the most frequent class gets right of the same test rows

    def expected(self, kind: str, noise: float, rounds: int, dimensions: int) -> float | None:
        """Accuracy of a kind of reports under noise of this standard error per coordinate, in so many rounds.

        For another number of coordinates it is read where the noise of the whole update is the same.
        """
        return self.surfaces[kind].at(noise * math.sqrt(dimensions / self.dimensions), rounds)

    def can_tell_apart(self, one: float, other: float) -> bool:
        """Whether two expected accuracies differ by more than both may be off."""
        return abs(one - other) > self.error * ((1 - one) + (1 - other))

    @property
    def basis(self) -> str:
        """What an expected accuracy is, in words."""
        return (
            f"Expected accuracy is of logistic regression on {self.data} ({self.dimensions:,} coordinates, "
            f"{self.images} images per person), which are public: read off a table of real trainings by noise and "
            f"rounds; in others that were tried, the share of wrong answers was off by up to {100 * self.error:.0f} %. "
            f"With fewer images per person up to {100 * self.loss_with_fewer:.1f} points less were seen. "
            f"Always guessing the most frequent class gets {100 * self.baseline:.1f} % right there. It compares ways; "
            "of your own data it promises nothing."
        )


@cache
def measured() -> Measured:
    """The table that comes with the package."""
    try:
        plain = json.loads(PATH.read_text(encoding="utf-8"))
        surfaces = {kind: Surface.of(one) for kind, one in plain["surfaces"].items()}
        lost = max(one["expected"] - one["seen"] for one in plain["with_fewer_images"])
        sizes = plain["dimensions"], plain["largest_error_share"], plain["images_per_person"]
        return Measured(surfaces, plain["data"], *sizes, max(lost, 0.0), float(plain["baseline"]))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"cannot read {PATH.name} of the package: install it again ({error})") from None
