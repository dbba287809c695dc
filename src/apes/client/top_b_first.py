"""Top-b-first: a user keeps the b largest coordinates of the update and sets the others to zero, before perturbing.

Everything is perturbed afterwards, zeros included, so what leaves is an APES report of all d coordinates. Two updates
of a user then differ in at most 2 b coordinates, whatever the data (docs/proofs.md, 10 and 11).

The choice looks at data, and how long a device takes can be seen. So there it takes the same steps whatever the data:
the b-th largest size is built bit by bit, each bit from a count over all coordinates. A simulation, which nobody times,
finds the same coordinates in half the time, by digits.
"""

import numpy as np

from apes.checks import whole
from apes.client.draws.choice import cut_of
from apes.errors import ParameterError
from apes.mathematics.arrays import U32
from apes.mathematics.compiled import compiled
from apes.models.model import PreparedUpdate, WholeUpdates

# Without its sign, a float32 number's bits order as the number does.
_SIZE = np.uint32(0x7FFFFFFF)
_BITS = 31
# The leading digit of a size: sign (0) and exponent, and three bits more.
_DIGITS, _SHIFT = 2048, np.uint32(20)
_ONE, _TWO = np.uint32(1), np.uint64(2)


def top_b_first(update: PreparedUpdate, b: int, shape: tuple[int, int], *, on_device: bool = False) -> WholeUpdates:
    """Updates of a block of users (shape: users x coordinates), all but b coordinates of each set to zero.

    Guarantee:
        At most b coordinates of every user's update are not zero, whatever data and model are, NaN and infinities
        included.
    """
    if whole("b", b, 1) > shape[1]:
        raise ParameterError(f"b must be in [1, {shape[1]}], the number of coordinates; got {b}")
    updates = update.coordinates(0, shape[1], np.empty(shape[0] * shape[1], dtype=np.float32))
    keep = keep_largest_coordinates if on_device else keep_largest_quickly
    keep(updates.view(np.uint32), b)
    return WholeUpdates(updates)


@compiled
def keep_largest_coordinates(updates: U32, b: int) -> None:
    """Set all but b entries of every row to zero: those of largest size stay, the first ones of equal size.

    Works in place on the bits of float32 numbers (users x coordinates); b is in [1, coordinates]. It takes the same
    steps whatever the numbers are.
    """
    for u in range(updates.shape[0]):
        row = updates[u]
        cut = np.uint32(0)
        for bit in range(_BITS - 1, -1, -1):
            candidate = np.uint32(cut | np.uint32(np.uint32(1) << np.uint32(bit)))
            cut = candidate if _at_least(row, candidate) >= b else cut
        # Fewer than b are larger than the cut; of those that equal it the first ones fill up.
        room = np.int64(b) - _at_least(row, np.uint32(cut + np.uint32(1)))
        for i in range(np.uint64(row.size)):
            size = np.uint32(row[i] & _SIZE)
            tie = np.int64((size == cut) & (room > 0))
            keep = (size > cut) | (tie > 0)
            row[i] = np.uint32(row[i] * np.uint32(keep))
            room -= tie


@compiled
def _at_least(row: U32, size: np.uint32) -> np.int64:
    """How many entries have at least this size."""
    count = np.uint32(0)
    for i in range(np.uint64(row.size)):
        # Kept to 32 bits, so that eight are counted at a time.
        count = np.uint32(count + np.uint32(np.uint32(row[i] & _SIZE) >= size))
    return np.int64(count)


@compiled
def keep_largest_quickly(updates: U32, b: int) -> None:
    """The same as `keep_largest_coordinates`, in a time that depends on the data: for simulations."""
    width = updates.shape[1]
    sizes, some = np.empty(width, dtype=np.uint32), np.empty(width + 1, dtype=np.uint32)
    counts = np.empty(2 * _DIGITS, dtype=np.uint32)
    for u in range(updates.shape[0]):
        row = updates[u]
        for i in range(np.uint64(width)):
            sizes[i] = row[i] & _SIZE
        found, needed = _with_leading_digit(sizes, b, counts, some)
        cut, room = cut_of(some[:found], needed)
        equal = np.uint32(0)
        for i in range(np.uint64(width)):
            equal = np.uint32(equal + np.uint32(sizes[i] == cut))
            row[i] = row[i] if sizes[i] >= cut else np.uint32(0)
        _drop_last(row, sizes, cut, int(equal) - room)


@compiled
def _with_leading_digit(sizes: U32, b: int, counts: U32, some: U32) -> tuple[int, int]:
    """List those that share the leading digit of the b-th largest; return how many, and how many of them are needed."""
    counts[:] = 0
    # In two halves, each with counts of its own: two of the same digit in a row would wait for one another.
    half = np.uint64(sizes.size) // _TWO
    for i in range(half):
        counts[sizes[i] >> _SHIFT] += _ONE
        counts[np.uint32(_DIGITS) + (sizes[i + half] >> _SHIFT)] += _ONE
    for i in range(half + half, np.uint64(sizes.size)):
        counts[sizes[i] >> _SHIFT] += _ONE
    needed, digit = b, _DIGITS - 1
    while int(counts[digit]) + int(counts[_DIGITS + digit]) < needed:
        needed -= int(counts[digit]) + int(counts[_DIGITS + digit])
        digit -= 1
    n = np.uint64(0)
    for i in range(np.uint64(sizes.size)):
        some[n] = sizes[i]
        n += np.uint64(sizes[i] >> _SHIFT == np.uint32(digit))
    return int(n), needed


@compiled
def _drop_last(row: U32, sizes: U32, cut: np.uint32, surplus: int) -> None:
    """Set the last ``surplus`` of those that equal the cut to zero."""
    i = sizes.size - 1
    while surplus > 0:
        if sizes[i] == cut:
            row[i] = np.uint32(0)
            surplus -= 1
        i -= 1
