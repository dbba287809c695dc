"""Compiled draws of padding: coded reports on updates of zero.

All coordinates of a user are padded from one law, so it is put into an alias table (Walker 1977; Vose 1991) and a draw
costs one word and one look-up: 1 ns, where the rejections of `apes.client.draws.coded` take 3 at epsilon 1 and 9 at 4.
Coordinate c uses word c of stage 0 (`apes.mathematics.chacha`): 8 bits choose a column, 24 decide between its two
levels.

The table's law is within 2^-24 of the mechanism's in total variation, and users whose thresholds are the same have the
same table. What is padded tells nothing about its own user's data. But under random-b it hides others, whose
certificate counts on the blanket in it (docs/proofs.md, 9): that is there in full for budgets of 2.4e-7 and above.
Devices do not use the table.
"""

import numpy as np

from apes.mathematics.arrays import F64, U8, U32, U64
from apes.mathematics.chacha import GROUP_WORDS, fill_words, room_for
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Address, Key

_COLUMNS = 256
_COLUMN_BITS = np.uint32(8)
_LAST_COLUMN = np.uint32(255)
_FINE = 2.0**24


@compiled
def draw_padding(thresholds: U64, address: Address, key: Key, codes: U8) -> None:
    """Fill ``codes`` (users x coordinates) with randomised levels of updates that are 0.

    There is one row of acceptance thresholds per user (`apes.mathematics.thresholds`).
    """
    users, width = codes.shape
    first_user, first, stream = address
    words = room_for(first, width, GROUP_WORDS)
    table = np.empty(_COLUMNS, dtype=np.uint32)
    for u in range(users):
        if u == 0 or not np.array_equal(thresholds[u], thresholds[u - 1]):
            fill_alias(weights_at_zero(thresholds[u]), table)
        fill_words(np.uint64(first // GROUP_WORDS), np.uint64(0), np.uint64(first_user + u), stream, key, words)
        _look_up(words[first % GROUP_WORDS :], table, codes[u])


@compiled
def _look_up(words: U32, table: U32, codes: U8) -> None:
    for i in range(np.uint64(codes.size)):
        column = words[i] & _LAST_COLUMN
        entry = table[column]
        codes[i] = np.uint8(column if words[i] >> _COLUMN_BITS < entry >> _COLUMN_BITS else entry & _LAST_COLUMN)


@compiled
def weights_at_zero(thresholds: U64) -> F64:
    """Weights of the K levels of a report on 0, which lies half-way between two levels if K is even."""
    levels = thresholds.size
    lower, upper = (levels - 1) // 2, levels // 2
    weights = np.empty(levels)
    for k in range(levels):
        # A step s is accepted with probability (T_s + 1) / 2^64.
        weights[k] = np.float64(thresholds[abs(k - lower)]) + np.float64(thresholds[abs(k - upper)]) + 2.0
    return weights


@compiled
def fill_alias(weights: F64, table: U32) -> None:
    """Fill the alias table of a law with weights of at most 256 values, not negative, not all 0, of any sum.

    Column k of 256 stands for value k if 24 random bits are below the entry's upper 24 bits, else for the value in its
    lower 8.
    """
    shares = np.zeros(_COLUMNS)
    shares[: weights.size] = weights * (_COLUMNS / weights.sum())
    # Columns that are not full from the left of one list, those with more than they hold from its right.
    pending = np.empty(_COLUMNS, dtype=np.int64)
    small, large = 0, _COLUMNS
    for k in range(_COLUMNS):
        table[k] = np.uint32(k)
        if shares[k] < 1:
            pending[small] = k
            small += 1
        else:
            large -= 1
            pending[large] = k
    while small > 0 and large < _COLUMNS:
        small -= 1
        short, long = pending[small], pending[large]
        table[short] = np.uint32(np.uint32(shares[short] * _FINE) << _COLUMN_BITS) | np.uint32(long)
        shares[long] -= 1 - shares[short]
        if shares[long] < 1:
            large += 1
            pending[small] = long
            small += 1
