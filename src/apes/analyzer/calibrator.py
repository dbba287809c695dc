"""Calibration: from a shuffled batch to an estimate of the users' mean clipped update.

Clip-Laplace reports are biased towards zero. What the mean of a statistic of the reports would be, were every user's
update x, is known from the public budgets: a curve that increases with x. Observing the mean, one reads x off the
curve. The paper's statistic is the report itself; the counts of a coded batch allow a better one. Neither costs
privacy: it is post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr

from apes.analyzer.expected import Channel, continuous_response, law_at_zero
from apes.errors import ParameterError, ProtocolError
from apes.mathematics.arrays import F64, I64
from apes.mathematics.compiled import compiled_reordering
from apes.mathematics.levels import level_values
from apes.messages import Batch, CountedBatch, Estimate, PermutedBatch, SummedBatch

# How far users' updates scatter around their mean, as a fraction of C: the assumption under which the likelihood
# statistic is the best one. On gradients of logistic regression anything from 0.3 to 0.5 does equally well.
SCATTER = 0.4
# Standard error of a coordinate, in units of C, above which less noise is worth more bias: on MNIST's gradients the
# mean squared errors of the two statistics meet at 0.04 to 0.05.
NOISY = 0.04
_TOO_SMALL = "budgets must be larger: under these a mean report does not change with the updates"


class Calibrator(Protocol):
    """Turns a batch into an estimate of the mean clipped update."""

    def standard_error(self, budgets: F64) -> float:
        """Noise of one coordinate's estimate near zero, from the public budgets alone."""

    def estimate(self, batch: Batch) -> Estimate:
        """Estimate the mean clipped update of the users in the batch."""


@dataclass(frozen=True)
class Unbiased:
    """For reports that are right on average (Laplace, or no noise): the mean as it is."""

    noise: Callable[[F64], float]  # standard deviation of a user's report around the update, given the budgets

    def standard_error(self, budgets: F64) -> float:
        """Noise of the mean of n reports."""
        return self.noise(budgets) / float(np.sqrt(budgets.size))

    def estimate(self, batch: Batch) -> Estimate:
        """The mean report."""
        return Estimate(mean_report(batch), self.standard_error(batch.budgets))


@dataclass(frozen=True)
class ContinuousInverse:
    """The paper's calibration of continuous reports: the x whose expected mean report is the observed one."""

    clip: float

    def standard_error(self, budgets: F64) -> float:
        """Noise of the estimate at 0."""
        return _error_at_zero(*continuous_response(budgets, self.clip), budgets.size)

    def estimate(self, batch: Batch) -> Estimate:
        """Invert the expected mean report, coordinate by coordinate; outside its range, clip."""
        inputs, expected, variance = continuous_response(batch.budgets, self.clip)
        mean = np.interp(mean_report(batch), expected, inputs)
        return Estimate(mean, _error_at_zero(inputs, expected, variance, batch.budgets.size))


@dataclass(frozen=True)
class CodedInverse:
    """Calibration of coded reports through a statistic of the levels.

    The statistic is the number psi_k that each level counts for, given the channel and the number of users: an odd,
    non-decreasing function (`STATISTICS`).
    """

    clip: float
    channel: Callable[[F64], Channel]
    statistic: Callable[[Channel, int], F64]

    def standard_error(self, budgets: F64) -> float:
        """Noise of the estimate at 0."""
        channel = self.channel(budgets)
        return self.clip * _coded_error(channel, self.statistic(channel, budgets.size), budgets.size)

    def estimate(self, batch: Batch) -> Estimate:
        """Invert the expected mean of the statistic; between levels it is linear, outside its range, clip."""
        channel = self.channel(batch.budgets)
        psi = self.statistic(channel, batch.budgets.size)
        observed = _weighted(level_counts(batch, psi.size), psi) / batch.budgets.size
        mean = np.interp(observed, channel @ psi, level_values(psi.size, self.clip))
        return Estimate(mean, self.standard_error(batch.budgets))


