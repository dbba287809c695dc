"""Compiled draws of coded reports for blocks of simulated users.

What is drawn for coordinate c of user u, in terms of the words of a stage (`apes.mathematics.chacha`):

1. t = (g + C) (K - 1) / 2C, clipped to [0, K - 1], is rounded at random to a level j next to it: up if a
   uniform R is below the fraction of t.
2. An attempt proposes a level k and accepts it if a uniform 64-bit number is <= T_|k-j|.
3. Only when leading bits tie are further bits drawn, so comparisons are exact and most cost one word or less.

Attempt 0 has word c of stage 0: 8 bits of proposal, the first 11 bits of R, the first 13 of the number, from the lowest
bits up. Attempt a >= 1 has a half of word c // 2 of stage a, the lower one for even c: 8 bits of proposal, the first 8
of the number. Further bits come from the block of stage TIE + a // 7 with index c: words 2 (a % 7) and 2 (a % 7) + 1
have those of the number of attempt a, words 14 and 15 of stage TIE those of R; the first of two is their upper half.
Attempt 0 is made for all coordinates at once; later ones compute the blocks that they still need, or all where that is
quicker.

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
from apes.mathematics.chacha import BLOCK_WORDS, GROUP_BLOCKS, GROUP_WORDS, fill_blocks, fill_words, room_for
from apes.mathematics.compiled import compiled, inlined
from apes.mathematics.randomness import Address, Key
from apes.mathematics.thresholds import proposal_mask

TIE = np.uint64(0x80000000)
# How a word is cut. With more bits for one of rounding and acceptance it would tie less often, the other more.
_LAST_FINE = 2047
_FINE = np.float32(2048)
_ROUNDING_SHIFT = np.uint32(8)
_FINE_BITS = 11
_ACCEPTANCE_SHIFT = np.uint32(19)
_LEADING_BITS, _RETRY_BITS = np.uint64(13), np.uint64(8)
_DROPPED = np.int32(5)
_RETRY_SHIFT = np.uint32(8)
_NEVER = np.uint32(256)
# How a mark is cut, and the unit of the lines below a table: 1 / 256 of a leading threshold.
_LEVEL, _UNSURE, _TIED = np.uint16(255), np.int32(256), np.int32(768)
_LINE_BITS = np.int32(8)
_ONE, _WORD = np.uint64(1), np.uint64(32)
_LEADING, _RETRY_LEADING = np.uint64(51), np.uint64(56)
_GROUP_HALVES = 2 * GROUP_WORDS
_ATTEMPTS_OF_A_TIE = np.uint64(7)
_TO_UNIT = 2.0**-53
# Where one coordinate in so many needs a block, it is quicker to make all blocks.
_DENSE = 32
# Where half h of a row is: word w = h // 2, in block 16 (w // 256) + w % 16, at place (w // 16) % 16.
_HALVES, _ROW_SHIFT, _GROUP_SHIFT, _LAST_OF_16 = np.uint32(1), np.uint32(4), np.uint32(8), np.uint32(15)

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
    words, retry_words = room_for(first, width, GROUP_WORDS), room_for(first, width, _GROUP_HALVES)
    block_words = np.empty(retry_words.size, dtype=np.uint32)
    slots = np.zeros(retry_words.size // BLOCK_WORDS, dtype=np.uint32)
    needed = np.empty(slots.size + 1, dtype=np.uint32)
    marks = np.empty(width, dtype=np.uint16)
    open_ones = np.empty(width + 1, dtype=np.uint32)
    tied = np.empty(width + 1, dtype=np.uint32)
    leading = np.full(257, -1, dtype=np.int32)
    own, retries = words[first % GROUP_WORDS :], retry_words.view(np.uint16)[first % _GROUP_HALVES :]
    for u in range(users):
        place = (np.uint64(first_user + u), stream, np.uint64(first))
        row, update, drawn = thresholds[u], updates[u], codes[u]
        for s in range(row.size):
            leading[s] = np.int32(row[s] >> _LEADING)
        if not is_finite(update.view(np.uint32)):
            return False
        fill_words(np.uint64(first // GROUP_WORDS), np.uint64(0), place[0], stream, key, words)
        _propose(update, own, clip, row.size, _lines(leading[: row.size]), marks, drawn)
        count = _list_unsure(marks, open_ones)
        attempt = _ONE
        while count > 0:
            if _DENSE * count >= width:
                fill_words(np.uint64(first // _GROUP_HALVES), attempt, place[0], stream, key, retry_words)
            else:
                _fill_needed(open_ones[:count], attempt, place, key, slots, needed, block_words, retries)
            count, found = _retry(own, retries, leading, row.size, attempt, marks, open_ones, count, tied, drawn)
            if found > 0:
                some = tied[:found]
                count = _settle(
                    update, clip, own, retries, row, attempt, place, key, marks, some, open_ones, count, drawn
                )
            attempt += _ONE
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
        mark = np.int32(j | _UNSURE) if is_unsure else j
        is_tied = np.int32(fine & np.int32(_LAST_FINE)) == r
        marks[i] = np.uint16(np.int32(mark | _TIED) if is_tied else mark)
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
def _fill_needed(
    open_ones: U32, attempt: Word, place: Place, key: Key, slots: U32, needed: U32, block_words: U32, halves: U16
) -> None:
    """Fill ``halves`` for the coordinates that are still open, from the blocks that hold one of theirs.

    ``needed`` lists these blocks, counted from the first block of the group that ``place`` is in; ``slots`` says where
    in the list a block is, if it is there.
    """
    user, stream, first = place
    start, group = np.uint32(first % np.uint64(_GROUP_HALVES)), np.uint32(first // np.uint64(_GROUP_HALVES))
    count = np.uint64(0)
    for m in range(np.uint64(open_ones.size)):
        b = _block_of(np.uint32(np.uint32(start + open_ones[m]) >> _HALVES))
        slot = slots[b]
        is_new = (np.uint64(slot) >= count) | (needed[slot] != b)
        needed[count] = b
        slots[b] = np.uint32(count) if is_new else slot
        count += np.uint64(is_new)
    columns = (int(count) + GROUP_BLOCKS - 1) // GROUP_BLOCKS * GROUP_BLOCKS
    blocks = block_words[: BLOCK_WORDS * columns].reshape((BLOCK_WORDS, columns))
    for s in range(columns):
        blocks[0, s] = np.uint32(np.uint32(group * np.uint32(GROUP_BLOCKS)) + needed[min(s, int(count) - 1)])
    fill_blocks(attempt, user, stream, key, blocks)
    for m in range(np.uint64(open_ones.size)):
        h = np.uint32(start + open_ones[m])
        w = np.uint32(h >> _HALVES)
        word = blocks[np.uint32(w >> _ROW_SHIFT) & _LAST_OF_16, slots[_block_of(w)]]
        halves[open_ones[m]] = np.uint16(word >> np.uint32((h & np.uint32(1)) * np.uint32(16)))


@inlined
def _block_of(w: np.uint32) -> np.uint32:
    """The block of word ``w`` of a row, counted from the row's first."""
    return np.uint32(np.uint32(np.uint32(w >> _GROUP_SHIFT) << _ROW_SHIFT) | np.uint32(w & _LAST_OF_16))


