"""What an update of bounded L2 norm costs on two levels, |x_j| <= C and |x|_2 <= R, whatever its dimension.

Behind the shuffler a round is a Gaussian shift proportional to R / C (docs/proofs.md, 16). Before it, if somebody sees
who sent what, the Renyi divergences of the bits add up to those of another Gaussian, and give a local figure.
"""

import math

import numpy as np
from scipy.special import ndtri

from apes.accounting.certificate.curve import check_delta
from apes.checks import positive, whole

# Cells of [0, 1] in which the factor is bounded, and orders of the Renyi divergence that are tried.
_CELLS, _ORDERS = 1 << 14, 2001


def norm_shift(shift: float, ratio: float, allowance: float) -> float:
    """Gaussian shift mu of all coordinates of a round together, rounded up: between 1 and sqrt(2) times shift * ratio.

    Guarantee:
        If the two ends of one coordinate are at most g_c + delta_0 in both directions, c being ``shift`` > 0, then
        updates of at most d coordinates with |x_j| <= C and |x|_2 <= ratio C are at most
        g_mu + d (delta_0 + allowance). For ratio > sqrt(d), c sqrt(d) may be less: the caller takes the smaller one.

    Args:
        shift: c, in standard deviations, in (0, inf).
        ratio: R / C, in (0, inf).
        allowance: Probability that a coordinate's evidence gets out of bounds, in (0, 1); smaller makes mu larger.
    """
    c, ratio, allowance = positive("shift", shift), positive("ratio", ratio), check_delta(allowance, "allowance")
    # 4 Phi(-(z - c/2)) = allowance.
    z = c / 2 - float(ndtri(allowance / 4)) * (1 + 1e-9)
    w = -math.expm1(-c * z * (1 + 1e-9))
    # The largest (1 - v) / sqrt((1 - v)^2 + v^2) / (1 - v w): the first factor falls with v, the second one grows.
    v = np.linspace(0, 1, _CELLS + 1)
    falling, growing = (1 - v) / np.hypot(1 - v, v), 1 / np.maximum(1 - v * w, 1e-300)
    factor = float((falling[:-1] * growing[1:]).max())
    # 1 / (1 - v w) is at most 1 / (1 - v): so never more than sqrt(2).
    return min(factor, math.sqrt(2)) * c * ratio * (1 + 1e-9)


def local_norm_epsilon(budget: float, ratio: float, delta: float, rounds: int = 1) -> float:
    """Epsilon at delta of all bits that a user sends, if it is seen who sent what, rounded up; of any dimension.

    Neighbours: any two updates with |x_j| <= C and |x|_2 <= R. d times the budget per round, which holds too, may be
    less: the caller takes the smaller one.

    Args:
        budget: Local budget per bit, nats, in (0, inf).
        ratio: R / C, in (0, inf).
        delta: In (0, 1).
        rounds: At least 1; updates may depend on what was sent before.
    """
    budget, ratio, delta = positive("budget", budget), positive("ratio", ratio), check_delta(delta)
    # The Renyi divergence of order a is at most a rho.
    rho = max(whole("rounds", rounds, 1) * (budget * ratio) * (budget * ratio) / 2, 1e-200)
    if rho > 1e200:
        return math.inf
    need = -math.log(delta)
    less = np.geomspace(1 / 16, 16, _ORDERS) * math.sqrt(need / rho)  # a - 1
    # Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Proposition 12, at any order a.
    added, saved = (1 + less) * rho + need / less, np.log1p(1 / less) + np.log1p(less) / less
    return max(0.0, float((added * (1 + 1e-12) - saved * (1 - 1e-12)).min()))
