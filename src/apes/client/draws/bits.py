"""Compiled draws of reports of one bit, for updates of bounded norm.

The update is clipped to steps k of C / N, N = 2^20 (`apes.client.clip.clip_norm`). Then, coordinate by coordinate:

1. k / N is rounded at random to +1 or -1: to +1 if 21 random bits are below N + k, so with probability (N + k) / 2N.
2. The sign is flipped if a uniform 64-bit number is below the user's F (`apes.mathematics.thresholds`).

Both are exact, and so is what both make together: the bit that leaves, 1 for +1, is 1 with probability S / 2^85,
S = 2^84 + k G, G = 2^64 - 2 F.

A simulation therefore compares one uniform number of 85 bits with S. Its first 16 are a half of word c // 2 of stage 0
(`apes.mathematics.chacha`), the lower one for even c. Only when they do not decide are the other 69 drawn, from the
block of stage TIE with index c: 5 are the upper bits of its word 2, 64 are its words 0 and 1. A comparison with a
*rounded* probability would be off by more than small budgets allow: what floating point says is taken only where it
cannot be wrong. A device takes two words per coordinate from the operating system, whatever the data, and nothing that
it does branches on them.
"""

# parameters: compiled loops take arrays and words; numba does not know our objects.

import numpy as np

from apes.client.clip import GRID, clip_norm
from apes.client.draws.coded import TIE, Place
from apes.mathematics.arrays import F32, I32, U8, U16, U64
from apes.mathematics.chacha import GROUP_WORDS, block_at, fill_words, room_for
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Address, Key, SystemSource
from apes.mathematics.uint128 import ZERO, add, mul_high, subtract

_ROUNDING = np.uint32(2 * GRID - 1)
# S / 2^69 is compared with 16 bits in float32. Its error: 2^-9 of rounding G, k G and the sum each, all below 2^16, and
# as much of the difference; 2^-7 altogether.
_HALF_WAY, _UNIT, _UNSURE = np.float32(2**15), 2.0**-69, np.float32(2.0**-6)
_FURTHER_BITS, _UPPER_FIVE, _WORD = np.uint64(5), np.uint64(27), np.uint64(32)
_HALF_OF_ALL = np.uint64(GRID)
_OPEN = np.uint8(2)
_EIGHT_OPEN = np.uint64(0x0202020202020202)
_LOOKED_AT = 64
_GROUP_HALVES = 2 * GROUP_WORDS
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
    words = room_for(first, width, _GROUP_HALVES)
    first_group = np.uint64(first // _GROUP_HALVES)
    halves = words.view(np.uint16)[first % _GROUP_HALVES :]
    steps = np.empty(width, dtype=np.int32)
    for u in range(users):
        if not clip_norm(updates[u], clip, limit, steps):
            return False
        user = np.uint64(first_user + u)
        fill_words(first_group, np.uint64(0), user, stream, key, words)
        gain = np.uint64(0) - np.uint64(2) * flips[u]
        _compare(steps, halves, gain, bits[u])
        _settle_open(steps, halves, gain, (user, stream, np.uint64(first)), key, bits[u])
    return True


@compiled
def _compare(steps: I32, halves: U16, gain: np.uint64, bits: U8) -> None:
    """Decide all by their first 16 bits; what they leave open is marked."""
    slope = np.float32(np.float64(gain) * _UNIT)
    for i in range(bits.size):
        ahead = (np.float32(steps[i]) * slope + _HALF_WAY) - np.float32(np.int32(halves[i]))
        is_no_zero = np.int32(ahead > -_UNSURE)
        is_no_one = np.int32(ahead < np.float32(1) + _UNSURE)
        bits[i] = np.uint8(np.int32(is_no_zero << np.int32(is_no_zero & is_no_one)))


@compiled
def _settle_open(steps: I32, halves: U16, gain: np.uint64, place: Place, key: Key, bits: U8) -> None:
    # Sixty-four at a time: hardly any have a mark.
    whole = bits.size // _LOOKED_AT * _LOOKED_AT
    eights = bits[:whole].view(np.uint64)
    for m in range(np.uint64(0), np.uint64(eights.size), np.uint64(8)):
        marks = np.uint64(0)
        for i in range(np.uint64(8)):
            marks |= eights[m + i]
        if marks & _EIGHT_OPEN:
            _settle(steps, halves, gain, place, key, bits, 8 * m, 8 * m + _LOOKED_AT)
    _settle(steps, halves, gain, place, key, bits, whole, bits.size)


@compiled
def _settle(steps: I32, halves: U16, gain: np.uint64, place: Place, key: Key, bits: U8, start: int, stop: int) -> None:
    """Compare all 85 bits, in integers."""
    user, stream, first = place
    for i in range(start, stop):
        if bits[i] == _OPEN:
            block = block_at(first + np.uint64(i), TIE, user, stream, key)
            high = (np.uint64(halves[i]) << _FURTHER_BITS) | (np.uint64(block[2]) >> _UPPER_FIVE)
            low = (np.uint64(block[0]) << _WORD) | np.uint64(block[1])
            size = np.uint64(abs(steps[i]))
            product = mul_high(size, gain), size * gain
            if steps[i] >= 0:
                top, rest = add(_HALF_OF_ALL, ZERO, product[0], product[1])
            else:
                top, rest = subtract(_HALF_OF_ALL, ZERO, product[0], product[1])
            bits[i] = np.uint8((high < top) | ((high == top) & (low < rest)))


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
