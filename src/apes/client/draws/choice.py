"""Compiled choice of b coordinates per user: those of largest size with ties broken at random, or any.

The b-th largest size of a row, the cut, is found digit by digit from counts of sizes; what is larger is kept. Of those
that equal the cut the rest is chosen by selection sampling (Fan et al. 1962; Knuth, TAOCP 2, 3.4.2, algorithm S), one
word each: the m-th of a user's tied coordinates has word number first coordinate + m of stage 0
(`apes.mathematics.chacha`), and is kept with probability (still needed) / (still left), to 2^-32. Ties are therefore
broken by a fair choice among all subsets, and the number kept is always exactly b.
"""

import numpy as np

from apes.mathematics.arrays import F32, U8, U32, Bools
from apes.mathematics.chacha import GROUP_WORDS, fill_words, room_for
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Address, Key

# Sizes of 8 bits are one digit; those of float32 values, 31 bits, are three: 11 bits, the next 10, the last 10.
_DIGIT = np.uint32(2047)
_STEP, _FIRST_SHIFT = 10, 20
_WORD, _ONE = np.uint64(32), np.uint64(1)

Sizes = U8 | U32


@compiled
def keep_largest(sizes: Sizes, b: int, address: Address, key: Key, kept: Bools) -> None:
    """Mark exactly b entries of largest size in every row of a block (users x coordinates).

    Sizes are in [0, 2^31), b in [1, coordinates].
    """
    users, width = sizes.shape
    first_user, first, stream = address
    words = room_for(first, width, GROUP_WORDS)
    first_group = np.uint64(first // GROUP_WORDS)
    tied = np.empty(width + 1, dtype=np.uint32)
    for u in range(users):
        cut, needed = cut_of(sizes[u], b)
        count = _mark(sizes[u], cut, kept[u], tied)
        used = words[: room_for(first, count, GROUP_WORDS).size]
        fill_words(first_group, np.uint64(0), np.uint64(first_user + u), stream, key, used)
        _choose(tied[:count], used[first % GROUP_WORDS :], needed, kept[u])


@compiled
def keep_any(b: int, address: Address, key: Key, kept: Bools) -> None:
    """Mark b entries of every row, every subset with the same probability: `keep_largest` of equal sizes."""
    users, width = kept.shape
    first_user, first, stream = address
    words = room_for(first, width, GROUP_WORDS)
    first_group = np.uint64(first // GROUP_WORDS)
    everything = np.arange(width).astype(np.uint32)
    for u in range(users):
        fill_words(first_group, np.uint64(0), np.uint64(first_user + u), stream, key, words)
        _choose(everything, words[first % GROUP_WORDS :], b, kept[u])


@compiled
def put_kept(values: U8 | F32, kept: Bools, padding: U8 | F32) -> None:
    """Write the kept values over the padding: twenty times faster than `numpy.where`, which branches on every mark."""
    for u in range(values.shape[0]):
        row, marks, out = values[u], kept[u], padding[u]
        for i in range(row.size):
            # Both are read first, so that choosing between them takes no branch either.
            value, other = row[i], out[i]
            out[i] = value if marks[i] else other


@compiled
def cut_of(sizes: Sizes, b: int) -> tuple[np.uint32, int]:
    """Return the b-th largest size, and how many of that size are among the b largest."""
    counts = np.empty(int(_DIGIT) + 1, dtype=np.int64)
    candidates = sizes
    needed = b
    shift = np.uint32(0 if sizes.itemsize == 1 else _FIRST_SHIFT)
    while True:
        counts[:] = 0
        for i in range(np.uint64(candidates.size)):
            # Bits above the digit are the same in all candidates, so one mask does for digits of 10 and 11 bits.
            counts[(np.uint32(candidates[i]) >> shift) & _DIGIT] += 1
        digit = _DIGIT
        while counts[digit] < needed:
            needed -= counts[digit]
            digit -= np.uint32(1)
        candidates = _with_digit(candidates, shift, digit, counts[digit])
        if shift == 0:
            return np.uint32(candidates[0]), needed
        shift -= np.uint32(_STEP)


@compiled
def _with_digit(sizes: Sizes, shift: np.uint32, digit: np.uint32, count: int) -> Sizes:
    """Return the ``count`` sizes that have this digit."""
    # The last place takes what is written behind the last one that fits: no branch, which would be guessed wrong.
    found = np.empty(count + 1, dtype=sizes.dtype)
    n = np.uint64(0)
    for i in range(np.uint64(sizes.size)):
        found[n] = sizes[i]
        n += np.uint64((np.uint32(sizes[i]) >> shift) & _DIGIT == digit)
    return found[:count]


@compiled
def _mark(sizes: Sizes, cut: np.uint32, kept: Bools, tied: U32) -> int:
    """Mark what is larger than the cut, list what equals it."""
    for i in range(np.uint64(sizes.size)):
        kept[i] = np.uint32(sizes[i]) > cut
    n = np.uint64(0)
    for i in range(np.uint64(sizes.size)):
        tied[n] = np.uint32(i)
        n += np.uint64(np.uint32(sizes[i]) == cut)
    return int(n)


@compiled
def _choose(tied: U32, words: U32, needed: int, kept: Bools) -> None:
    """Mark ``needed`` of the tied coordinates, every subset with the same probability."""
    left, wanted = np.uint64(tied.size), np.uint64(needed)
    for m in range(np.uint64(tied.size)):
        # A uniform whole number below ``left``: below ``wanted`` surely if all that are left are needed.
        take = (np.uint64(words[m]) * left) >> _WORD < wanted
        kept[tied[m]] = take
        wanted -= np.uint64(take)
        left -= _ONE
