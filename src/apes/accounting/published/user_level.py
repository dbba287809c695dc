"""From one coordinate to all of a user's coordinates, as the paper does it: advanced composition.

published: not a guarantee for different budgets (docs/published-bounds.md).
"""

import enum
import math
from typing import NamedTuple

from apes.accounting.certificate.curve import check_delta
from apes.checks import positive, whole
from apes.errors import ParameterError, RegimeError

# The paper's delta_uc, beside its tables: 7,850 coordinates of 4.62e-9 each.
_STATED_DELTA = 3.6e-5
_LARGEST_EXPONENT = 700.0


class DeltaConvention(enum.Enum):
    """Which delta stands in the logarithm of advanced composition; the paper's figures need all three.

    COORDINATE: delta_c, that of one coordinate (APES, 57.6).
    COMPOSED: m delta_c, over the m composed coordinates (S-APES, 25.6, with m = 2 b).
    STATED: 3.6e-5, the paper's delta_uc whatever the rest is (LDP-Min, 40.1).
    """

    COORDINATE = "coordinate"
    COMPOSED = "composed"
    STATED = "stated"


class UserLevel(NamedTuple):
    """A published figure for all coordinates of a user: epsilon in nats, and the whole delta that goes with it."""

    epsilon: float
    delta: float


def advanced_composition(epsilon: float, delta_prime: float, count: int) -> float:
    """Epsilon of count >= 1 mechanisms of epsilon each: Dwork and Roth 2014, Theorem 3.20; Lemma 2 of the paper.

    epsilon sqrt(2 count log(1/delta')) + count epsilon (exp(epsilon) - 1), at a total delta of delta' + count delta;
    in nats, inf where exp(epsilon) overflows.

    >>> round(advanced_composition(0.05, 3.6e-5, 7850), 2)  # LDP-Min in Table 3, printed as 40.1
    40.16
    """
    epsilon, count = positive("epsilon", epsilon), whole("count", count, 1)
    growth = math.expm1(epsilon) if epsilon < _LARGEST_EXPONENT else math.inf
    log_delta = math.log(check_delta(delta_prime, "delta_prime"))
    return epsilon * math.sqrt(-2 * count * log_delta) + count * epsilon * growth


def user_apes(epsilon_c: float, delta_c: float, dimensions: int, convention: DeltaConvention) -> UserLevel:
    """User-level figure of APES (Liu et al. 2023): advanced composition over all d coordinates of a round.

    epsilon_uc = advanced_composition(epsilon_c, delta', d), delta_uc = delta' + d delta_c; delta' by convention.
    RegimeError if the deltas add up to 1 or more.
    """
    return _compose(epsilon_c, delta_c, whole("dimensions", dimensions, 1), convention)


def user_s_apes(epsilon_c: float, delta_c: float, kept: int, convention: DeltaConvention) -> UserLevel:
    """User-level figure of S-APES, b coordinates kept: Proposition 1 of Liu et al. 2023, over 2 b coordinates.

    epsilon_uc = epsilon_c sqrt(4 b log(1/delta')) + 2 b epsilon_c (exp(epsilon_c) - 1),
    delta_uc = delta' + 2 b delta_c. The Proposition prints delta_uc itself in the logarithm, where Lemma 2 has
    delta'. Beyond what holds for all published figures, its count of 2 b is refuted: the choice of the b largest
    looks at all d perturbed values.
    """
    return _compose(epsilon_c, delta_c, 2 * whole("kept", kept, 1), convention)


def _compose(epsilon: float, delta: float, count: int, convention: DeltaConvention) -> UserLevel:
    if not isinstance(convention, DeltaConvention):
        raise ParameterError(f"convention must be a DeltaConvention, got {convention!r}")
    delta = check_delta(delta, "delta_c")
    delta_prime = {
        DeltaConvention.COORDINATE: delta,
        DeltaConvention.COMPOSED: count * delta,
        DeltaConvention.STATED: _STATED_DELTA,
    }[convention]
    total = delta_prime + count * delta
    if not total < 1:
        raise RegimeError(f"the deltas of {count} coordinates must add up to less than 1, got {total:g}")
    return UserLevel(advanced_composition(epsilon, delta_prime, count), total)
