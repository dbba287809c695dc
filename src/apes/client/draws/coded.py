"""Compiled draws of coded reports for blocks of simulated users.

What is drawn for coordinate c of user u, in terms of the random words at (index, stage, user, stream):

1. t = (g + C) (K - 1) / 2C, clipped to [0, K - 1], is rounded at random to a level j next to it: up if a
   uniform R is below the fraction of t. The first 11 bits of R are bits 8-18 of the first word.
2. An attempt proposes the level k in the low bits of its word and accepts it if a uniform 64-bit number is
   <= T_|k-j|. The number's first 13 bits are the word's upper 13.
3. Only when the leading bits tie are further bits drawn, so comparisons are exact and most cost one word.

Attempt 0 uses lane c % 4 of stage 0, index c // 4; attempt a >= 1 lane (a - 1) % 4 of stage 1 + (a - 1) // 4,
index c; further bits come from stage TIE + a, index c.

The loops are split so that arithmetic vectorises and table look-ups stand alone. Sums and differences of 32-bit numbers
are brought back to 32 bits one by one, since the compiler would go on in 64, of which vectors hold half as many; and a
loop has at most two outputs, since with three it is no longer proved that they do not overlap. Most proposals are
accepted by two straight lines below the table, without looking anything up; the table decides about the rest.
"""

# long: one draw in its stages, which share how a word is cut.
# parameters: compiled loops take arrays and words; numba does not know our objects.

import numpy as np

from apes.client.clip import EXPONENT, clipped
from apes.mathematics.arrays import F32, I32, U8, U16, U32, U64, Word
from apes.mathematics.compiled import compiled, inlined
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
# How a mark is cut, and the unit of the lines below a table: 1 / 256 of a leading threshold.
_LEVEL, _NEVER_MARK, _UNDECIDED = np.uint16(255), np.uint16(512), np.int32(768)
_LINE_BITS = np.int32(8)
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
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
    marks = np.empty(width, dtype=np.uint16)
    unsure = np.empty(width + 1, dtype=np.uint32)
    left_over = np.empty(width + 1, dtype=np.uint32)
    rare = np.empty(5 * width + 1, dtype=np.uint32)
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
        _propose(updates[u], own, clip, row.size, _lines(leading[: row.size]), marks, codes[u])
        listed = unsure[: _list_unsure(marks, unsure)]
        _retry_words(listed, place, key, retries)
        rare_count = _retry(own, retries, marks, leading, row.size, listed, left_over, rare, codes[u])
        for m in range(rare_count):
            i = rare[m]
            codes[u, i] = _settle(updates[u, i], own[i], i, clip, row, place, key)
    return True