@dataclass(frozen=True)
class Signs:
    """For reports of one bit: user i's sign is tanh(e_i / 2) x_i / C on average, so a mean of signs needs a factor."""

    clip: float

    def standard_error(self, budgets: F64) -> float:
        """Noise of the estimate at 0, where it is largest: that of n signs."""
        return self._factor(budgets) / float(np.sqrt(budgets.size))

    def estimate(self, batch: Batch) -> Estimate:
        """The mean sign over its users' mean tanh(e / 2): unbiased if updates do not depend on budgets."""
        counts = level_counts(batch, 2)
        mean = self._factor(batch.budgets) * (counts[:, 1] - counts[:, 0]) / batch.budgets.size
        return Estimate(mean, self.standard_error(batch.budgets))

    def _factor(self, budgets: F64) -> float:
        mean = float(np.tanh(budgets / 2).mean())
        if not (mean > 0 and self.clip / mean < np.inf):
            raise ParameterError(_TOO_SMALL)
        return self.clip / mean


def report_statistic(channel: Channel, users: int = 1) -> F64:
    """The paper's statistic: the report itself, in units of C."""
    return level_values(channel.shape[0], 1.0)


def likelihood_statistic(channel: Channel, users: int = 1, scatter: float = SCATTER) -> F64:
    """Score of the likelihood of a report, for users whose updates scatter normally around their mean.

    If every user's update were the same, the score would nearly be the report's sign; the wider updates scatter, the
    more it resembles the report itself. d/dx log sum_j h(j - x) p(k | j) at x = 0, made monotone.
    """
    levels = channel.shape[0]
    values = level_values(levels, 1.0)
    edges = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    step = values[1] - values[0]
    ahead, behind = (np.diff(ndtr((edges - shift) / scatter)) for shift in (step / 2, -step / 2))
    score = ((ahead - behind) @ channel) / ((ahead + behind) @ channel)
    score = (score - score[::-1]) / 2
    half = levels // 2
    upper = np.maximum.accumulate(np.maximum(score[levels - half :], 0))
    return np.concatenate([-upper[::-1], np.zeros(levels - 2 * half), upper])


def adaptive_statistic(channel: Channel, users: int) -> F64:
    """The likelihood statistic while noise dominates, else the report itself.

    Neither curve is straight, so where users' updates scatter widely the estimate is off by a share of the mean that
    does not shrink with n; the likelihood's curve bends more. Less noise is worth that only while there is much.
    """
    report = report_statistic(channel)
    return likelihood_statistic(channel) if _coded_error(channel, report, users) > NOISY else report


STATISTICS: dict[str | None, Callable[[Channel, int], F64]] = {
    "inverse": report_statistic,
    "likelihood": likelihood_statistic,
    None: adaptive_statistic,
}


def _coded_error(channel: Channel, psi: F64, users: int) -> float:
    """Standard error of an estimate at 0 through the statistic psi, in units of C."""
    variance = float(law_at_zero(channel) @ psi**2)
    return _error_at_zero(level_values(psi.size, 1.0), channel @ psi, variance, users)


def level_counts(batch: Batch, levels: int) -> I64:
    """How often each level was reported, (coordinates, levels)."""
    if isinstance(batch, PermutedBatch) and batch.values.dtype == np.uint8:
        batch = batch.counted(levels)
    if not isinstance(batch, CountedBatch) or batch.counts.shape[1] != levels:
        raise ProtocolError(f"this plan's reports have {levels} levels; the batch does not")
    return batch.counts


@compiled_reordering
def _weighted(counts: I64, weights: F64) -> F64:
    """Sums of every coordinate's counts times the levels' weights; NumPy would make floats of all counts first."""
    out = np.empty(counts.shape[0])
    for i in range(counts.shape[0]):
        row, total = counts[i], 0.0
        for k in range(row.size):
            total += np.float64(row[k]) * weights[k]
        out[i] = total
    return out


def mean_report(batch: Batch) -> F64:
    """Mean of the users' continuous reports, coordinate by coordinate."""
    if isinstance(batch, SummedBatch):
        return batch.mean
    if isinstance(batch, PermutedBatch) and batch.values.dtype == np.float32:
        return np.asarray(batch.values.mean(axis=1, dtype=np.float64))
    raise ProtocolError("this plan's reports are continuous; the batch holds levels")


def _error_at_zero(inputs: F64, expected: F64, variance: float, users: int) -> float:
    """Standard error of the x read off a curve at 0, where its slope is taken across the centre."""
    low, high = (inputs.size - 1) // 2, inputs.size // 2
    if low == high:
        low, high = low - 1, high + 1
    slope = (expected[high] - expected[low]) / (inputs[high] - inputs[low])
    if not slope > 0:
        raise ParameterError(_TOO_SMALL)
    return float(np.sqrt(variance / users) / slope)
