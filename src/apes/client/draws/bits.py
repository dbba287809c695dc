"""Compiled draws of reports of one bit, for updates of bounded norm.

The update is clipped to steps k of C / N, N = 2^20 (`apes.client.clip.clip_norm`). Then, coordinate by coordinate:

1. k / N is rounded at random to +1 or -1: to +1 if 21 random bits are below N + k, so with probability (N + k) / 2N.
2. The sign is flipped if a uniform 64-bit number is below the user's F (`apes.mathematics.thresholds`).

Both are exact, and the flip comes after the rounding: a single comparison with a rounded probability would be off by
more than small budgets allow. The bit that leaves is 1 for +1.

In a simulation the word of coordinate c is lane c % 4 of stage 0, index c // 4: its low 21 bits round, its upper 11 are
the flip's first; only when these tie with F's are the other 53 drawn, from stage TIE, index c. A device takes two words
per coordinate from the operating system, whatever the data, and nothing that it does branches on them.
"""

# parameters: compiled loops take arrays and words; numba does not know our objects.

import numpy as np

from apes.client.clip import GRID, clip_norm
from apes.client.draws.coded import TIE, Place, first_words
from apes.mathematics.arrays import F32, I32, U8, U32, U64
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Address, Key, SystemSource, philox

_ROUNDING_BITS = 21
_ROUNDING = np.uint32(2 * GRID - 1)
_FLIP_SHIFT = np.uint32(_ROUNDING_BITS)
_LEADING, _FURTHER = np.uint64(53), np.uint64(11)
_LOW_BITS = np.uint64((1 << 53) - 1)
_WORD = np.uint64(32)
_TIED = np.uint8(2)
_EIGHT_TIES = np.uint64(0x0202020202020202)
_LOOKED_AT = 64
_COORDINATES_AT_ONCE = 1 << 19


@compiled
def draw_bits(updates: F32, flips: U64, clip: float, limit: int, address: Address, key: Key, bits: U8) -> bool:
    """Fill ``bits`` with randomised signs of a block (users x all coordinates) of updates, each within ``limit``.

    Updates are clipped here; there is one flip threshold per user.

    Returns:
        Whether every update was finite; if not, ``bits`` is meaningless and must not be released.
    """
    users, width = updates.shape
    first_user, first, stream = address
    words = np.empty(4 * (width // 4 + 2), dtype=np.uint32)
    steps = np.empty(width, dtype=np.int32)
    own = words[first % 4 :]
    for u in range(users):
        place = (np.uint64(first_user + u), stream, np.uint64(first))
        if not clip_norm(updates[u], clip, limit, steps):
            return False
        first_words(words, place, key)
        _round_and_flip(steps, own, flips[u], bits[u])
        _settle_ties(flips[u], place, key, bits[u])
    return True


@compiled
def _round_and_flip(steps: I32, words: U32, flip: np.uint64, bits: U8) -> None:
    """Decide all by their words; a tie of the flip's leading bits is marked, with the sign before the flip."""
    leading = np.int32(flip >> _LEADING)
    for i in range(bits.size):
        word = words[i]
        # Brought back to 32 bits one by one: the compiler would go on in 64, of which vectors hold half as many.
        plus = np.int32(np.int32(word & _ROUNDING) < np.int32(steps[i] + np.int32(GRID)))
        upper = np.int32(word >> _FLIP_SHIFT)
        sign = np.int32(plus ^ np.int32(upper < leading))
        bits[i] = np.uint8(np.int32(sign | np.int32(np.int32(upper == leading) << np.int32(1))))


@compiled
def _settle_ties(flip: np.uint64, place: Place, key: Key, bits: U8) -> None:
    # Sixty-four at a time: most have no mark.
    whole = bits.size // _LOOKED_AT * _LOOKED_AT
    eights = bits[:whole].view(np.uint64)
    for m in range(np.uint64(0), np.uint64(eights.size), np.uint64(8)):
        marks = np.uint64(0)
        for i in range(np.uint64(8)):
            marks |= eights[m + i]
        if marks & _EIGHT_TIES:
            _settle(flip, place, key, bits, 8 * m, 8 * m + _LOOKED_AT)
    _settle(flip, place, key, bits, whole, bits.size)


@compiled
def _settle(flip: np.uint64, place: Place, key: Key, bits: U8, start: int, stop: int) -> None:
    user, stream, first = place
    for i in range(start, stop):
        if bits[i] >= _TIED:
            a, b, _, _ = philox(first + np.uint64(i), TIE, user, stream, key[0], key[1])
            flipped = ((a << _WORD) | b) >> _FURTHER < flip & _LOW_BITS
            bits[i] = (bits[i] & np.uint8(1)) ^ np.uint8(flipped)


def draw_bits_on_device(updates: F32, flips: U64, clip: float, limit: int, source: SystemSource) -> U8:
    """Randomised signs of a block (users x all coordinates) of finite updates, from the operating system's randomness.

    Guarantee:
        How much randomness and how many instructions it takes depends on the block's size alone.
    """
    bits = np.empty(updates.shape, dtype=np.uint8)
    steps = np.empty(updates.shape[1], dtype=np.int32)
    for user, flip in enumerate(flips):
        clip_norm(updates[user], clip, limit, steps)
        for start in range(0, steps.size, _COORDINATES_AT_ONCE):
            part = slice(start, start + _COORDINATES_AT_ONCE)
            _draw_part(steps[part], flip, source.words(2, steps[part].size), bits[user, part])
    return bits


@compiled
def _draw_part(steps: I32, flip: np.uint64, words: U64, bits: U8) -> None:
    rounding, flipping = words[0], words[1]
    for i in range(bits.size):
        plus = np.int32(np.uint32(rounding[i]) & _ROUNDING) < np.int32(steps[i] + np.int32(GRID))
        bits[i] = np.uint8(plus ^ (flipping[i] < flip))
