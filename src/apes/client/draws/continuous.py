"""Compiled draws of continuous reports: Clip-Laplace and Laplace by inversion, for reproducing the paper.

A floating-point sample leaks through its low-order bits (Mironov 2012); where reports leave a device, the coded
mechanism is used instead.

Coordinate c has a number of 64 bits, of which the upper 53 are used: word 2 c + 1 of stage 0
(`apes.mathematics.chacha`) is its upper half, word 2 c its lower one.

A row's randomness is drawn first, as numbers c in (-1, 1): the uniform number is (1 + c) / 2, and the masses 1 + c
and 1 - c of its two tails are exact where they are small, so that neither tail ends early. The loops over a row have
no branch and no call, and are split where one loop would need more registers than there are.
"""

# parameters: compiled loops take arrays and words; numba does not know our objects.

import math

import numpy as np

from apes.client.clip import clipped
from apes.mathematics.arrays import F32, F64, U32
from apes.mathematics.chacha import GROUP_WORDS, fill_words, room_for
from apes.mathematics.compiled import compiled
from apes.mathematics.elementary import exp_both, log
from apes.mathematics.randomness import Address, Key

_GROUP_NUMBERS = GROUP_WORDS // 2
_DROPPED = np.uint64(11)
_CENTRE = np.int64(2**52)
_TO_UNIT = 2.0**-52
# Where the plain formulas are good to 1e-12 of C: below, 1 - exp(-e) cancels; above, exp(-e) is no normal number.
_SMALL, _LARGE = 1e-4, 700.0
_LARGEST_MASS = 1 - 2.0**-53


@compiled
def draw_clip_laplace(updates: F32, budgets: F64, clip: float, address: Address, key: Key, out: F32) -> None:
    """Draw CLap(clipped update, 2C / epsilon, C) for a block (users x coordinates); never outside [-C, C].

    Updates are raw, finite and clipped here; budgets are epsilon of each user, per coordinate, in nats, in (0, inf).
    """
    first_user, first, stream = address
    words, draws = room_for(first, updates.shape[1], _GROUP_NUMBERS), np.empty(updates.shape[1])
    for u in range(updates.shape[0]):
        _centred_uniforms(np.uint64(first_user + u), first, stream, key, words, draws)
        if _SMALL < budgets[u] < _LARGE:
            _signed_tails(updates[u], budgets[u], clip, draws)
            _invert_tails(updates[u], budgets[u], clip, draws, out[u])
        else:
            _invert_extreme(updates[u], budgets[u], clip, draws, out[u])


@compiled
def draw_clip_laplace_at_zero(budgets: F64, clip: float, address: Address, key: Key, out: F32) -> None:
    """Draw CLap(0, 2C / epsilon, C): what `draw_clip_laplace` gives for updates of 0, to the bit, in less time."""
    first_user, first, stream = address
    width = out.shape[1]
    words, draws = room_for(first, width, _GROUP_NUMBERS), np.empty(width)
    zeros = np.zeros(width, dtype=np.float32)
    for u in range(out.shape[0]):
        _centred_uniforms(np.uint64(first_user + u), first, stream, key, words, draws)
        if _SMALL < budgets[u] < _LARGE:
            _invert_at_zero(budgets[u], clip, draws, out[u])
        else:
            _invert_extreme(zeros, budgets[u], clip, draws, out[u])


@compiled
def draw_laplace(updates: F32, budgets: F64, clip: float, address: Address, key: Key, out: F32) -> None:
    """Add Laplace noise of scale 2C / epsilon to the clipped updates of a block (users x coordinates).

    Arguments are those of `draw_clip_laplace`. The noise is at most 53 log(2) = 36.7 scales, once in 2^52 draws.
    """
    first_user, first, stream = address
    words, draws = room_for(first, updates.shape[1], _GROUP_NUMBERS), np.empty(updates.shape[1])
    for u in range(updates.shape[0]):
        _centred_uniforms(np.uint64(first_user + u), first, stream, key, words, draws)
        _add_noise(updates[u], 2 * clip / budgets[u], clip, draws, out[u])


