"""Clipping: the step that every guarantee hangs on. Whatever a model or its data says, C bounds each coordinate.

Compiled draws clip where they read an update; they all do it with `clipped`.
"""

from typing import TypeVar

import numpy as np

from apes.mathematics.arrays import F32
from apes.mathematics.compiled import inlined

N = TypeVar("N", float, np.float32)


@inlined
def clipped(value: N, low: N, high: N) -> N:
    """The number of [low, high] nearest to a finite ``value``."""
    return min(max(value, low), high)


def clip_updates(updates: F32, clip: float) -> F32:
    """Every coordinate brought into [-C, C]; a copy."""
    bound = np.float32(clip)
    # The float32 nearest to C may lie above it.
    bound = bound if bound <= clip else np.nextafter(bound, np.float32(0))
    return np.clip(updates, -bound, bound)
