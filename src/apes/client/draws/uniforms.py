"""Compiled: addressed uniform numbers for a block, for mechanisms that are not ours."""

import numpy as np
from numpy.typing import NDArray

from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import philox

_WORD = np.uint64(32)
_DROPPED = np.uint64(11)


@compiled
def fill_uniforms(
    address: tuple[int, int, np.uint64], stage: int, key: tuple[np.uint64, np.uint64], out: NDArray[np.float64]
) -> None:
    """Fill a block (users x coordinates) with multiples of 2^-53 in [0, 1), each from a counter of its own."""
    first_user, first, stream = address
    for u in range(out.shape[0]):
        for c in range(out.shape[1]):
            user, index = np.uint64(first_user + u), np.uint64(first + c)
            a, b, _, _ = philox(index, np.uint64(stage), user, stream, key[0], key[1])
            out[u, c] = np.float64(((a << _WORD) | b) >> _DROPPED) * 2.0**-53
