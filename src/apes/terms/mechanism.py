"""Mechanisms: what is done to an update before it leaves, how it is read, and whether anything is certified about it.

One object says all of it, for client, analyzer and accountant. Ours are below; a stranger's needs what `Mechanism`
asks for and nothing else.
"""

import json
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apes.analyzer.calibrator import STATISTICS, Calibrator, CodedInverse, ContinuousInverse, Unbiased
from apes.analyzer.expected import Channel, pooled_channel
from apes.checks import one_of, whole
from apes.client.foreign import Draws
from apes.client.randomizer import CodedClipLaplace, ContinuousClipLaplace, LaplaceNoise, NoNoise, Randomizer, Values
from apes.errors import ParameterError
from apes.mathematics.thresholds import MAX_LEVELS
from apes.messages import Batch, Estimate
from apes.terms.sparsification import Sparsification

CONTINUOUS = "continuous"


class Mechanism(Protocol):
    """A randomizer of a stranger's, with all that is needed to train under it.

    Contract:
        `draw` gets updates that are clipped to [-C, C] and draws all randomness from ``draws``; a report depends on
        its own user's update and budget alone. `estimate` and `standard_error` see what the analyzer sees.
        `why_not_certified` is printed wherever a central guarantee would stand: only our own mechanisms, whose curves
        are proved (docs/proofs.md), have one.
    """

    @property
    def clip(self) -> float:
        """C, bound of every coordinate, in (0, inf)."""
        ...

    @property
    def levels(self) -> int | None:
        """K in [2, 256], where reports are levels 0 .. K - 1 (uint8); None where they are float32 numbers."""
        ...

    @property
    def digest(self) -> str:
        """Text that tells this mechanism from any other: part of the terms."""
        ...

    @property
    def why_not_certified(self) -> str:
        """Why no central guarantee is certified."""
        ...

    def draw(self, updates: NDArray[np.float32], budgets: NDArray[np.float64], draws: Draws) -> Values:
        """Perturbed updates (users x coordinates)."""
        ...

    def estimate(self, batch: Batch) -> Estimate:
        """Estimate of the users' mean clipped update, from the shuffled batch."""
        ...

    def standard_error(self, budgets: NDArray[np.float64]) -> float:
        """Noise of one coordinate's estimate near zero, from the public budgets alone."""
        ...


class Reports(Protocol):
    """How the stages see a mechanism, ours or a stranger's."""

    @property
    def name(self) -> str:
        """Short name, for logs."""
        ...

    @property
    def clip(self) -> float:
        """C; infinite where nothing is clipped."""
        ...

    @property
    def levels(self) -> int | None:
        """K of coded reports, or None."""
        ...

    @property
    def digest(self) -> str:
        """Tells it from any other."""
        ...

    @property
    def why_not_certified(self) -> str | None:
        """Why no central guarantee is certified; None if one is."""
        ...

    def randomizer(self) -> Randomizer:
        """What a user runs."""
        ...

    def calibrator(self, calibration: str | None, sparsification: Sparsification | None) -> Calibrator:
        """How the analyzer reads a batch."""
        ...


class _Digest:
    """Name and fields as text."""

    name: str

    @property
    def digest(self) -> str:
        return json.dumps([self.name, asdict(self)], sort_keys=True)  # type: ignore[call-overload]


@dataclass(frozen=True)
class ClipLaplaceReports(_Digest):
    """Clip-Laplace (the paper's Definition 5 with A = C): the mechanism with a certificate.

    Attributes:
        clip: C, in (0, inf).
        levels: K in [2, 256], exact in integers; None for floating-point reports, in simulation only.
    """

    clip: float
    levels: int | None = MAX_LEVELS
    name = "clip-laplace"
    why_not_certified = None

    @classmethod
    def of(cls, clip: float, levels: int | str | None) -> "ClipLaplaceReports":
        """From the words of a plan: levels, ``continuous``, or None for 256 levels."""
        if isinstance(levels, str):
            one_of("levels", levels, (CONTINUOUS,))
            return cls(clip, None)
        return cls(clip, MAX_LEVELS if levels is None else whole("levels", levels, 2, MAX_LEVELS))

    def randomizer(self) -> Randomizer:
        """Coded or continuous."""
        return ContinuousClipLaplace(self.clip) if self.levels is None else self.coded(self.levels)

    def coded(self, levels: int) -> CodedClipLaplace:
        """The randomizer that may leave a simulation."""
        return CodedClipLaplace(self.clip, levels)

    def calibrator(self, calibration: str | None, sparsification: Sparsification | None) -> Calibrator:
        """Inverse of the expected report, or of a better statistic."""
        if calibration is not None and calibration not in STATISTICS:
            allowed = ", ".join(str(name) for name in STATISTICS if name is not None)
            raise ParameterError(f"calibration must be one of {allowed}; got {calibration!r}")
        levels = self.levels
        if levels is None:
            if calibration == "likelihood":
                raise ParameterError("calibration must be inverse for continuous reports, got 'likelihood'")
            return ContinuousInverse(self.clip)

        def channel(budgets: NDArray[np.float64]) -> Channel:
            plain = pooled_channel(budgets, levels)
            return plain if sparsification is None else sparsification.channel(plain)

        return CodedInverse(self.clip, channel, STATISTICS[calibration])


@dataclass(frozen=True)
class LaplaceReports(_Digest):
    """The Laplace mechanism of the baselines: unbounded, unbiased, in floating point."""

    clip: float
    levels = None
    name = "laplace"
    why_not_certified = "it does not use Clip-Laplace under a shuffler"

    @classmethod
    def of(cls, clip: float, levels: int | str | None) -> "LaplaceReports":
        """From the words of a plan."""
        _no_levels(levels)
        return cls(clip)

    def randomizer(self) -> Randomizer:
        """The clipped update plus noise."""
        return LaplaceNoise(self.clip)

    def calibrator(self, calibration: str | None, sparsification: Sparsification | None) -> Calibrator:
        """The mean report; its noise has scale 2C / epsilon."""
        _unbiased(calibration)
        return Unbiased(lambda budgets: 2 * self.clip * float(np.sqrt(2 * (budgets**-2.0).mean())))


@dataclass(frozen=True)
class PlainUpdates(_Digest):
    """No clipping, no noise, no privacy."""

    clip: float = float("inf")
    levels = None
    name = "none"
    why_not_certified = "it does not use Clip-Laplace under a shuffler"

    @classmethod
    def of(cls, clip: float, levels: int | str | None) -> "PlainUpdates":
        """From the words of a plan; nothing is clipped."""
        _no_levels(levels)
        return cls()

    def randomizer(self) -> Randomizer:
        """The update as it is."""
        return NoNoise()

    def calibrator(self, calibration: str | None, sparsification: Sparsification | None) -> Calibrator:
        """The mean update."""
        _unbiased(calibration)
        return Unbiased(lambda budgets: 0.0)


def _no_levels(levels: int | str | None) -> None:
    if levels is not None:
        raise ParameterError(f"levels must be left out: only Clip-Laplace reports are coded; got {levels!r}")


def _unbiased(calibration: str | None) -> None:
    if calibration is not None:
        raise ParameterError(f"calibration must be left out: these reports are unbiased; got {calibration!r}")
