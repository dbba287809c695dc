"""Lines for a crowd that is too large to put in one by one: squads of users of one budget, all at one end.

However the users of one budget choose their ends, they can be put into squads of equals, but for as many as the
largest squad has: those are left out, which is safe. A squad is a binomial number of ones, of one law or its mirror
image, and is put in as a whole: with probabilities q_0, ..., q_m of its ones,
beta'(l) <= sum_i c_i beta(a_i) for any slopes a_i >= 0 and c_i >= 0 with c_m >= q_m,
c_{i-1} >= q_{i-1} - l q_i + c_i a_i, and c_0 a_0 <= l q_0 (docs/proofs.md, 15).
"""

import math
from collections import Counter
from itertools import pairwise

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.lines import Lines, lines_above, read, tilted_variance
from apes.accounting.composition.lattice import UNIT
from apes.mathematics.compiled import compiled

# Different budgets, and so many users one by one before the first squad.
_GROUPS, _FIRST = 12, 2500
# A squad is no larger than this share of its budget's users, and of all users that are in already.
_OF_GROUP, _OF_CROWD = 1 / 24, 1 / 16
# Slopes: even up to _REACH standard deviations, then each step longer by _LONGER, up to about twice as far.
_EVEN, _REACH, _LONGER, _SPARSE = 280, 9.5, 1.1, 36
# Probabilities of a squad below this share of the largest are left out, and added to beta.
_NOTHING = 1e-26


def lines_above_many(flips: Array) -> Lines:
    """The lines of some thousand users or more with these q_i, in [1e-9, 1/2], descending."""
    bounds = np.linspace(0, flips.size, _GROUPS + 1).astype(int).tolist()
    single = min(_FIRST, bounds[1])
    crowd = Counter({float(flips[bounds[1] - 1]): single})
    lines = lines_above(np.full(single, flips[bounds[1] - 1]))
    for low, high in pairwise(bounds):
        # Everybody's flips are lowered to the least of the group: a larger budget.
        flip, left = float(flips[high - 1]), high - low - (single if low == 0 else 0)
        most = max(1, int(_OF_GROUP * left))
        # As many are left out as the largest squad has: so one end or the other always has enough for the next squad.
        left -= most
        while left > 0:
            size = min(most, max(1, int(_OF_CROWD * crowd.total())), left)
            lines = _with_squad(lines, flip, size, crowd)
            crowd[flip] += size
            left -= size
    return lines


def _with_squad(lines: Lines, flip: float, size: int, crowd: Counter[float]) -> Lines:
    deviation = math.sqrt(size * flip * (1 - flip) + sum(n * f * (1 - f) for f, n in crowd.items()))
    even = np.arange(_EVEN) * (_REACH / deviation / _EVEN)
    growing = even[1] * np.cumsum(_LONGER ** np.arange(_SPARSE))
    slopes = 1 + np.concatenate([even, even[-1] + growing])
    # A little below 1, so that chords begin there; further on a step coincides with a slope, or nearly.
    heights = np.concatenate([-even[3:0:-1], np.log(slopes)])
    variance = np.zeros(heights.size)
    for f, n in crowd.items():
        variance += n * tilted_variance(f, np.exp(np.abs(heights)))
    law, left_out = _binomial(size, flip)
    beta = np.zeros(slopes.size)
    for probabilities in (law, law[::-1].copy()):
        places, values = _sums(lines.slopes, lines.beta, probabilities, heights, 1 / np.maximum(variance, 1.0))
        beta = np.maximum(beta, _along(slopes, places, values))
    return Lines(slopes, beta * (1 + 64 * UNIT) + left_out)


def _along(slopes: Array, places: Array, values: Array) -> Array:
    """Values at slopes, along the chords between places; beyond the last of them its value."""
    # beta(0) = 1.
    places, values = np.append(0.0, places), np.append(1.0, values)
    order = np.argsort(places)
    places, values = places[order], values[order]
    right = np.clip(np.searchsorted(places, slopes), 1, places.size - 1)
    width = places[right] - places[right - 1]
    before, after = np.maximum(places[right] - slopes, 0) / width, np.minimum((slopes - places[right - 1]) / width, 1)
    return np.asarray(before * values[right - 1] + after * values[right])