@compiled
def _retry(
    own: U32,
    retries: U16,
    leading: I32,
    levels: int,
    attempt: Word,
    marks: U16,
    open_ones: U32,
    count: int,
    tied: U32,
    codes: U8,
) -> tuple[int, int]:
    """Make an attempt for the first ``count`` in the list ``open_ones``, by its leading bits.

    Next to none of the unsure is accepted by attempt 0, so that it is looked up together with attempt 1.

    Returns:
        How many stay open, which ``open_ones`` then lists, and how many tie, which ``tied`` lists.
    """
    mask, last = np.int32(proposal_mask(levels)), np.int32(levels - 1)
    is_first = attempt == _ONE
    left, found = np.uint64(0), np.uint64(0)
    for m in range(np.uint64(count)):
        i = open_ones[m]
        mark = np.int32(marks[i])
        j = np.int32(mark & _LEVEL)
        zeroth = np.int32(np.int32(own[i]) & mask)
        margin = np.int32(own[i] >> _ACCEPTANCE_SHIFT) - leading[_step(zeroth, j, last)] if is_first else np.int32(1)
        half = np.uint32(retries[i])
        k = np.int32(np.int32(half) & mask)
        next_margin = np.int32(half >> _RETRY_SHIFT) - (leading[_step(k, j, last)] >> _DROPPED)
        codes[i] = np.uint8(zeroth if margin < 0 else k)
        is_known = mark < _TIED
        open_ones[left] = i
        left += np.uint64(is_known & (margin > 0) & (next_margin > 0))
        tied[found] = i
        found += np.uint64(~is_known | (margin == 0) | ((margin > 0) & (next_margin == 0)))
    return int(left), int(found)


