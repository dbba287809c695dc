"""What the scores of an attack prove: error rates, and a lower bound of epsilon with a stated chance of error."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

Array = NDArray[np.float64]
CONFIDENCE = 0.999
"""Chance that every figure of an audit is right, at least."""

# The chance of error is split evenly over two levels (coordinate, user) x two directions x two error rates.
_FAILURE = (1 - CONFIDENCE) / 8
_THRESHOLDS = 400
_DRAWN = 60
_TINY = 1e-300


@dataclass(frozen=True)
class Attack:
    """How often an attack was wrong in trials that it was not tuned on, for thresholds from strict to lax."""

    trials: int  # per world
    alarms: tuple[int, ...]  # how often it took the second world for the first one, at each threshold
    misses: tuple[int, ...]  # how often it took the first world for the second one


def clopper_pearson(hits: NDArray[np.int64], trials: int, failure: float) -> tuple[Array, Array]:
    """Lower and upper bound of a probability, from independent trials; each wrong with chance ``failure`` at most."""
    # Clopper and Pearson 1934: P(Bin(n, p) >= k) = I_p(k, n - k + 1) = failure, and the same from the other side.
    lower = np.where(hits > 0, betaincinv(np.maximum(hits, 1), trials - hits + 1, failure), 0.0)
    upper = np.where(hits < trials, betaincinv(hits + 1, np.maximum(trials - hits, 1), 1 - failure), 1.0)
    return lower, upper


def audited_epsilon(one: Array, other: Array, delta: float) -> float:
    """Lower bound of epsilon from the scores of independent trials (trials, or trials x repetitions) in two worlds.

    Scores tend to be large in the first.

    Guarantee:
        For an (epsilon, delta)-private mechanism the result exceeds epsilon with probability (1 - CONFIDENCE) / 2 at
        most: thresholds are chosen on the first half of the trials, the bound comes from the second half.
    """
    return max(0.0, _one_way(one, other, delta), _one_way(-other, -one, delta))


def _one_way(likely: Array, unlikely: Array, delta: float) -> float:
    """Bound from the event that a score is at least the threshold, which is more likely in one world."""
    half = likely.shape[0] // 2
    pooled = np.sort(np.concatenate([likely[:half], unlikely[:half]], axis=None))[::-1]
    candidates = np.unique(pooled[np.geomspace(1, pooled.size, _THRESHOLDS).astype(np.int64) - 1])
    best = candidates[[np.argmax(_bounds(likely[:half], unlikely[:half], candidates, delta))]]
    return float(_bounds(likely[half:], unlikely[half:], best, delta)[0])


def _bounds(likely: Array, unlikely: Array, thresholds: Array, delta: float) -> Array:
    """Lower bound of epsilon for each threshold, from as many scores in both worlds."""
    likely, unlikely = np.sort(likely, axis=None), np.sort(unlikely, axis=None)
    hits, alarms = (scores.size - np.searchsorted(scores, thresholds) for scores in (likely, unlikely))
    return lower_bounds(hits, alarms, likely.size, delta)


def lower_bounds(hits: NDArray[np.int64], alarms: NDArray[np.int64], trials: int, delta: float) -> Array:
    """Lower bound of epsilon for each of some events; each bound alone holds with the confidence of an audit.

    P(S) <= exp(epsilon) P'(S) + delta, so epsilon >= log((P(S) - delta) / P'(S)). ``hits`` is how often each event
    occurred in the world where it is more likely, ``alarms`` how often in the other, of so many trials per world.
    """
    right, _ = clopper_pearson(hits, trials, _FAILURE)
    _, wrong = clopper_pearson(alarms, trials, _FAILURE)
    return np.asarray(np.log(np.maximum(right - delta, _TINY) / wrong))


def error_rates(one: Array, other: Array) -> Attack:
    """Errors in the second half of the trials, at thresholds that cover both ends of the scores finely."""
    half = one.shape[0] // 2
    first, second = np.sort(one[half:], axis=None), np.sort(other[half:], axis=None)
    pooled = np.sort(np.concatenate([first, second]))[::-1]
    ranks = np.geomspace(1, max(1, pooled.size // 2), _DRAWN).astype(np.int64) - 1
    thresholds = np.unique(pooled[np.concatenate([ranks, pooled.size - 1 - ranks])])[::-1]
    alarms = second.size - np.searchsorted(second, thresholds)
    misses = np.searchsorted(first, thresholds)
    return Attack(first.size, tuple(alarms.tolist()), tuple(misses.tolist()))
