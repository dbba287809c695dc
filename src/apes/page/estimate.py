"""About what a proof will come to: for the eye while somebody drags, never for a claim.

Among many, a coordinate's reports tell as much as a Gaussian shift whose square is chi^2 / m: chi^2 of the victim's two
laws under the blanket, m the reports that hide together. What the certificate adds to that for what it cannot rule out
is a few per cent. It takes a millisecond where a proof takes a second.
"""

import math

import numpy as np

from apes.accounting.certificate.blanket import HiddenPair, echo_probabilities, half_pairs, hidden_pair
from apes.accounting.certificate.curve import LARGEST_BUDGET
from apes.accounting.certificate.joint_clipping import norm_shift
from apes.accounting.certificate.two_levels import MOST_USERS
from apes.accounting.composition.gaussian import gaussian_epsilon
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import cover_of
from apes.mathematics.arrays import F64

_SHAPES = 6
_GROUPS = 256


def about(exposure: Exposure, delta: float, rounds: int) -> float:
    """Epsilon of all rounds, roughly: not a bound, neither from above nor from below."""
    different, counts = _few(exposure)
    boldest = float(different[-1])
    local = exposure.local() * rounds
    if boldest > LARGEST_BUDGET:
        return local
    squares = [uses * square for uses, square in zip(exposure.uses, _squares(exposure, different, counts), strict=True)]
    if exposure.norm is not None:
        shift, allowance = math.sqrt(squares[0] / exposure.uses[0]), cover_of(delta) / (rounds * exposure.uses[0])
        squares.append(norm_shift(max(shift, 1e-100), exposure.ratio, max(allowance, 1e-300)) ** 2)
    return min(gaussian_epsilon(math.sqrt(rounds * min(squares)), delta), local)


def _few(exposure: Exposure) -> tuple[F64, F64]:
    """Different budgets, and how many people have each; of many, some that stand for the others."""
    different, counts = exposure.crowd
    if different.size > _GROUPS:
        places = np.unique(np.linspace(0, different.size - 1, _GROUPS).astype(np.int64))
        different, counts = different[places], np.diff(np.cumsum(counts)[places], prepend=0)
    return different, counts.astype(np.float64)


def _squares(exposure: Exposure, different: F64, counts: F64) -> list[float]:
    """The squared shift of one use, way by way."""
    boldest, levels = float(different[-1]), exposure.levels
    if levels == 2 and counts.sum() <= MOST_USERS:
        bits = np.tanh(different / 2)
        return [4 * float(bits[-1]) ** 2 / max(float(counts @ (1 - bits**2)), 1.0)]

    def hiding(shape: float) -> float:
        return 1 + float(counts @ np.minimum(echo_probabilities(different, shape, levels), 1.0))

    shapes = np.linspace(0, boldest, _SHAPES).tolist()
    whole = min(_chi_squared(hidden_pair(boldest, shape, levels)) / hiding(shape) for shape in shapes)
    if exposure.top_b_first is None:
        return [whole]
    couple = sum(_chi_squared(pair) for pair in half_pairs(boldest, levels)) / hiding(0.0)
    return [whole, max(whole, couple)]


def _chi_squared(pair: HiddenPair) -> float:
    return float(((pair.first - pair.second) ** 2 / np.maximum(pair.blanket, 1e-300)).sum())