@inlined
def _step(k: np.int32, j: np.int32, last: np.int32) -> np.uint32:
    """From the level to the proposal; of a proposal past the last level one that is never accepted."""
    return np.uint32(abs(k - j)) if k <= last else _NEVER


@compiled
def _settle(
    update: F32,
    clip: float,
    own: U32,
    retries: U16,
    row: U64,
    attempt: Word,
    place: Place,
    key: Key,
    marks: U16,
    tied: U32,
    open_ones: U32,
    left: int,
    codes: U8,
) -> int:
    """Make an attempt again for coordinates that tied, with all bits; append to ``open_ones`` what stays open.

    With attempt 1 come the rounding and attempt 0.
    """
    count = np.uint64(left)
    is_first = attempt == _ONE
    blocks = np.empty((BLOCK_WORDS, GROUP_BLOCKS), dtype=np.uint32)
    pair = 2 * int(attempt % _ATTEMPTS_OF_A_TIE)
    for start in range(0, tied.size, GROUP_BLOCKS):
        some = tied[start : start + GROUP_BLOCKS]
        tie_blocks(some, TIE + attempt // _ATTEMPTS_OF_A_TIE, place, key, blocks)
        for m in range(some.size):
            i = some[m]
            is_open = True
            if is_first:
                if np.int32(marks[i]) >= _TIED:
                    marks[i] = _rounded(update[i], clip, row.size, _pair(blocks, 14, m))
                number = np.uint64(own[i] >> _ACCEPTANCE_SHIFT) << _LEADING | _pair(blocks, 0, m) >> _LEADING_BITS
                codes[i], is_open = _proposed(np.uint64(own[i]), number, marks[i], row)
            if is_open:
                half = np.uint64(retries[i])
                number = (half >> _RETRY_BITS) << _RETRY_LEADING | _pair(blocks, pair, m) >> _RETRY_BITS
                codes[i], is_open = _proposed(half, number, marks[i], row)
            if is_open:
                open_ones[count] = i
                count += _ONE
    return int(count)


@inlined
def _pair(blocks: U32, w: int, m: int) -> Word:
    """Words ``w`` and ``w + 1`` of block ``m``, the first one as the upper half."""
    return np.uint64(blocks[w, m]) << _WORD | np.uint64(blocks[w + 1, m])


@compiled
def _proposed(word: Word, number: Word, level: np.uint16, row: U64) -> tuple[np.uint8, bool]:
    """What a word proposes, and whether it is refused: accepted is what has a number of 64 bits <= T_|k-j|."""
    k = np.int64(word & np.uint64(proposal_mask(row.size)))
    return np.uint8(k), bool(k >= row.size or number > row[abs(k - np.int64(level & _LEVEL))])


@compiled
def _rounded(update: np.float32, clip: float, levels: int, further: Word) -> np.uint16:
    """Level of an update whose R has the first bits of its fraction: all bits are compared."""
    top = np.float32(levels - 1)
    t = clipped(update * np.float32((levels - 1) / (2 * clip)) + np.float32(0.5) * top, np.float32(0), top)
    fine = np.int64(t * _FINE)
    is_up = np.float64(further >> np.uint64(_FINE_BITS)) * _TO_UNIT < np.float64(t * _FINE) - fine
    return np.uint16((fine >> _FINE_BITS) + np.int64(is_up))


@compiled
def tie_blocks(coordinates: U32, stage: Word, place: Place, key: Key, blocks: U32) -> None:
    """Fill ``blocks`` (16 x 16) with the blocks of at most 16 coordinates, counted from the place's, at a stage.

    All columns are made, since a vector instruction makes all of them anyway; those past the last go unused.
    """
    user, stream, first = place
    for m in range(blocks.shape[1]):
        blocks[0, m] = np.uint32(first + np.uint64(coordinates[min(m, coordinates.size - 1)]))
    fill_blocks(stage, user, stream, key, blocks)
