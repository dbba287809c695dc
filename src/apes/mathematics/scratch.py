"""Scratch memory that is used again: fresh pages would cost a round of a small model a fifth of its time.

That is where memory goes back to the system at every release, as in the workers of Dask (`MALLOC_TRIM_THRESHOLD_`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from apes.mathematics.arrays import F32

# What is kept at most for the next ones: a piece per thread that works, of this many numbers.
_PIECES, _NUMBERS = os.cpu_count() or 1, 1 << 22
_free: list[F32] = []


@contextmanager
def borrowed(numbers: int) -> Iterator[F32]:
    """Memory for so many numbers, of whatever content; nobody else has it meanwhile."""
    try:
        memory = _free.pop()
    except IndexError:
        memory = np.empty(0, dtype=np.float32)
    if memory.size < numbers:
        memory = np.empty(numbers, dtype=np.float32)
    try:
        yield memory[:numbers]
    finally:
        if len(_free) < _PIECES and memory.size <= _NUMBERS:
            _free.append(memory)