def _binomial(size: int, flip: float) -> tuple[Array, float]:
    """Law of so many bits without its far tails, and these tails' mass, doubled.

    A product of ratios from the mode on: off by at most 8 units per place, relatively.
    """
    k = np.arange(1, size + 1)
    ratios = (size + 1 - k) / k * (flip / (1 - flip))
    mode = min(int((size + 1) * flip), size)
    up, down = np.cumprod(ratios[mode:]), np.cumprod(1 / ratios[:mode][::-1])[::-1]
    weights = np.concatenate([down, [1.0], up])
    kept = weights > _NOTHING
    total = float(weights.sum())
    return weights[kept] / total, float(weights[~kept].sum()) / total * 2


@compiled
def _sums(slopes: Array, beta: Array, law: Array, heights: Array, falls: Array) -> tuple[Array, Array]:
    """Slopes l, and sum_i c_i beta(a_i) there, for slopes a_i that fall by exp(-falls) from step to step.

    l is taken a little too large, so that c_0 a_0 <= l q_0 in spite of rounding; where it is not, 1 is the answer.
    """
    last = law.size - 1
    places, values = np.empty(heights.size), np.ones(heights.size)
    a, c = np.empty(law.size), np.empty(law.size)
    # Chords of the even part: starts - falling l, from above.
    per_step, even = 1 / (slopes[1] - 1), min(_EVEN, slopes.size - 1) - 1
    falling = (beta[:even] - beta[1 : even + 1]) / (slopes[1 : even + 1] - slopes[:even])
    starts = (beta[:even] + falling * slopes[:even]) * (1 + 16 * UNIT)
    mean = (law * np.arange(law.size)).sum()
    variance = (law * (np.arange(law.size) - mean) ** 2).sum()
    for s in range(heights.size):
        # exp(height) where the tilted squad has its mean.
        a[0] = math.exp(heights[s] + falls[s] * (mean + heights[s] * variance))
        slope = _slope(law, a, math.exp(-falls[s])) * (1 + 64 * (last + 8) * UNIT)
        c[last] = law[last]
        for i in range(last, 0, -1):
            c[i - 1] = max((c[i] * a[i] + law[i - 1]) * (1 + 8 * UNIT) - slope * law[i] * (1 - 8 * UNIT), 0.0)
        # The law itself is off by 8 units per place.
        places[s] = slope * (1 + 32 * (last + 8) * UNIT)
        if c[0] * a[0] * (1 + 8 * UNIT) <= slope * law[0]:
            total = 0.0
            for i in range(law.size):
                # beta(a) = 1 - a + a beta(1/a), with a 1/a that is smaller by a hair.
                turned = a[i] if a[i] >= 1 else max((1 - 4 * UNIT) / a[i], 1.0)
                steps = (turned - 1) * per_step
                cell = int(steps) if steps < even else 0
                if slopes[cell] <= turned <= slopes[cell + 1]:
                    value = starts[cell] - falling[cell] * turned
                else:
                    value = read(turned, slopes, beta)
                total += c[i] * (value if a[i] >= 1 else (1 - a[i]) + a[i] * value)
            values[s] = total
            values[s] *= 1 + 16 * (last + 32) * UNIT
    return places, values


@compiled
def _slope(law: Array, a: Array, fall: float) -> float:
    """Fill in the slopes a_i after the first, and return sum_i q_i P_i / sum_i q_i P_{i-1}, P_i = a_0 ... a_i."""
    above, below, product = law[0] * a[0], law[0], a[0]
    for i in range(1, law.size):
        a[i] = a[i - 1] * fall
        below += law[i] * product
        product *= a[i]
        above += law[i] * product
    return float(above / below)
