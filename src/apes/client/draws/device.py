"""The device's road: coded reports from the operating system's randomness, in constant time.

Rejection sampling tells by its running time how many attempts it took, and so something about the level. Here every
coordinate makes the same number of attempts, each with the same instructions, and keeps the first that is accepted.
The number is so large that all of them fail with probability below 2^-80; should that happen, the coordinate starts
again with fresh randomness, so that the law stays exact. Thresholds are looked up in a table of at most 2 kB, which
stays in the first-level cache; against someone who shares that cache there is no defence here.
"""

# parameters: compiled loops take arrays and words; numba does not know our objects.

import math

import numpy as np

from apes.client.clip import clipped
from apes.mathematics.arrays import F32, F64, I64, U8, U64
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import SystemSource
from apes.mathematics.thresholds import acceptance_thresholds, proposal_mask

_FAILURE_BITS = 80
_WORDS_AT_ONCE = 1 << 20


def draw_codes_on_device(updates: F32, budgets: F64, clip: float, levels: int, source: SystemSource) -> U8:
    """Randomised levels of a block (users x coordinates) of finite updates.

    Guarantee:
        Every coordinate is epsilon-LDP with its user's budget, exactly (`apes.mathematics.thresholds`); how much
        randomness and how many instructions it takes depends on the budgets and levels alone, but with probability
        2^-80.
    """
    thresholds = acceptance_thresholds(budgets, levels)
    codes = np.empty(updates.shape, dtype=np.uint8)
    for user, row in enumerate(thresholds):
        attempts = attempts_needed(row)
        chunk = max(1, _WORDS_AT_ONCE // attempts)
        for start in range(0, updates.shape[1], chunk):
            part = slice(start, min(start + chunk, updates.shape[1]))
            codes[user, part] = _draw_part(updates[user, part], row, clip, attempts, source)
    return codes


def attempts_needed(row: U64) -> int:
    """Attempts per coordinate after which none was accepted with probability below 2^-80, for every level."""
    proposals = 1 << (row.size - 1).bit_length()
    # The smallest acceptance is at the end levels; a sum in floating point is good enough for a count.
    acceptance = float((row.astype(np.float64) / 2.0**64).sum()) / proposals
    return math.ceil(-_FAILURE_BITS * math.log(2) / math.log1p(-min(acceptance, 1 - 2.0**-40))) + 1


def _draw_part(updates: F32, row: U64, clip: float, attempts: int, source: SystemSource) -> U8:
    codes, rounded = np.empty(updates.size, dtype=np.uint8), np.empty(updates.size, dtype=np.int64)
    _round_levels(updates, clip, row.size, source.words(updates.size), rounded)
    todo = np.arange(updates.size)
    while todo.size:
        drawn, found = np.empty((2, todo.size), dtype=np.uint8)
        proposals, draws = source.bytes(todo.size, attempts), source.words(todo.size, attempts)
        _first_accepted(rounded[todo], row, proposals, draws, drawn, found)
        codes[todo] = drawn
        todo = todo[found == 0]
    return codes


@compiled
def _round_levels(updates: F32, clip: float, levels: int, rounding: U64, rounded: I64) -> None:
    top = np.float64(levels - 1)
    for i in range(updates.size):
        t = clipped((np.float64(updates[i]) / clip + 1) * 0.5 * top, 0.0, top)
        lower = math.floor(t)
        uniform = np.float64(rounding[i] >> np.uint64(11)) * 2.0**-53
        rounded[i] = np.int64(lower) + np.int64(uniform < t - lower)


@compiled
def _first_accepted(rounded: I64, row: U64, proposals: U8, draws: U64, codes: U8, found: U8) -> None:
    """Run through all attempts of every coordinate, keeping the first accepted proposal without a branch."""
    levels = row.size
    mask = proposal_mask(levels)
    for i in range(rounded.size):
        kept, done = np.int64(0), np.int64(0)
        for a in range(draws.shape[1]):
            k = np.int64(proposals[i, a]) & mask
            valid = np.int64(k < levels)
            step = abs(k - rounded[i]) * valid
            taken = valid & np.int64(draws[i, a] <= row[step]) & (1 - done)
            kept += k * taken
            done |= taken
        codes[i], found[i] = np.uint8(kept), np.uint8(done)
