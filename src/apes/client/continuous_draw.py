"""Compiled draws of continuous reports: Clip-Laplace and Laplace by inversion, for reproducing the paper.

A floating-point sample leaks through its low-order bits (Mironov 2012); where reports leave a device, the coded
mechanism is used instead.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apes.randomness import philox

_WORD = np.uint64(32)
_TO_UNIT = 2.0**-53


@njit(inline="always")
def _uniform(coordinate: int, user: np.uint64, stream: np.uint64, key: tuple[np.uint64, np.uint64]) -> float:
    """A uniform number in (0, 1) with 53 bits, of (user, coordinate)."""
    a, b, c, d = philox(np.uint64(coordinate // 2), np.uint64(0), user, stream, key[0], key[1])
    word = ((a << _WORD) | b) if coordinate % 2 == 0 else ((c << _WORD) | d)
    return (np.float64(word >> np.uint64(11)) + 0.5) * _TO_UNIT


@njit(nogil=True, cache=True)
def draw_clip_laplace(
    updates: NDArray[np.float32],
    budgets: NDArray[np.float64],
    clip: float,
    address: tuple[int, int, np.uint64],
    key: tuple[np.uint64, np.uint64],
    out: NDArray[np.float32],
) -> None:
    """Draw CLap(clipped update, 2C / epsilon, C) for a block (users x coordinates).

    With a the normalised location, L = 1 - exp(-e a) and R = 1 - exp(-e (1 - a)) the masses on its two sides, and
    y = u (L + R): the draw is a + log(1 + y - L) / e for y <= L, else a - log(1 - (y - L)) / e.
    """
    first_user, first, stream = address
    for u in range(updates.shape[0]):
        e = budgets[u]
        user = np.uint64(first_user + u)
        for i in range(updates.shape[1]):
            g = min(max(np.float64(updates[u, i]), -clip), clip)
            a = 0.5 + 0.5 * g / clip
            left = -math.expm1(-e * a)
            y = _uniform(first + i, user, stream, key) * (left - math.expm1(e * a - e)) - left
            distance = math.log1p(-abs(y)) / e
            v = a + distance if y <= 0 else a - distance
            out[u, i] = np.float32(clip * (2 * min(max(v, 0.0), 1.0) - 1))


@njit(nogil=True, cache=True)
def draw_laplace(
    updates: NDArray[np.float32],
    budgets: NDArray[np.float64],
    clip: float,
    address: tuple[int, int, np.uint64],
    key: tuple[np.uint64, np.uint64],
    out: NDArray[np.float32],
) -> None:
    """Add Laplace noise of scale 2C / epsilon to the clipped updates of a block (users x coordinates)."""
    first_user, first, stream = address
    for u in range(updates.shape[0]):
        scale = 2 * clip / budgets[u]
        user = np.uint64(first_user + u)
        for i in range(updates.shape[1]):
            g = min(max(np.float64(updates[u, i]), -clip), clip)
            y = 2 * _uniform(first + i, user, stream, key) - 1
            noise = math.log1p(-abs(y)) * scale
            out[u, i] = np.float32(g - math.copysign(noise, y))