@compiled
def _centred_uniforms(user: np.uint64, first: int, stream: np.uint64, key: Key, words: U32, out: F64) -> None:
    """Fill with odd multiples of 2^-53 in (-1, 1), for the coordinates from ``first`` on; ``words`` is their room."""
    fill_words(np.uint64(first // _GROUP_NUMBERS), np.uint64(0), user, stream, key, words)
    numbers = words.view(np.uint64)[first % _GROUP_NUMBERS :]
    for i in range(out.size):
        out[i] = (np.float64(np.int64(numbers[i] >> _DROPPED) - _CENTRE) + 0.5) * _TO_UNIT


@compiled
def _signed_tails(updates: F32, e: float, clip: float, draws: F64) -> None:
    """Replace centred uniforms c by exp(-|z - g| / lam), with the sign of z - g, of the draws z.

    With near = exp(-e (C + g) / 2C) and far = exp(-e (C - g) / 2C), the mass of exp(-|z - g| / lam) is
    W = 2 - near - far, in units of lam. Equating the parts of it below and above z to u W and (1 - u) W:
    exp(-|z - g| / lam) = u W + near where z <= g, and (1 - u) W + far beyond. The two add up to 2, so the right one
    is the smaller. Both are sums of positive terms: neither is 0, and neither tail cancels.
    """
    middle, slope = math.exp(-e / 2), e / (2 * clip)
    for i in range(updates.size):
        g = clipped(np.float64(updates[i]), -clip, clip)
        up, down = exp_both(g * slope)
        near, far = middle * down, middle * up
        half = 1.0 - 0.5 * (near + far)
        below, above = half * (1.0 + draws[i]) + near, half * (1.0 - draws[i]) + far
        draws[i] = -below if below < above else above


@compiled
def _invert_tails(updates: F32, e: float, clip: float, tails: F64, out: F32) -> None:
    """Draws from their signed tails; rounding must not leave [-C, C]."""
    scale = 2 * clip / e
    for i in range(updates.size):
        g = clipped(np.float64(updates[i]), -clip, clip)
        z = g + math.copysign(scale * log(abs(tails[i])), tails[i])
        out[i] = np.float32(clipped(z, -clip, clip))


@compiled
def _invert_at_zero(e: float, clip: float, draws: F64, out: F32) -> None:
    """Draws around 0, where both tails of `_signed_tails` are half (1 - |c|) + exp(-e / 2)."""
    middle, scale = math.exp(-e / 2), 2 * clip / e
    half = 1.0 - middle
    for i in range(out.size):
        distance = -scale * log(half * (1.0 - abs(draws[i])) + middle)
        out[i] = np.float32(math.copysign(min(distance, clip), draws[i]))


@compiled
def _invert_extreme(updates: F32, e: float, clip: float, draws: F64, out: F32) -> None:
    """Clip-Laplace for any budget, a few times slower.

    With L = 1 - exp(-e a) and R = 1 - exp(-e (1 - a)) the masses on the two sides of the location, a in [0, 1] being
    the normalised one, and y = u (L + R) - L, the draw is a + sign(y) times -log(1 - |y|) / e.
    """
    for i in range(updates.size):
        g = clipped(np.float64(updates[i]), -clip, clip)
        a = 0.5 + 0.5 / clip * g
        left, right = -math.expm1(-e * a), -math.expm1(e * a - e)
        y = 0.5 * (left + right) * draws[i] + 0.5 * (right - left)
        distance = -math.log1p(-min(abs(y), _LARGEST_MASS)) / e
        z = g + 2 * clip * math.copysign(distance, y)
        out[i] = np.float32(clipped(z, -clip, clip))


@compiled
def _add_noise(updates: F32, scale: float, clip: float, draws: F64, out: F32) -> None:
    """Clipped updates plus Laplace noise: the tails beyond the draw and beyond its mirror image have mass 1 - |c|."""
    for i in range(updates.size):
        g = clipped(np.float64(updates[i]), -clip, clip)
        noise = -scale * log(1.0 - abs(draws[i]))
        out[i] = np.float32(g + math.copysign(noise, draws[i]))
