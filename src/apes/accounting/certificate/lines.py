"""Lines above the tails of a sum of other users' bits, whatever their data: one more user at a time.

W is a sum of independent bits, T_k = P(W >= k); each user is a one with a probability in [q_i, 1 - q_i]. beta(l) is the
largest T_{k-1} - l T_k over all k and all such probabilities: T_{k-1} <= l T_k + beta(l). It is convex, decreasing, at
most 1, and beta(l) = 1 - l + l beta(1/l).

With one user more, a one with probability p, q = 1 - p, beta'(l) <= c beta(a) + p beta(b) for any slopes a, b >= 0
and c >= 0 with a c <= l q and c >= q + p b - l p; the larger one of the user's two ends counts (docs/proofs.md, 15). A
table of beta on a grid of slopes >= 1 is carried along, read between its points along chords, which lie above a convex
function. All terms are positive, so that rounding is relative.
"""

import math
from dataclasses import dataclass

import numpy as np

from apes.accounting import Array
from apes.accounting.composition.lattice import UNIT
from apes.mathematics.arrays import U32
from apes.mathematics.compiled import compiled

# So many users are put in by trying all their ends.
_TRIED = 9
# Slopes: even steps of _STEP / Var W up to _REACH standard deviations, then each longer by _LONGER, up to exp(_FAR).
# Chords widen the Gaussian by a third of _STEP^2: 0.3 %, and 1 % at 30,000 users, where Var W is beyond _LARGE.
_STEP, _REACH, _LONGER, _FAR = 0.1, 9.5, 1.06, 40.0
_LARGE = 2500.0
# A new grid when Var W has grown by so much, new chords when it has grown by so much.
_NEW_GRID, _NEW_CHORDS = 2.0, 1.03
# b / a = exp(-f / Var W), f = 1 where W is nearly Gaussian; for small variances several are tried.
_FACTORS, _SMALL = (0.1, 0.3, 0.6, 0.8, 1.0, 1.2, 1.6, 2.4, 4.0), 24.0
# Beta counts as no less than this: smaller numbers would become subnormal, which takes ten times as long.
_LEAST = 1e-250
# A step is a dozen operations on numbers of one sign, each off by a unit.
_UNITS = 24


@dataclass(frozen=True, eq=False)
class Lines:
    """Beta from above, at slopes 1 = l_0 < l_1 < ..."""

    slopes: Array
    beta: Array

    def at(self, slope: float) -> float:
        """Beta at a slope >= 1, from above; a smaller one counts as 1."""
        return float(read(max(slope, 1.0), self.slopes, self.beta)) * (1 + _UNITS * UNIT)


def lines_above(flips: Array) -> Lines:
    """The lines of users with these q_i, in [1e-9, 1/2], descending; there may be none."""
    variances = np.cumsum(flips * (1 - flips))
    done = min(_TRIED, flips.size)
    slopes = _grid(float(variances[done - 1]) if done else 0.0)
    beta = _all_ends(flips[:done], slopes)
    while done < flips.size:
        # The users until the next grid; this one suits the last of them.
        end = done + 1 + int(np.searchsorted(variances[done + 1 :], _NEW_GRID * variances[done]))
        finer = _grid(float(variances[end - 1]))
        beta = np.array([read(slope, slopes, beta) for slope in finer.tolist()])
        slopes = finer
        beta = _advanced(Lines(slopes, beta), flips[done:end], flips[:done])
        done = end
    return Lines(slopes, beta * (1 + 2 * _UNITS * UNIT * (flips.size + 100)))


def _grid(variance: float) -> Array:
    """Slopes from 1 on, even where the standard deviations of W are, then sparser and sparser."""
    variance = max(variance, 0.5)
    step, reach = _STEP / variance * math.sqrt(max(variance / _LARGE, 1.0)), _REACH / math.sqrt(variance)
    even = 1 + step * np.arange(math.ceil(reach / step))
    growing = step * _LONGER ** np.arange(math.ceil(math.log(math.exp(_FAR) / step) / math.log(_LONGER)))
    return np.concatenate([even, even[-1] + np.cumsum(growing)])


def _all_ends(flips: Array, slopes: Array) -> Array:
    """Beta of a few users: the largest T_{k-1} - l T_k over all their ends and all k."""
    laws = np.ones((1, 1))
    for flip in flips.tolist():
        zero, one = np.pad(laws, ((0, 0), (0, 1))), np.pad(laws, ((0, 0), (1, 0)))
        laws = np.concatenate([flip * one + (1 - flip) * zero, flip * zero + (1 - flip) * one])
    tails = np.cumsum(laws[:, ::-1], axis=1)[:, ::-1]
    above = tails.ravel()
    below = np.pad(tails[:, 1:], ((0, 0), (0, 1))).ravel()
    return _largest(above * (1 + 4 * _UNITS * UNIT), below * (1 - 4 * _UNITS * UNIT), slopes)


@compiled
def _largest(above: Array, below: Array, slopes: Array) -> Array:
    beta = np.zeros(slopes.size)
    for i in range(slopes.size):
        for k in range(above.size):
            beta[i] = max(beta[i], above[k] - slopes[i] * below[k])
    return beta


