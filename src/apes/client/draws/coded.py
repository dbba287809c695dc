"""Compiled draws of coded reports for blocks of simulated users.

What is drawn for coordinate c of user u, in terms of the random words at (index, stage, user, stream):

1. t = (g + C) (K - 1) / 2C, clipped to [0, K - 1], is rounded at random to a level j next to it: up if a
   uniform R is below the fraction of t. The first 11 bits of R are bits 8-18 of the first word.
2. An attempt proposes the level k in the low bits of its word and accepts it if a uniform 64-bit number is
   <= T_|k-j|. The number's first 13 bits are the word's upper 13.
3. Only when the leading bits tie are further bits drawn, so comparisons are exact and most cost one word.

Attempt 0 uses lane c % 4 of stage 0, index c // 4; attempt a >= 1 lane (a - 1) % 4 of stage 1 + (a - 1) // 4,
index c; further bits come from stage TIE + a, index c.

The loops are split so that arithmetic vectorises and table look-ups stand alone, and count in unsigned integers,
which spares a test for negative indices: 3 ns per draw against 9 in one loop.
"""

# long: one draw in its stages, which share how a word is cut.
# parameters: compiled loops take arrays and words; numba does not know our objects.

import numpy as np

from apes.client.clip import clipped
from apes.mathematics.arrays import F32, I32, U8, U32, U64, Word
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Address, Key, philox
from apes.mathematics.thresholds import proposal_mask

TIE = np.uint64(0x80000000)
# How a 32-bit word is cut: 8 bits of proposal, 11 of rounding, 13 of acceptance. With more bits for one of the last two
# it would tie less often, the other more; either way a tie costs twenty times a draw.
_LAST_FINE = 2047
_FINE = np.float32(2048)
_ROUNDING_SHIFT = np.uint32(8)
_FINE_BITS = 11
_ACCEPTANCE_SHIFT = np.uint32(19)
_NEVER = np.uint32(256)
_ONE, _FOUR = np.uint64(1), np.uint64(4)
_WORD = np.uint64(32)
_LEADING, _FURTHER = np.uint64(51), np.uint64(13)
_LOW_BITS = np.uint64((1 << 51) - 1)
_TO_UNIT = 2.0**-53

# User, stream and coordinate.
Place = tuple[Word, Word, Word]


