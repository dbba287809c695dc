"""Clipping: the step that every guarantee hangs on. Whatever a model or its data says, C bounds each coordinate.

Compiled draws clip where they read an update; they all do it with `clipped`. Where a norm R bounds the whole update as
well, it is `clip_norm` that sees to it.
"""

from fractions import Fraction
from functools import cache
from typing import TypeVar

import numpy as np

from apes.mathematics.arrays import F32, I32
from apes.mathematics.compiled import compiled, inlined

N = TypeVar("N", float, np.float32)
GRID = 1 << 20
"""Steps from 0 to C of the grid that updates of bounded norm are rounded to."""
MOST_COORDINATES = 1 << 22
"""Of an update of bounded norm: squares of as many steps add up to 2^62 at most."""
EXPONENT = np.uint32(0x7F800000)
"""Of a float32: where all of these bits are set, it is infinite or not a number."""
# Four units in the last place of a float32: more than two roundings add, so that products do not end up too large.
_DOWN = 1 - 2.0**-22


@inlined
def clipped(value: N, low: N, high: N) -> N:
    """The number of [low, high] nearest to a finite ``value``."""
    return min(max(value, low), high)


def clip_updates(updates: F32, clip: float) -> F32:
    """Every coordinate brought into [-C, C]; a copy."""
    bound = np.float32(clip)
    # The float32 nearest to C may lie above it. Compared as it is: NumPy would round C to float32 first.
    bound = bound if float(bound) <= clip else np.nextafter(bound, np.float32(0))
    return np.clip(updates, -bound, bound)


@cache
def norm_limit(norm: float, clip: float) -> int:
    """The largest sum of squares of an update in steps of C / GRID that keeps its norm within R: exact, or 2^63 - 1."""
    return min(int((Fraction(norm) * GRID / Fraction(clip)) ** 2), 2**63 - 1)


@compiled
def clip_norm(update: F32, clip: float, limit: int, steps: I32) -> bool:
    """Clip an update to [-C, C], scale it down to a norm of at most R, and write it out in steps of C / GRID.

    Rounding is toward zero, so no coordinate grows. The update has at most `MOST_COORDINATES`; C is in [1e-30, 1e30].
    It takes the same instructions whatever the data.

    Guarantee:
        Every step is in [-GRID, GRID] and their squares add up to at most ``limit`` (`norm_limit`), in integers.

    Returns:
        Whether the update was finite; if not, ``steps`` are meaningless.
    """
    bits, largest = update.view(np.uint32), np.uint32(0)
    top = np.float32(GRID)
    per_unit = np.float32(GRID / clip * _DOWN)
    total = np.int64(0)
    for i in range(update.size):
        largest = max(largest, bits[i] & EXPONENT)
        k = np.int32(clipped(update[i] * per_unit, -top, top))
        steps[i] = k
        total += np.int64(k) * np.int64(k)
    shrink = np.float32(min(1.0, np.sqrt(limit / max(total, np.int64(1))) * _DOWN))
    total = np.int64(0)
    for i in range(update.size):
        k = np.int32(np.float32(steps[i]) * shrink)
        steps[i] = k
        total += np.int64(k) * np.int64(k)
    # By the choice of _DOWN this never is, but nothing that leaves rests on floating-point arithmetic.
    if total > limit:
        steps[:] = np.int32(0)
    return bool(largest < EXPONENT)
