"""Compiled draws of coded reports for blocks of simulated users.

What is drawn for coordinate c of user u, in terms of the random words at (index, stage, user, stream):

1. t = (g + C) (K - 1) / 2C, clipped to [0, K - 1], is rounded at random to a level j next to it: up if a
   uniform R is below the fraction of t. The first 8 bits of R are bits 8-15 of the first word.
2. An attempt proposes the level k in the low bits of its word and accepts it if a uniform 64-bit number is
   <= T_|k-j|. The number's first 16 bits are the word's upper half.
3. Only when the leading bits tie are further bits drawn, so comparisons are exact and most cost one word.

Attempt 0 uses lane c % 4 of stage 0, index c // 4; attempt a >= 1 lane (a - 1) % 4 of stage 1 + (a - 1) // 4,
index c; further bits come from stage TIE + a, index c. The loops are split so that arithmetic vectorises and
table look-ups stand alone: 2 ns a draw against 8 in one loop.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apes.randomness import philox

_TIE = np.uint64(0x80000000)
_NEVER = 256
_HALF_WORD = np.uint64(16)
_WORD = np.uint64(32)
_LEADING = np.uint64(48)
_LOW_48 = np.uint64((1 << 48) - 1)
_TO_UNIT = 2.0**-53

Key = tuple[np.uint64, np.uint64]


@njit(nogil=True, cache=True)
def draw_codes(
    updates: NDArray[np.float32],
    thresholds: NDArray[np.uint64],
    clip: float,
    address: tuple[int, int, np.uint64],
    key: Key,
    codes: NDArray[np.uint8],
) -> bool:
    """Fill ``codes`` with randomised levels of a block (users x coordinates) of updates.

    Args:
        updates: Raw updates; clipped here.
        thresholds: One row of acceptance thresholds a user (`apes.thresholds`).
        clip: C.
        address: First user, first coordinate and stream of the block.
        key: Philox key.
        codes: Where the levels go.

    Returns:
        Whether every update was finite; if not, ``codes`` is meaningless and must not be released.
    """
    users, width = updates.shape
    levels = thresholds.shape[1]
    first_user, first, stream = address
    start = first % 4
    words = np.empty(4 * (width // 4 + 2), dtype=np.uint32)
    steps = np.empty(width, dtype=np.int32)
    pending = np.empty(width + 1, dtype=np.int64)
    rare = np.empty(7 * width + 1, dtype=np.int64)
    retries = np.empty((4, width), dtype=np.uint32)
    leading = np.full(_NEVER + 1, -1, dtype=np.int32)
    for u in range(users):
        place = (np.uint64(first_user + u), stream, np.int64(first))
        row, own = thresholds[u], words[start:]
        for s in range(levels):
            leading[s] = np.int32(row[s] >> _LEADING)
        _first_words(words, place, key)
        if not _propose(updates[u], own, clip, levels, steps, codes[u]):
            return False
        open_count, rare_count = _look_up(own, steps, leading, pending, rare)
        _retry_words(pending, open_count, place, key, retries)
        rare_count = _rounded(updates[u], own, clip, levels, pending, open_count, steps, rare, rare_count)
        rare_count = _retry(retries, steps, leading, levels, pending, open_count, rare, rare_count, codes[u])
        for m in range(rare_count):
            i = rare[m]
            codes[u, i] = _settle(updates[u, i], own[i], i, clip, row, place, key)
    return True


@njit
def _first_words(words: NDArray[np.uint32], place: tuple[np.uint64, np.uint64, int], key: Key) -> None:
    user, stream, first = place
    k0, k1 = key
    block = np.uint64(first // 4)
    for i in range(words.size // 4):
        a, b, c, d = philox(block + np.uint64(i), np.uint64(0), user, stream, k0, k1)
        words[4 * i] = np.uint32(a)
        words[4 * i + 1] = np.uint32(b)
        words[4 * i + 2] = np.uint32(c)
        words[4 * i + 3] = np.uint32(d)


@njit(inline="always")
def _position(update: np.float32, clip: float, levels: int) -> np.float32:
    """t of step 1."""
    top = np.float32(levels - 1)
    scale = np.float32((levels - 1) / (2 * clip))
    return min(max(update * scale + np.float32(0.5) * top, np.float32(0)), top)


@njit(inline="always")
def _mask(levels: int) -> int:
    """Low bits that hold a proposal: the smallest 2^b - 1 >= levels - 1."""
    mask = 1
    while mask < levels - 1:
        mask = 2 * mask + 1
    return mask


@njit
def _propose(
    updates: NDArray[np.float32],
    words: NDArray[np.uint32],
    clip: float,
    levels: int,
    steps: NDArray[np.int32],
    codes: NDArray[np.uint8],
) -> bool:
    """Attempt 0 but for the look-up: the proposal, and its distance from the rounded level.

    A distance of _NEVER marks what the word alone does not decide: a proposal past the last level, or a tie
    in the rounding.
    """
    mask = np.int32(_mask(levels))
    scale = np.float32((levels - 1) / (2 * clip))
    top = np.float32(levels - 1)
    half = np.float32(0.5) * top
    bits = updates.view(np.int32)
    infinite = np.int32(0)
    for i in range(updates.size):
        infinite |= np.int32((bits[i] & np.int32(0x7F800000)) == np.int32(0x7F800000))
        t = min(max(updates[i] * scale + half, np.float32(0)), top)
        word = np.int32(words[i])
        fine = np.int32(t * np.float32(256))
        r = np.int32((word >> np.int32(8)) & np.int32(255))
        j = np.int32((fine + np.int32(255) - r) >> np.int32(8))
        k = np.int32(word & mask)
        decided = ((fine & np.int32(255)) != r) & (k < np.int32(levels))
        steps[i] = np.int32(abs(k - j)) if decided else np.int32(_NEVER)
        codes[i] = np.uint8(k)
    return infinite == 0


@njit
def _look_up(
    words: NDArray[np.uint32],
    steps: NDArray[np.int32],
    leading: NDArray[np.int32],
    pending: NDArray[np.int64],
    rare: NDArray[np.int64],
) -> tuple[int, int]:
    """List the coordinates that attempt 0 does not settle, and those of them that tie."""
    n, ties = 0, 0
    for i in range(steps.size):
        margin = np.int32(words[i] >> np.uint32(16)) - leading[steps[i]]
        pending[n] = i
        n += np.int64(margin >= 0)
    for m in range(n):
        i = pending[m]
        rare[ties] = i
        ties += np.int64(np.int32(words[i] >> np.uint32(16)) == leading[steps[i]])
    return n, ties


@njit
def _retry_words(
    pending: NDArray[np.int64],
    count: int,
    place: tuple[np.uint64, np.uint64, int],
    key: Key,
    retries: NDArray[np.uint32],
) -> None:
    user, stream, first = place
    k0, k1 = key
    r0, r1, r2, r3 = retries[0], retries[1], retries[2], retries[3]
    for m in range(count):
        a, b, c, d = philox(np.uint64(first + pending[m]), np.uint64(1), user, stream, k0, k1)
        r0[m], r1[m], r2[m], r3[m] = np.uint32(a), np.uint32(b), np.uint32(c), np.uint32(d)


@njit
def _rounded(
    updates: NDArray[np.float32],
    words: NDArray[np.uint32],
    clip: float,
    levels: int,
    pending: NDArray[np.int64],
    count: int,
    rounded: NDArray[np.int32],
    rare: NDArray[np.int64],
    rare_count: int,
) -> int:
    """Levels j of the pending coordinates; a tie in the rounding makes a coordinate a rare one."""
    for m in range(count):
        i = pending[m]
        fine = np.int32(_position(updates[i], clip, levels) * np.float32(256))
        r = np.int32((words[i] >> np.uint32(8)) & np.uint32(255))
        rounded[m] = np.int32((fine + np.int32(255) - r) >> np.int32(8))
        rare[rare_count] = i
        rare_count += np.int64((fine & np.int32(255)) == r)
    return rare_count


@njit
def _retry(
    retries: NDArray[np.uint32],
    rounded: NDArray[np.int32],
    leading: NDArray[np.int32],
    levels: int,
    pending: NDArray[np.int64],
    count: int,
    rare: NDArray[np.int64],
    rare_count: int,
    codes: NDArray[np.uint8],
) -> int:
    """Attempts 1 to 4 by their leading bits; what ties or is never accepted becomes rare."""
    mask = np.int32(_mask(levels))
    still_open = np.arange(count + 1)
    for lane in range(4):
        words = retries[lane]
        left = 0
        for m in range(count):
            p = still_open[m]
            k = np.int32(words[p]) & mask
            step = np.int64(abs(k - rounded[p])) if k < levels else _NEVER
            margin = np.int32(words[p] >> np.uint32(16)) - leading[step]
            codes[pending[p]] = np.uint8(k)
            still_open[left] = p
            left += np.int64(margin >= 0)
            rare[rare_count] = pending[p]
            rare_count += np.int64(margin == 0)
        count = left
    for m in range(count):
        rare[rare_count + m] = pending[still_open[m]]
    return rare_count + count


@njit
def _settle(
    update: np.float32,
    word: np.uint32,
    i: int,
    clip: float,
    row: NDArray[np.uint64],
    place: tuple[np.uint64, np.uint64, int],
    key: Key,
) -> np.uint8:
    """Draw a coordinate from its first word on, attempt by attempt; ties are looked into."""
    levels = row.size
    mask = np.int64(_mask(levels))
    index = np.uint64(place[2] + i)
    t = _position(update, clip, levels)
    fine = np.int64(t * np.float32(256))
    r = np.int64((word >> np.uint32(8)) & np.uint32(255))
    j = (fine + 255 - r) >> 8
    if (fine & 255) == r:
        _, _, a, b = philox(index, _TIE, place[0], place[1], key[0], key[1])
        below = np.float64(((a << _WORD) | b) >> np.uint64(11)) * _TO_UNIT < np.float64(t) * 256 - fine
        j = (fine >> 8) + np.int64(below)
    if _accepts(np.uint64(word), j, np.uint64(0), index, row, mask, place, key):
        return np.uint8(np.int64(word) & mask)
    attempt = np.uint64(1)
    while True:
        stage = np.uint64(1) + (attempt - np.uint64(1)) // np.uint64(4)
        lanes = philox(index, stage, place[0], place[1], key[0], key[1])
        for lane in range(4):
            if _accepts(lanes[lane], j, attempt, index, row, mask, place, key):
                return np.uint8(np.int64(lanes[lane]) & mask)
            attempt += np.uint64(1)


@njit
def _accepts(
    word: np.uint64,
    j: int,
    attempt: np.uint64,
    index: np.uint64,
    row: NDArray[np.uint64],
    mask: int,
    place: tuple[np.uint64, np.uint64, int],
    key: Key,
) -> bool:
    """Whether an attempt is accepted: its uniform 64-bit number is <= T_|k-j|, decided exactly."""
    k = np.int64(word) & mask
    if k >= row.size:
        return False
    threshold = row[abs(k - j)]
    upper = word >> _HALF_WORD
    if upper != threshold >> _LEADING:
        return upper < threshold >> _LEADING
    a, b, _, _ = philox(index, _TIE + attempt, place[0], place[1], key[0], key[1])
    return (((a << _WORD) | b) >> _HALF_WORD) <= threshold & _LOW_48
