"""Calibration: from a shuffled batch to an estimate of the users' mean clipped update.

Clip-Laplace reports are biased towards zero. The expected mean report F(x), were every user's update x, is known
from the public budgets; the paper inverts it. With thousands of coordinates at hand one can do better: most
coordinates carry little, and how many carry how much can be learned from the batch itself. None of it costs
privacy: it is post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apes.analyzer.expected import Response
from apes.codes import level_values
from apes.messages import Batch, CountedBatch, Estimate, SummedBatch

_SCALES = np.concatenate([[0.0], 2.0 ** np.arange(-6, 12)])
_EM_STEPS = 40


class Calibrator(Protocol):
    """Turns a batch into an estimate of the mean clipped update."""

    def estimate(self, batch: Batch) -> Estimate:
        """Estimate the mean clipped update of the users in the batch."""
        ...


def mean_report(batch: Batch, clip: float) -> NDArray[np.float64]:
    """Mean report of each coordinate, in the update's units."""
    if isinstance(batch, CountedBatch):
        counts = batch.counts
        # Integer sums are exact, so permuted and counted batches agree to the last bit.
        total = counts @ (2 * np.arange(counts.shape[1]) - (counts.shape[1] - 1))
        return np.asarray(total * (clip / (counts.shape[1] - 1) / batch.budgets.size))
    if isinstance(batch, SummedBatch):
        return batch.mean
    return np.asarray(batch.values.mean(axis=1, dtype=np.float64))


@dataclass(frozen=True)
class Unbiased:
    """For reports that are right on average (Laplace, or no noise): the mean as it is.

    Args:
        noise: Standard deviation of one user's report around the update, given the budgets.
    """

    noise: Callable[[NDArray[np.float64]], float]

    def estimate(self, batch: Batch) -> Estimate:
        """The mean report."""
        return Estimate(
            mean_report(batch, clip=1.0), self.noise(batch.budgets) / float(np.sqrt(batch.budgets.size))
        )


@dataclass(frozen=True)
class Inverse:
    """The paper's calibration: the x whose expected mean report is the one observed.

    Args:
        clip: C.
        response: Expected mean report as a function of x, from the budgets.
    """

    clip: float
    response: Callable[[NDArray[np.float64]], Response]

    def estimate(self, batch: Batch) -> Estimate:
        """Invert the expected mean report, coordinate by coordinate; outside its range, clip."""
        response = self.response(batch.budgets)
        mean = np.interp(mean_report(batch, self.clip), response.expected, response.inputs)
        error = np.sqrt(response.variance / batch.budgets.size) / response.slope
        return Estimate(mean, float(error))


@dataclass(frozen=True)
class Posterior:
    """A better one: the posterior mean of each coordinate, under a prior learned from all of them.

    The inner calibrator's estimate of a coordinate is its true mean plus nearly Gaussian noise of known size
    (thousands of users add up). Over the coordinates the true means spread like a mixture of normals of many
    widths, zero among them; its weights are fitted to the batch by expectation maximisation, and every estimate is
    replaced by its posterior mean: coordinates that are all noise go to zero, strong ones stay.

    Args:
        inner: The calibrator whose estimates are refined.
    """

    inner: Calibrator

    def estimate(self, batch: Batch) -> Estimate:
        """Refine the inner estimate by the learned prior."""
        raw = self.inner.estimate(batch)
        if raw.standard_error == 0.0:
            return raw
        return Estimate(posterior_mean(raw.mean, raw.standard_error), raw.standard_error)


def posterior_mean(values: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Posterior means of normal observations with standard deviation ``noise``, prior fitted to them."""
    spread = noise**2 * _SCALES
    total = spread + noise**2
    log_density = -0.5 * (values[:, None] ** 2 / total + np.log(total))
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weights = np.full(_SCALES.size, 1 / _SCALES.size)
    for _ in range(_EM_STEPS):
        evidence = density @ weights
        weights = weights * ((1 / evidence) @ density) / values.size
    shrink = (density @ (weights * spread / total)) / (density @ weights)
    return np.asarray(values * shrink)


def top_levels(channel: NDArray[np.float64], fraction: float) -> NDArray[np.float64]:
    """Probability that a report of each level is among the largest ``fraction`` of a user's reports.

    Most coordinates of an update are near zero, so the cut is taken where the pooled law at input 0 leaves
    ``fraction`` outside it: an approximation, which costs accuracy where it is off, never privacy.
    """
    levels = channel.shape[0]
    size = np.abs(2 * np.arange(levels) - (levels - 1))
    zero = channel[[(levels - 1) // 2, levels // 2]].mean(axis=0)
    kept = np.zeros(levels)
    left = fraction
    for magnitude in np.unique(size)[::-1]:
        at = size == magnitude
        mass = float(zero[at].sum())
        kept[at] = min(1.0, left / mass)
        left = max(0.0, left - mass)
    return kept


def levels_beyond(levels: int, threshold: float) -> NDArray[np.float64]:
    """1 for levels whose value is at least ``threshold`` times C in size, else 0."""
    return (np.abs(level_values(levels, 1.0)) >= threshold).astype(np.float64)
