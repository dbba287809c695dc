"""Compiled draws of coded reports for blocks of simulated users.

What is drawn for coordinate c of user u, in terms of the words of a stage (`apes.mathematics.chacha`):

1. t = (g + C) (K - 1) / 2C, clipped to [0, K - 1], is rounded at random to a level j next to it: up if a
   uniform R is below the fraction of t. The first 11 bits of R are bits 8-18 of the word of attempt 0.
2. An attempt proposes the level k in the low bits of its word and accepts it if a uniform 64-bit number is
   <= T_|k-j|. The number's first 13 bits are the word's upper 13.
3. Only when the leading bits tie are further bits drawn, so comparisons are exact and most cost one word.

Attempt a has word c of stage a. Further bits come from the block of stage TIE + a with index c: words 0 and 1 are those
of an attempt's number, words 2 and 3, where a = 0, those of R; the first of two is their upper half. Attempt 0 is made
for all coordinates at once; later ones compute the blocks that hold a word which is still needed.

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
from apes.mathematics.chacha import BLOCK_WORDS, GROUP_BLOCKS, GROUP_WORDS, block_at, fill_blocks, fill_words, room_for
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Address, Key
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
_LEVEL, _UNSURE_MARK, _TIED_MARK = np.uint16(255), np.int32(256), np.int32(768)
_TIED_SHIFT = np.uint16(9)
_LINE_BITS = np.int32(8)
_ONE, _WORD = np.uint64(1), np.uint64(32)
_LEADING, _FURTHER = np.uint64(51), np.uint64(13)
_LOW_BITS = np.uint64((1 << 51) - 1)
_TO_UNIT = 2.0**-53
# Where one word in so many is needed, it is quicker to make all of them.
_DENSE = 16
# Where word w of a row is: block 16 (w // 256) + w % 16, lane (w // 16) % 16.
_LANE_SHIFT, _GROUP_SHIFT, _LAST_LANE = np.uint32(4), np.uint32(8), np.uint32(15)

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
    row_words = room_for(first, width, GROUP_WORDS)
    block_words = np.empty(row_words.size, dtype=np.uint32)
    slots = np.zeros(row_words.size // BLOCK_WORDS, dtype=np.uint32)
    needed = np.empty(slots.size + 1, dtype=np.uint32)
    marks = np.empty(width, dtype=np.uint16)
    words, open_ones, rare = np.empty((3, width + 1), dtype=np.uint32)
    leading = np.full(257, -1, dtype=np.int32)
    for u in range(users):
        place = (np.uint64(first_user + u), stream, np.uint64(first))
        row, update, drawn = thresholds[u], updates[u], codes[u]
        for s in range(row.size):
            leading[s] = np.int32(row[s] >> _LEADING)
        if not is_finite(update.view(np.uint32)):
            return False
        fill_words(np.uint64(first // GROUP_WORDS), np.uint64(0), place[0], stream, key, row_words)
        own = row_words[first % GROUP_WORDS :]
        _propose(update, own, clip, row.size, _lines(leading[: row.size]), marks, drawn)
        count = _list_unsure(marks, open_ones)
        _settle_rounding(update, clip, row.size, open_ones[:count], place, key, marks, rare)
        for m in range(count):
            words[m] = own[open_ones[m]]
        attempt = np.uint64(0)
        while True:
            count = _attempt(words[:count], row, leading, attempt, place, key, marks, open_ones, rare, drawn)
            if count == 0:
                break
            attempt += _ONE
            _words_of(open_ones[:count], attempt, place, key, slots, needed, block_words, words)
    return True


@compiled
def is_finite(bits: U32) -> bool:
    """Whether all exponents of these floats' bits are below the one of infinities and NaN."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & EXPONENT)
    return bool(largest < EXPONENT)


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

    A mark has bit 8 unless the lines accept the proposal, and bit 9 as well if the rounding ties, so that its level is
    not known yet.
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
        is_unsure = (np.int32(word >> _ACCEPTANCE_SHIFT) >= np.int32(line >> _LINE_BITS)) | (k > last)
        mark = np.int32(j | _UNSURE_MARK) if is_unsure else j
        is_tied = np.int32(fine & np.int32(_LAST_FINE)) == r
        marks[i] = np.uint16(np.int32(mark | _TIED_MARK) if is_tied else mark)
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
def _settle_rounding(
    update: F32, clip: float, levels: int, unsure: U32, place: Place, key: Key, marks: U16, rare: U32
) -> None:
    """Compare all bits of R where the first ones tie, and write the rounded level into the mark."""
    found = np.uint64(0)
    for m in range(np.uint64(unsure.size)):
        rare[found] = unsure[m]
        found += np.uint64(marks[unsure[m]] >> _TIED_SHIFT)
    user, stream, first = place
    top = np.float32(levels - 1)
    scale, half = np.float32((levels - 1) / (2 * clip)), np.float32(0.5) * top
    for m in range(found):
        i = rare[m]
        t = clipped(update[i] * scale + half, np.float32(0), top)
        fine = np.int64(t * _FINE)
        block = block_at(first + np.uint64(i), TIE, user, stream, key)
        further = (np.uint64(block[2]) << _WORD) | np.uint64(block[3])
        is_up = np.float64(further >> np.uint64(_FINE_BITS)) * _TO_UNIT < np.float64(t * _FINE) - fine
        marks[i] = np.uint16((fine >> _FINE_BITS) + np.int64(is_up))