@compiled
def is_finite(bits: U32) -> bool:
    """Whether all exponents of these floats' bits are below the one of infinities and NaN."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & EXPONENT)
    return bool(largest < EXPONENT)


@compiled
def first_words(words: U32, place: Place, key: Key) -> None:
    """Fill with the words of stage 0, four per counter, from the counter on that holds coordinate ``place[2]``.

    In two halves at once: of a single one every multiplication waits for the one before.
    """
    user, stream, first = place
    block, counters = first // _FOUR, np.uint64(words.size // 4)
    half = counters // _TWO
    for i in range(half):
        one = philox(block + i, np.uint64(0), user, stream, key[0], key[1])
        other = philox(block + half + i, np.uint64(0), user, stream, key[0], key[1])
        _put_words(words, _FOUR * i, one)
        _put_words(words, _FOUR * (half + i), other)
    for i in range(half + half, counters):
        _put_words(words, _FOUR * i, philox(block + i, np.uint64(0), user, stream, key[0], key[1]))


@inlined
def _put_words(words: U32, i: Word, four: tuple[Word, Word, Word, Word]) -> None:
    words[i], words[i + _ONE] = np.uint32(four[0]), np.uint32(four[1])
    words[i + _TWO], words[i + _THREE] = np.uint32(four[2]), np.uint32(four[3])


@compiled
def _lines(leading: I32) -> tuple[np.int32, np.int32, np.int32, np.int32]:
    """Two lines below a user's leading thresholds, as heights at 0 and falls per step, in 1 / 256."""
    levels = leading.size
    height, fall = _line(leading, np.int32(0), np.int32(levels // 8 + 1))
    other_height, other_fall = _line(leading, np.int32(levels // 3), np.int32(levels // 3 + levels // 8 + 1))
    return height, fall, other_height, other_fall


@compiled
def _line(leading: I32, low: np.int32, high: np.int32) -> tuple[np.int32, np.int32]:
    """The highest line that falls as the thresholds do between two steps and is nowhere above any of them."""
    fall = np.int32(np.int32(np.int32(leading[low] - leading[high]) << _LINE_BITS) // (high - low))
    height = np.int32(1 << 30)
    for s in range(np.int32(leading.size)):
        height = min(height, np.int32(np.int32(leading[s] << _LINE_BITS) + np.int32(fall * s)))
    return height, fall


@compiled
def _propose(
    updates: F32,
    words: U32,
    clip: float,
    levels: int,
    lines: tuple[np.int32, np.int32, np.int32, np.int32],
    marks: U16,
    codes: U8,
) -> None:
    """Attempt 0 but for the look-up: the proposal, and a mark that holds the rounded level in its lower 8 bits.

    A mark has bit 8 unless the lines accept the proposal, and bit 9 besides if the word alone does not decide: for a
    proposal past the last level, or a tie in the rounding.
    """
    mask, last = np.int32(proposal_mask(levels)), np.int32(levels - 1)
    scale = np.float32((levels - 1) / (2 * clip))
    top = np.float32(levels - 1)
    half = np.float32(0.5) * top
    height, fall, other_height, other_fall = lines
    for i in range(updates.size):
        word = words[i]
        t = clipped(updates[i] * scale + half, np.float32(0), top)
        fine = np.int32(t * _FINE)
        r = np.int32((word >> _ROUNDING_SHIFT) & np.uint32(_LAST_FINE))
        j = np.int32(np.int32(np.int32(fine + np.int32(_LAST_FINE)) - r) >> np.int32(_FINE_BITS))
        k = np.int32(np.int32(word) & mask)
        difference = np.int32(k - j)
        step = max(difference, np.int32(-difference))
        line = max(np.int32(height - np.int32(fall * step)), np.int32(other_height - np.int32(other_fall * step)))
        is_unsure = np.int32(np.int32(word >> _ACCEPTANCE_SHIFT) >= np.int32(line >> _LINE_BITS))
        mark = np.int32(j | np.int32(is_unsure << np.int32(8)))
        is_tied = (np.int32(fine & np.int32(_LAST_FINE)) == r) | (k > last)
        marks[i] = np.uint16(np.int32(mark | _UNDECIDED) if is_tied else mark)
        codes[i] = np.uint8(k)


@compiled
def _list_unsure(marks: U16, unsure: U32) -> int:
    """List the coordinates about which the lines say nothing; four marks are loaded at once."""
    n, whole = np.uint64(0), marks.size // 4 * 4
    fours = marks[:whole].view(np.uint64)
    for q in range(np.uint64(fours.size)):
        four, i = fours[q], np.uint32(q) << np.uint32(2)
        unsure[n] = i
        n += (four >> np.uint64(8)) & _ONE
        unsure[n] = i + np.uint32(1)
        n += (four >> np.uint64(24)) & _ONE
        unsure[n] = i + np.uint32(2)
        n += (four >> np.uint64(40)) & _ONE
        unsure[n] = i + np.uint32(3)
        n += (four >> np.uint64(56)) & _ONE
    for rest in range(np.uint64(whole), np.uint64(marks.size)):
        unsure[n] = np.uint32(rest)
        n += np.uint64((marks[rest] >> np.uint16(8)) & np.uint16(1))
    return int(n)


@compiled
def _retry_words(unsure: U32, place: Place, key: Key, retries: U32) -> None:
    user, stream, first = place
    r0, r1, r2, r3 = retries[0], retries[1], retries[2], retries[3]
    for m in range(np.uint64(unsure.size)):
        a, b, c, d = philox(first + np.uint64(unsure[m]), _ONE, user, stream, key[0], key[1])
        r0[m], r1[m], r2[m], r3[m] = np.uint32(a), np.uint32(b), np.uint32(c), np.uint32(d)


@compiled
def _retry(
    words: U32, retries: U32, marks: U16, leading: I32, levels: int, unsure: U32, left_over: U32, rare: U32, codes: U8
) -> int:
    """Of the unsure, attempts 0 to 4 by their leading bits; list what ties, is never accepted, or is still open.

    Next to none of the unsure is accepted by attempt 0, so that it is looked up together with the next one.
    """
    mask, last = np.int32(proposal_mask(levels)), np.int32(levels - 1)
    first, count, found = retries[0], np.uint64(0), np.uint64(0)
    for m in range(np.uint64(unsure.size)):
        i = unsure[m]
        is_never = marks[i] >= _NEVER_MARK
        j = np.int32(marks[i] & _LEVEL)
        step = _NEVER if is_never else np.uint32(abs(np.int32(codes[i]) - j))
        margin = np.int32(words[i] >> _ACCEPTANCE_SHIFT) - leading[step]
        is_open = margin >= 0
        k = np.int32(np.int32(first[m]) & mask)
        next_step = np.uint32(abs(k - j)) if k <= last else _NEVER
        next_margin = np.int32(first[m] >> _ACCEPTANCE_SHIFT) - leading[next_step]
        codes[i] = np.uint8(k) if is_open else codes[i]
        left_over[count] = np.uint32(m)
        count += np.uint64(is_open & (next_margin >= 0))
        rare[found] = i
        found += np.uint64(is_never | (margin == 0) | (is_open & (next_margin == 0)))
    for lane in range(1, 4):
        drawn, left = retries[lane], np.uint64(0)
        for m in range(count):
            p = left_over[m]
            i = unsure[p]
            k = np.int32(np.int32(drawn[p]) & mask)
            step = np.uint32(abs(k - np.int32(marks[i] & _LEVEL))) if k <= last else _NEVER
            margin = np.int32(drawn[p] >> _ACCEPTANCE_SHIFT) - leading[step]
            codes[i] = np.uint8(k)
            left_over[left] = p
            left += np.uint64(margin >= 0)
            rare[found] = i
            found += np.uint64(margin == 0)
        count = left
    for m in range(count):
        rare[found + m] = unsure[left_over[m]]
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