def _advanced(lines: Lines, flips: Array, before: Array) -> Array:
    """Beta with these users more, after those ``before``."""
    slopes, beta = lines.slopes, lines.beta
    # The variance of W tilted to where a slope matters, all ones being the users' likelier bit.
    tilted = np.zeros(slopes.size)
    for flip, count in zip(*np.unique(before, return_counts=True), strict=True):
        tilted += count * tilted_variance(flip, slopes)
    start = 0
    while start < flips.size:
        same = int(np.searchsorted(-flips, -flips[start], side="right")) - start
        grown = math.ceil((_NEW_CHORDS - 1) * tilted[0] / (flips[start] * (1 - flips[start])))
        end = start + min(same, grown)
        factors = np.array(_FACTORS if tilted[0] < _SMALL else (1.0,))
        chords = _chords(slopes, flips[start], np.exp(-np.minimum(factors[:, None] / tilted, 30.0)))
        for _ in range(end - start):
            beta = _step(beta, *chords)
        tilted += (end - start) * tilted_variance(flips[start], slopes)
        start = end
    return beta


def tilted_variance(flip: float, slopes: Array) -> Array:
    """Variance of a bit that is a one with probability 1 - flip, times a slope."""
    return flip * (1 - flip) * slopes / (flip + (1 - flip) * slopes) ** 2


@compiled
def _chords(slopes: Array, flip: float, ratios: Array) -> tuple[U32, Array]:
    """Where a step reads the table and with what weights: [end, ratio b / a, which, slope].

    a solves p k a^2 + (q - l p) a - l q = 0, k = b / a. Then c = l q / a, from below, and b = l - (q - c) / p, from
    below: both conditions hold for the numbers as they are, however well a solves its equation.
    """
    n = slopes.size
    places = np.empty((2, ratios.shape[0], 2, n), np.uint32)
    weights = np.empty((2, ratios.shape[0], 5, n))
    for end in range(2):
        p, q = (flip, 1 - flip) if end == 0 else (1 - flip, flip)
        for j in range(ratios.shape[0]):
            place, weight = places[end, j], weights[end, j]
            for i in range(n):
                slope, half = slopes[i], (q - slopes[i] * p) / 2
                root = math.sqrt(half * half + p * ratios[j, i] * slope * q)
                a = slope * q / (half + root) if half > 0 else (root - half) / (p * ratios[j, i])
                a = max(a, slope)
                c = slope * q / a * (1 - 8 * UNIT)
                b = slope - (q - c) / p - 16 * UNIT * (slope + q / p)
                if b <= 0:
                    # Lost in rounding: a = b = l, c = q always do.
                    a, b, c = slope, slope, q
                place[0, i], left, right = _place(a, slopes)
                weight[0, i], weight[1, i] = c * left, c * right
                # beta(b) = 1 - b + b beta(1/b) for b < 1, with a 1/b that is larger by a hair.
                turned = b if b >= 1 else (1 + 4 * UNIT) / b
                share = p if b >= 1 else p / turned
                place[1, i], left, right = _place(turned, slopes)
                weight[2, i], weight[3, i] = share * left, share * right
                weight[4, i] = 0.0 if b >= 1 else p * ((turned - 1) / turned)
    return places, weights


@compiled
def _place(slope: float, slopes: Array) -> tuple[int, float, float]:
    """The chord over a slope >= 1: its left end's index, and both ends' weights; beyond the grid its last value."""
    last = slopes.size - 1
    if slope >= slopes[last]:
        return last - 1, 0.0, 1.0
    # Right in the even part, or nearly.
    steps = (slope - 1) / (slopes[1] - 1)
    place = int(steps) if steps < last else last - 1
    if slopes[place] > slope or slopes[place + 1] < slope:
        place = int(np.searchsorted(slopes, slope)) - 1
    width = slopes[place + 1] - slopes[place]
    return place, (slopes[place + 1] - slope) / width, (slope - slopes[place]) / width


@compiled
def read(slope: float, slopes: Array, beta: Array) -> float:
    """Beta at a slope >= 1, along the chord."""
    place, left, right = _place(slope, slopes)
    return float(left * beta[place] + right * beta[place + 1])


@compiled
def _step(beta: Array, places: U32, weights: Array) -> Array:
    """Beta with one user more: the least over the ratios, the larger one of the two ends."""
    after, least = np.full(beta.size, _LEAST), np.empty(beta.size)
    for end in range(2):
        least[:] = 1.0
        for j in range(places.shape[1]):
            a, b = places[end, j, 0], places[end, j, 1]
            w0, w1, w2, w3, w4 = weights[end, j]
            for i in range(beta.size):
                value = (
                    w0[i] * beta[a[i]] + w1[i] * beta[a[i] + 1] + w2[i] * beta[b[i]] + w3[i] * beta[b[i] + 1] + w4[i]
                )
                least[i] = min(least[i], value)
        for i in range(beta.size):
            after[i] = max(after[i], least[i])
    return after