@compiled
def draw_codes(updates: F32, thresholds: U64, clip: float, address: Address, key: Key, codes: U8) -> bool:
    """Fill ``codes`` with randomised levels of a block (users x coordinates) of updates.

    Updates are clipped here; there is one row of acceptance thresholds per user (`apes.mathematics.thresholds`).

    Returns:
        Whether every update was finite; if not, ``codes`` is meaningless and must not be released.
    """
    users, width = updates.shape
    first_user, first, stream = address
    words = np.empty(4 * (width // 4 + 2), dtype=np.uint32)
    steps = np.empty(width, dtype=np.uint32)
    rounded = np.empty(width, dtype=np.uint8)
    pending = np.empty(width + 1, dtype=np.uint32)
    rare = np.empty(6 * width + 1, dtype=np.uint32)
    retries = np.empty((4, width), dtype=np.uint32)
    leading = np.full(257, -1, dtype=np.int32)
    for u in range(users):
        place = (np.uint64(first_user + u), stream, np.uint64(first))
        row, own = thresholds[u], words[first % 4 :]
        for s in range(row.size):
            leading[s] = np.int32(row[s] >> _LEADING)
        if not is_finite(updates[u].view(np.uint32)):
            return False
        first_words(words, place, key)
        _propose(updates[u], own, clip, row.size, steps, rounded, codes[u])
        open_count = _look_up(own, steps, leading, pending)
        rare_count = _find_ties(own, steps, leading, pending[:open_count], rare)
        _retry_words(pending[:open_count], place, key, retries)
        rare_count = _retry(retries, rounded, leading, row.size, pending[:open_count], rare, rare_count, codes[u])
        for m in range(rare_count):
            i = rare[m]
            codes[u, i] = _settle(updates[u, i], own[i], i, clip, row, place, key)
    return True


@compiled
def is_finite(bits: U32) -> bool:
    """Whether all exponents of these floats' bits are below the one of infinities and NaN."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & np.uint32(0x7F800000))
    return bool(largest < np.uint32(0x7F800000))


@compiled
def first_words(words: U32, place: Place, key: Key) -> None:
    """Fill with the words of stage 0, four per counter, from the counter on that holds coordinate ``place[2]``."""
    user, stream, first = place
    block = first // _FOUR
    for i in range(np.uint64(words.size // 4)):
        a, b, c, d = philox(block + i, np.uint64(0), user, stream, key[0], key[1])
        words[_FOUR * i], words[_FOUR * i + _ONE] = np.uint32(a), np.uint32(b)
        words[_FOUR * i + np.uint64(2)], words[_FOUR * i + np.uint64(3)] = np.uint32(c), np.uint32(d)


@compiled
def _propose(updates: F32, words: U32, clip: float, levels: int, steps: U32, rounded: U8, codes: U8) -> None:
    """Attempt 0 but for the look-up: the rounded level, the proposal and their distance.

    A distance of _NEVER marks what the word alone does not decide: a proposal past the last level, or a tie
    in the rounding.
    """
    mask = np.int32(proposal_mask(levels))
    scale = np.float32((levels - 1) / (2 * clip))
    top = np.float32(levels - 1)
    half = np.float32(0.5) * top
    for i in range(updates.size):
        t = clipped(updates[i] * scale + half, np.float32(0), top)
        fine = np.int32(t * _FINE)
        r = np.int32((words[i] >> _ROUNDING_SHIFT) & np.uint32(_LAST_FINE))
        j = np.int32((fine + np.int32(_LAST_FINE) - r) >> np.int32(_FINE_BITS))
        k = np.int32(np.int32(words[i]) & mask)
        decided = ((fine & np.int32(_LAST_FINE)) != r) & (k < np.int32(levels))
        steps[i] = np.uint32(abs(k - j)) if decided else _NEVER
        rounded[i] = np.uint8(j)
        codes[i] = np.uint8(k)


@compiled
def _look_up(words: U32, steps: U32, leading: I32, pending: U32) -> int:
    """List the coordinates that attempt 0 does not accept by its leading bits."""
    n = np.uint64(0)
    for i in range(np.uint64(steps.size)):
        pending[n] = np.uint32(i)
        n += np.uint64(np.int32(words[i] >> _ACCEPTANCE_SHIFT) >= leading[steps[i]])
    return int(n)


@compiled
def _find_ties(words: U32, steps: U32, leading: I32, pending: U32, rare: U32) -> int:
    """List the pending coordinates whose attempt 0 ties, in its rounding or in its leading bits."""
    n = np.uint64(0)
    for m in range(np.uint64(pending.size)):
        i = pending[m]
        rare[n] = i
        n += np.uint64((steps[i] == _NEVER) | (np.int32(words[i] >> _ACCEPTANCE_SHIFT) == leading[steps[i]]))
    return int(n)


@compiled
def _retry_words(pending: U32, place: Place, key: Key, retries: U32) -> None:
    user, stream, first = place
    r0, r1, r2, r3 = retries[0], retries[1], retries[2], retries[3]
    for m in range(np.uint64(pending.size)):
        a, b, c, d = philox(first + np.uint64(pending[m]), _ONE, user, stream, key[0], key[1])
        r0[m], r1[m], r2[m], r3[m] = np.uint32(a), np.uint32(b), np.uint32(c), np.uint32(d)


@compiled
def _retry(
    retries: U32, rounded: U8, leading: I32, levels: int, pending: U32, rare: U32, rare_count: int, codes: U8
) -> int:
    """Attempts 1 to 4 by their leading bits; what ties or is never accepted becomes rare."""
    mask = np.int32(proposal_mask(levels))
    last = np.int32(levels - 1)
    still_open = np.arange(pending.size + 1).astype(np.uint32)
    count, found = np.uint64(pending.size), np.uint64(rare_count)
    for lane in range(4):
        words = retries[lane]
        left = np.uint64(0)
        for m in range(count):
            p = still_open[m]
            i = pending[p]
            k = np.int32(np.int32(words[p]) & mask)
            step = np.uint32(abs(k - np.int32(rounded[i]))) if k <= last else _NEVER
            margin = np.int32(words[p] >> _ACCEPTANCE_SHIFT) - leading[step]
            codes[i] = np.uint8(k)
            still_open[left] = p
            left += np.uint64(margin >= 0)
            rare[found] = i
            found += np.uint64(margin == 0)
        count = left
    for m in range(count):
        rare[found + m] = pending[still_open[m]]
    return int(found + count)


@compiled
def _settle(
    update: np.float32, word: np.uint32, i: np.uint32, clip: float, row: U64, place: Place, key: Key
) -> np.uint8:
    """Draw a coordinate from its first word on, attempt by attempt; ties are looked into."""
    levels = row.size
    mask = np.uint64(proposal_mask(levels))
    user, stream, index = place[0], place[1], place[2] + np.uint64(i)
    own = (user, stream, index)
    top = np.float32(levels - 1)
    t = clipped(update * np.float32((levels - 1) / (2 * clip)) + np.float32(0.5) * top, np.float32(0), top)
    fine = np.int64(t * _FINE)
    r = np.int64((word >> _ROUNDING_SHIFT) & np.uint32(_LAST_FINE))
    j = (fine + _LAST_FINE - r) >> _FINE_BITS
    if (fine & _LAST_FINE) == r:
        _, _, a, b = philox(index, TIE, user, stream, key[0], key[1])
        below = np.float64(((a << _WORD) | b) >> np.uint64(11)) * _TO_UNIT < np.float64(t * _FINE) - fine
        j = (fine >> _FINE_BITS) + np.int64(below)
    if _accepts(np.uint64(word), j, np.uint64(0), row, mask, own, key):
        return np.uint8(np.uint64(word) & mask)
    attempt = _ONE
    while True:
        stage = _ONE + (attempt - _ONE) // _FOUR
        lanes = philox(index, stage, user, stream, key[0], key[1])
        for lane in range(4):
            if _accepts(lanes[lane], j, attempt, row, mask, own, key):
                return np.uint8(lanes[lane] & mask)
            attempt += _ONE


@compiled
def _accepts(word: Word, j: np.int64, attempt: Word, row: U64, mask: Word, place: Place, key: Key) -> bool:
    """Whether an attempt is accepted: its uniform 64-bit number is <= T_|k-j|, decided exactly."""
    k = np.int64(word & mask)
    if k >= row.size:
        return False
    threshold = row[abs(k - j)]
    upper = word >> np.uint64(_ACCEPTANCE_SHIFT)
    if upper != threshold >> _LEADING:
        return bool(upper < threshold >> _LEADING)
    a, b, _, _ = philox(place[2], TIE + attempt, place[0], place[1], key[0], key[1])
    return bool((((a << _WORD) | b) >> _FURTHER) <= threshold & _LOW_BITS)
