"""Mechanisms: what is done to an update before it leaves, how it is read, and whether anything is certified about it.

One object says all of it, for client, analyzer and accountant. Ours are below; a stranger's needs what `Mechanism`
asks for and nothing else.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from apes.analyzer.calibrator import STATISTICS, Calibrator, CodedInverse, ContinuousInverse, Signs, Unbiased
from apes.analyzer.expected import Channel, pooled_channel
from apes.checks import one_of, unused, whole
from apes.client.foreign import Draws, ForeignRandomizer
from apes.client.one_bit import OneBit
from apes.client.randomizer import CodedClipLaplace, ContinuousClipLaplace, LaplaceNoise, NoNoise, Randomizer, Values
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
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

    @property
    def levels(self) -> int | None:
        """K in [2, 256], where reports are levels 0 .. K - 1 (uint8); None where they are float32 numbers."""

    @property
    def digest(self) -> str:
        """Text that tells this mechanism from any other: part of the terms."""

    @property
    def why_not_certified(self) -> str:
        """Why no central guarantee is certified."""

    def draw(self, updates: F32, budgets: F64, draws: Draws) -> Values:
        """Perturbed updates (users x coordinates)."""

    def estimate(self, batch: Batch) -> Estimate:
        """Estimate of the users' mean clipped update, from the shuffled batch."""

    def standard_error(self, budgets: F64) -> float:
        """Noise of one coordinate's estimate near zero, from the public budgets alone."""


@dataclass(frozen=True)
class Reports:
    """How the stages see a mechanism, ours or a stranger's. Can be pickled.

    Attributes:
        name: Short name, for logs.
        digest: Tells it from any other.
        randomizer: What a user runs.
        calibrator: How the analyzer reads a batch, under the calibration and the sparsification that were chosen.
        levels: K of coded reports, or None.
        why_not_certified: Why no central guarantee is certified; None if one is.
    """

    name: str
    digest: str
    randomizer: Randomizer
    calibrator: Callable[[str | None, Sparsification | None], Calibrator]
    levels: int | None = None
    why_not_certified: str | None = None


def clip_laplace(clip: float, levels: int | str | None, norm: float | None) -> Reports:
    """Clip-Laplace (the paper's Definition 5 with A = C), certified: on K levels, or continuous in simulation only."""
    if norm is not None:
        return _one_bit(clip, levels, norm)
    if isinstance(levels, str) and levels != CONTINUOUS:
        raise ParameterError(f"levels must be in [2, {MAX_LEVELS}] or '{CONTINUOUS}', got {levels[:20]!r}")
    K = None if isinstance(levels, str) else MAX_LEVELS if levels is None else whole("levels", levels, 2, MAX_LEVELS)
    randomizer: Randomizer = ContinuousClipLaplace(clip) if K is None else CodedClipLaplace(clip, K)
    digest = _digest("clip-laplace", clip=clip, levels=K)
    return Reports("clip-laplace", digest, randomizer, partial(_inverse, clip, K), K)


def _one_bit(clip: float, levels: int | str | None, norm: float) -> Reports:
    """Clip-Laplace on two levels, of updates within a norm."""
    if isinstance(levels, str) or (levels is not None and whole("levels", levels, 2) != OneBit.levels):
        raise ParameterError(f"levels must be {OneBit.levels} with a norm, got {levels!r}")
    digest = _digest("clip-laplace", clip=clip, levels=OneBit.levels, norm=norm)
    calibrator = partial(_only, Signs(clip), "reports of one bit are unbiased")
    return Reports("clip-laplace", digest, OneBit(clip, norm), calibrator, OneBit.levels)


def _inverse(clip: float, K: int | None, calibration: str | None, thin: Sparsification | None) -> Calibrator:
    """Inverse of the expected report, or of a better statistic."""
    if calibration is not None:
        one_of("calibration", calibration, [name for name in STATISTICS if name is not None])
    if K is None:
        if calibration == "likelihood":
            raise ParameterError("calibration must be inverse for continuous reports, got 'likelihood'")
        return ContinuousInverse(clip)

    def channel(budgets: F64) -> Channel:
        plain = pooled_channel(budgets, K)
        return plain if thin is None else thin.channel(plain)

    return CodedInverse(clip, channel, STATISTICS[calibration])


def laplace(clip: float, levels: int | str | None, norm: float | None) -> Reports:
    """The Laplace mechanism of the baselines: unbounded, unbiased, in floating point."""
    unused({"levels": levels, "norm": norm}, "only Clip-Laplace reports are coded")
    return _unbiased("laplace", LaplaceNoise(clip), partial(_laplace_error, clip))


def plain_updates(clip: float, levels: int | str | None, norm: float | None) -> Reports:
    """No clipping, no noise, no privacy."""
    unused({"levels": levels, "norm": norm}, "only Clip-Laplace reports are coded")
    return _unbiased("none", NoNoise(), _no_error)


def _unbiased(name: str, randomizer: Randomizer, error: Callable[[F64], float]) -> Reports:
    calibrator = partial(_only, Unbiased(error), "these reports are unbiased")
    why = "it does not use Clip-Laplace under a shuffler"
    return Reports(name, _digest(name, clip=randomizer.clip), randomizer, calibrator, why_not_certified=why)


def _laplace_error(clip: float, budgets: F64) -> float:
    """Of a report with noise of scale 2C / epsilon."""
    return 2 * clip * float(np.sqrt(2 * (budgets**-2.0).mean()))


def _no_error(budgets: F64) -> float:
    return 0.0


def foreign(mechanism: Mechanism) -> Reports:
    """A stranger's mechanism as our stages see it."""
    name, why = type(mechanism).__name__, mechanism.why_not_certified
    if not isinstance(why, str) or not why:
        must = "must say why no guarantee is certified: only Clip-Laplace has a proved curve here"
        raise ParameterError(f"{name}.why_not_certified {must}; got {why!r}")
    calibrator = partial(_only, mechanism, f"{name} has its own")
    return Reports(name, mechanism.digest, ForeignRandomizer(mechanism), calibrator, mechanism.levels, why)


def _only(calibrator: Calibrator, why: str, calibration: str | None, thin: Sparsification | None) -> Calibrator:
    """The one calibrator there is, where none can be chosen."""
    unused({"calibration": calibration}, why)
    return calibrator


def _digest(name: str, **choices: float | None) -> str:
    return json.dumps([name, choices], sort_keys=True, default=float)
