"""Compiled loops of the shuffler: counting levels, and permuting a coordinate's reports."""

import numpy as np

from apes.mathematics.arrays import F32, U8, U16, U32
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import Key, philox

# 64 coordinates x 256 levels x 2 bytes stay in a first-level cache while a block's users run through them.
_COORDINATES_AT_ONCE = 64
_WORD = np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@compiled
def count_levels(codes: U8, counts: U16) -> bool:
    """Add a block (users x coordinates) to counts (coordinates x levels).

    Returns False, having counted nothing, if a code is not a level.
    """
    users, width = codes.shape
    for u in range(users):
        if codes[u].max() >= counts.shape[1]:
            return False
    for start in range(0, width, _COORDINATES_AT_ONCE):
        stop = min(start + _COORDINATES_AT_ONCE, width)
        for u in range(users):
            row = codes[u, start:stop]
            for c in range(np.uint64(stop - start)):
                counts[np.uint64(start) + c, row[c]] += np.uint16(1)
    return True


@compiled
def permute_rows(values: F32 | U8, first: int, stream: np.uint64, key: Key) -> None:
    """Give every row of ``values`` an independent uniform permutation (Fisher-Yates), in place.

    A row has fewer than 2^32 places; unsigned indices spare a test for negative ones.
    """
    rows, n = values.shape
    partners = np.empty(2 * (n // 2 + 1), dtype=np.uint32)
    for r in range(rows):
        row = values[r]
        _partners(np.uint64(first + r), stream, key, partners)
        for k in range(_ONE, np.uint64(n)):
            i = np.uint64(n) - k
            j = np.uint64(partners[i])
            row[i], row[j] = row[j], row[i]


@compiled
def _partners(row: np.uint64, stream: np.uint64, key: Key, partners: U32) -> None:
    """For every place i of a row a uniform place in 0 .. i.

    A 64-bit fraction times i + 1: no place is off by more than 2^-32 of its probability for n < 2^32.
    """
    for m in range(np.uint64(partners.size // 2)):
        a, b, c, d = philox(np.uint64(m), np.uint64(0), row, stream, key[0], key[1])
        bound = _TWO * m + _ONE
        partners[_TWO * m] = np.uint32((a * bound + ((b * bound) >> _WORD)) >> _WORD)
        bound = _TWO * m + _TWO
        partners[_TWO * m + _ONE] = np.uint32((c * bound + ((d * bound) >> _WORD)) >> _WORD)
