"""Compiled draws of continuous reports: Clip-Laplace and Laplace by inversion, for reproducing the paper.

A floating-point sample leaks through its low-order bits (Mironov 2012); where reports leave a device, the coded
mechanism is used instead.
"""

import math

import numpy as np
from numpy.typing import NDArray

from apes.compiled import compiled
from apes.randomness import philox

_WORD = np.uint64(32)
_TO_UNIT = 2.0**-53
_SMALL = 1e-4
# Below it exp(-e) is a normal number.
_LARGE = 700.0


@compiled
def _row_uniforms(
    user: np.uint64, first: int, stream: np.uint64, key: tuple[np.uint64, np.uint64], out: NDArray[np.float64]
) -> int:
    """Fill with uniform numbers in (0, 1) of 53 bits, two a counter; return where coordinate ``first`` stands."""
    block = np.uint64(first // 2)
    for m in range(np.uint64(out.size // 2)):
        a, b, c, d = philox(block + m, np.uint64(0), user, stream, key[0], key[1])
        out[2 * m] = (np.float64(((a << _WORD) | b) >> np.uint64(11)) + 0.5) * _TO_UNIT
        out[2 * m + np.uint64(1)] = (np.float64(((c << _WORD) | d) >> np.uint64(11)) + 0.5) * _TO_UNIT
    return first % 2


@compiled
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
    y = u (L + R) - L: the draw is a + sign(y) times -log(1 - |y|) / e.
    """
    first_user, first, stream = address
    half = 0.5 / clip
    uniforms = np.empty(2 * (updates.shape[1] // 2 + 2))
    for u in range(updates.shape[0]):
        e = budgets[u]
        start = _row_uniforms(np.uint64(first_user + u), first, stream, key, uniforms)
        whole, spread = math.exp(-e), 1 / e
        for i in range(updates.shape[1]):
            g = min(max(np.float64(updates[u, i]), -clip), clip)
            a = 0.5 + half * g
            if _SMALL < e < _LARGE:
                # 1e-16 / e of rounding is far below what a float32 report can show.
                near = math.exp(-e * a)
                left, right = 1 - near, 1 - whole / near
                y = uniforms[start + i] * (left + right) - left
                distance = -math.log(1 - abs(y)) * spread
            else:
                left = -math.expm1(-e * a)
                y = uniforms[start + i] * (left - math.expm1(e * a - e)) - left
                distance = -math.log1p(-abs(y)) * spread
            v = a + math.copysign(distance, y)
            out[u, i] = np.float32(clip * (2 * min(max(v, 0.0), 1.0) - 1))


@compiled
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
    uniforms = np.empty(2 * (updates.shape[1] // 2 + 2))
    for u in range(updates.shape[0]):
        scale = 2 * clip / budgets[u]
        start = _row_uniforms(np.uint64(first_user + u), first, stream, key, uniforms)
        for i in range(updates.shape[1]):
            g = min(max(np.float64(updates[u, i]), -clip), clip)
            uniform = uniforms[start + i]
            # The tail beyond the draw has mass min(u, 1 - u) = exp(-|noise| / scale) / 2.
            noise = -scale * math.log(2 * min(uniform, 1 - uniform))
            out[u, i] = np.float32(g + math.copysign(noise, uniform - 0.5))