@compiled
def _words_of(
    open_ones: U32, attempt: Word, place: Place, key: Key, slots: U32, needed: U32, block_words: U32, words: U32
) -> None:
    """The words of an attempt for the coordinates that are still open, from the blocks that hold one of them.

    ``needed`` lists these blocks, counted from the first block of the group that ``place`` is in; ``slots`` says where
    in the list a block is, if it is there.
    """
    user, stream, first = place
    if _DENSE * open_ones.size > block_words.size:
        fill_words(first // np.uint64(GROUP_WORDS), attempt, user, stream, key, block_words)
        own = block_words[first % np.uint64(GROUP_WORDS) :]
        for m in range(open_ones.size):
            words[m] = own[open_ones[m]]
        return
    offset, first_block = np.uint32(first % np.uint64(GROUP_WORDS)), np.uint32(first // np.uint64(GROUP_WORDS))
    first_block = np.uint32(first_block * np.uint32(GROUP_BLOCKS))
    count = np.uint64(0)
    for m in range(np.uint64(open_ones.size)):
        w = np.uint32(offset + open_ones[m])
        b = np.uint32(np.uint32(np.uint32(w >> _GROUP_SHIFT) << _LANE_SHIFT) | np.uint32(w & _LAST_LANE))
        slot = slots[b]
        is_new = (np.uint64(slot) >= count) | (needed[slot] != b)
        needed[count] = b
        slots[b] = np.uint32(count) if is_new else slot
        count += np.uint64(is_new)
    # As many as vectors hold, so that none is computed by itself; the surplus goes unused.
    columns = (int(count) + GROUP_BLOCKS - 1) // GROUP_BLOCKS * GROUP_BLOCKS
    blocks = block_words[: BLOCK_WORDS * columns].reshape((BLOCK_WORDS, columns))
    for s in range(columns):
        blocks[0, s] = np.uint32(first_block + needed[min(s, int(count) - 1)])
    fill_blocks(attempt, user, stream, key, blocks)
    for m in range(np.uint64(open_ones.size)):
        w = np.uint32(offset + open_ones[m])
        b = np.uint32(np.uint32(np.uint32(w >> _GROUP_SHIFT) << _LANE_SHIFT) | np.uint32(w & _LAST_LANE))
        words[m] = blocks[np.uint32(w >> _LANE_SHIFT) & _LAST_LANE, slots[b]]


@compiled
def _attempt(
    words: U32,
    row: U64,
    leading: I32,
    attempt: Word,
    place: Place,
    key: Key,
    marks: U16,
    open_ones: U32,
    tied: U32,
    codes: U8,
) -> int:
    """Make one attempt for the coordinates that are open, one word each; list those that stay open, and count them."""
    mask, last = np.int32(proposal_mask(row.size)), np.int32(row.size - 1)
    left, found = np.uint64(0), np.uint64(0)
    for m in range(np.uint64(words.size)):
        i = open_ones[m]
        k = np.int32(np.int32(words[m]) & mask)
        step = np.uint32(abs(k - np.int32(marks[i] & _LEVEL))) if k <= last else _NEVER
        margin = np.int32(words[m] >> _ACCEPTANCE_SHIFT) - leading[step]
        codes[i] = np.uint8(k)
        open_ones[left] = i
        left += np.uint64(margin > 0)
        tied[found] = i
        found += np.uint64(margin == 0)
    user, stream, first = place
    for m in range(found):
        i = tied[m]
        threshold = row[abs(np.int64(codes[i]) - np.int64(marks[i] & _LEVEL))]
        block = block_at(first + np.uint64(i), TIE + attempt, user, stream, key)
        further = (np.uint64(block[0]) << _WORD) | np.uint64(block[1])
        if further >> _FURTHER > threshold & _LOW_BITS:
            open_ones[left] = i
            left += _ONE
    return int(left)
