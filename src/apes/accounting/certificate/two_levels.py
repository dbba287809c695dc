"""The curve of one bit among other users' bits, without a blanket: reports on two levels (docs/proofs.md).

W is the number of ones among the others, T_k = P(W >= k). A line (l, b) is valid if T_{k-1} <= l T_k + b for all k
and whatever the others' data; the least such b at a slope l > 0, beta(l), is all that is needed: for a victim of
budget e the divergence at exp(t) is at most A beta(D / A), pi = 1 / (1 + exp(-e)), A = pi - exp(t) (1 - pi),
D = exp(t) pi - (1 - pi). beta is convex, decreasing, at most 1, and beta(l) = 1 - l + l beta(1/l).

With one user more, a one with probability p, q = 1 - p, beta'(l) <= c beta(a) + p beta(b) for any slopes a, b >= 0
and c >= 0 with a c <= l q and c >= q + p b - l p; the larger one of the user's two ends counts. User by user a table
of beta on a grid of slopes >= 1 is carried along, read between its points along chords, which lie above a convex
function. All terms are positive, so that rounding is relative.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.curve import PrivacyCurve, hiding_curve, table_error
from apes.accounting.composition.lattice import UNIT
from apes.mathematics.arrays import U32
from apes.mathematics.compiled import compiled
from apes.mathematics.search import bisect

# More users than this are hidden by a blanket instead: the table costs n^(3/2).
MOST_USERS = 30_000
# Whoever reports more openly hides nobody: a flip once in 10^8 reports.
_OPEN = 18.0
# Different budgets among the others; each is raised to the next one.
_GROUPS = 64
# So many users are put in by trying all their ends.
_TRIED = 9
# Slopes: even steps of _STEP / Var W, longer ones from _LARGE on (1 % of the Gaussian's width at 30,000 users), up to _REACH standard deviations, then longer and longer ones, up to exp(_FAR).
_STEP, _REACH, _LONGER, _FAR = 0.1, 9.5, 1.06, 40.0
_LARGE = 2500.0
# A new grid when Var W has grown by so much, new chords when it has grown by so much.
_NEW_GRID, _NEW_CHORDS = 2.0, 1.03
# b / a = exp(-f / Var W), f = 1 where W is nearly Gaussian; for small variances several are tried.
_FACTORS, _SMALL = (0.3, 0.6, 0.8, 1.0, 1.2, 1.6, 2.4, 4.0), 24.0
# A step is a dozen operations on numbers of one sign, each off by a unit.
_UNITS = 24


@dataclass(frozen=True, eq=False)
class TwoLevelCurve:
    """delta as a function of t for a victim's bit among others': an upper bound of the true divergence."""

    budget: float
    # beta at slopes 1 = l_0 < l_1 < ...
    slopes: Array
    beta: Array

    def delta(self, t: float, cells: int | None = None) -> float:
        """Upper bound of the hockey-stick divergence at exp(t), t of either sign; ``cells`` is not needed here."""
        if t < 0:
            # The two ends mirror each other: delta(-t) = 1 - exp(-t) + exp(-t) delta(t).
            return min(1.0, -math.expm1(t) + math.exp(t) * self.delta(-t))
        if t >= self.budget:
            return 0.0
        budget = float(_realised(np.array([self.budget]))[0])
        pi = 1 / (1 + math.exp(-budget))
        ahead = -math.expm1(t - budget)
        # A = pi ahead. A larger slope would do no harm where exp(t) overflows.
        slope = math.exp(min(t, 300.0)) * -math.expm1(-budget - t) / ahead
        return min(1.0, pi * ahead * self._beta(slope * (1 - 8 * UNIT)) * (1 + 32 * UNIT) + 1e-300)

    def epsilon(self, delta: float, cells: int | None = None) -> float:
        """Smallest t found with delta(t) <= delta: the safe end of a bisection, at most the local budget."""
        if self.delta(0.0) <= delta:
            return 0.0
        return bisect(lambda t: self.delta(t) <= delta, 0.0, self.budget, steps=60, tolerance=1e-6, from_zero=0.25)

    def _beta(self, slope: float) -> float:
        return float(_read(max(slope, 1.0), self.slopes, self.beta))


def two_level_curve(budget: float, others: Array, delta: float) -> PrivacyCurve:
    """The curve of a victim among other honest users (there may be none), all reporting one bit per coordinate.

    Guarantee:
        For neighbours by replacement and whatever the data of the others. The others' budgets alone make the table,
        which is kept: curves for many victims cost little more than one.

    Beyond MOST_USERS others this is `hiding_curve` for two levels, good at ``delta`` in (0, 1): its Gaussian is wider
    by sqrt(mean(1 - tau^2) / mean(1 - tau)), tau = tanh(e_i / 2), which is 10 % for budgets even on [0.05, 1].
    """
    if others.size > MOST_USERS:
        return hiding_curve(budget, others, delta, 2)
    helpful = np.sort(_realised(others))
    slopes, beta = _table(helpful[helpful < _OPEN].tobytes())
    return TwoLevelCurve(budget, slopes, beta)


def _realised(budgets: Array) -> Array:
    """Budgets whose reports, on randomised inputs, are those of the coded mechanism, off by 1 + eta at most."""
    eta = np.array([table_error(e) for e in budgets.tolist()])
    return np.asarray(budgets + 4 * eta)


@lru_cache(maxsize=64)
def _table(ordered: bytes) -> tuple[Array, Array]:
    """Slopes, and beta from above, for others with these budgets (float64, ascending)."""
    budgets = _raised(np.frombuffer(ordered))
    # The smaller probability of a bit, from below: exactly that of a budget larger by a hair.
    flips = (1 - 8 * UNIT) / (1 + np.exp(budgets))
    variances = np.cumsum(flips * (1 - flips))
    done = min(_TRIED, flips.size)
    slopes = _grid(float(variances[done - 1]) if done else 0.0)
    beta = _all_ends(flips[:done], slopes)
    while done < flips.size:
        # The users until the next grid; this one suits the last of them.
        end = done + 1 + int(np.searchsorted(variances[done + 1 :], _NEW_GRID * variances[done]))
        finer = _grid(float(variances[end - 1]))
        beta = np.array([_read(slope, slopes, beta) for slope in finer.tolist()])
        slopes = finer
        beta = _advanced(beta, slopes, flips[done:end], flips[:done])
        done = end
    return slopes, beta * (1 + 2 * _UNITS * UNIT * (flips.size + 100))


def _raised(budgets: Array) -> Array:
    """At most _GROUPS different budgets, none below the original (ascending): a larger one hides less."""
    last = np.unique(np.linspace(0, budgets.size - 1, min(_GROUPS, budgets.size)).astype(np.int64))
    return budgets[last[np.searchsorted(last, np.arange(budgets.size))]]


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
    return _largest(above * (1 + _UNITS * UNIT), below * (1 - _UNITS * UNIT), slopes)


@compiled
def _largest(above: Array, below: Array, slopes: Array) -> Array:
    beta = np.zeros(slopes.size)
    for i in range(slopes.size):
        for k in range(above.size):
            beta[i] = max(beta[i], above[k] - slopes[i] * below[k])
    return beta


def _advanced(beta: Array, slopes: Array, flips: Array, before: Array) -> Array:
    """Beta with these users more, after those ``before``."""
    # The variance of W tilted to where a slope matters, all ones being the users' likelier bit.
    tilted = sum((count * _tilted(flip, slopes) for flip, count in zip(*np.unique(before, return_counts=True))))
    start = 0
    while start < flips.size:
        same = np.searchsorted(-flips, -flips[start], side="right") - start
        grown = math.ceil((_NEW_CHORDS - 1) * tilted[0] / (flips[start] * (1 - flips[start])))
        end = start + min(same, grown)
        factors = np.array(_FACTORS if tilted[0] < _SMALL else (1.0,))
        chords = _chords(slopes, flips[start], np.exp(-np.minimum(factors[:, None] / tilted, 30.0)))
        for _ in range(end - start):
            beta = _step(beta, *chords)
        tilted = tilted + (end - start) * _tilted(flips[start], slopes)
        start = end
    return beta


def _tilted(flip: float, slopes: Array) -> Array:
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
                b = max(slope - (q - c) / p - 16 * UNIT * (slope + q / p), 0.0)
                place[0, i], left, right = _place(a, slopes)
                weight[0, i], weight[1, i] = c * left, c * right
                # beta(b) = 1 - b + b beta(1/b) for b < 1, with a 1/b that is larger by a hair.
                turned = b if b >= 1 else (1 + 4 * UNIT) / max(b, 1e-300)
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
    place = min(int((slope - 1) / (slopes[1] - 1)), last - 1)
    if slopes[place] > slope or slopes[place + 1] < slope:
        place = np.searchsorted(slopes, slope) - 1
    width = slopes[place + 1] - slopes[place]
    return place, (slopes[place + 1] - slope) / width, (slope - slopes[place]) / width


@compiled
def _read(slope: float, slopes: Array, beta: Array) -> float:
    place, left, right = _place(slope, slopes)
    return left * beta[place] + right * beta[place + 1]


@compiled
def _step(beta: Array, places: U32, weights: Array) -> Array:
    """Beta with one user more: the least over the ratios, the larger one of the two ends."""
    after, least = np.zeros(beta.size), np.empty(beta.size)
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
