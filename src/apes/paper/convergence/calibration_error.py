"""What the Clip-Laplace law does to a mean gradient, and what its calibration can get wrong.

Letters: C clip, G reach (the largest coordinate of any user's gradient), lam = 2 C / epsilon, m_i(g) the mean report of
user i on input g, M the mean of m_i over the users; the calibrator reads the gradient off M. Proofs of what is used
here: docs/convergence.md, section 2.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

from apes.checks import positive, positive_array, within
from apes.errors import RegimeError
from apes.mathematics.arrays import F64
from apes.mathematics.laws import ClipLaplace

# Points on [0, G] at which variances are taken; what may happen between them is added.
_GRID = 65
# Below this slope of the calibration curve (budgets of about 1e-29) its powers leave the range of float64.
_SMALLEST_CHORD = 1e-30


def report_slope(location: ArrayLike, epsilon: ArrayLike, clip: float) -> F64:
    """Return m'(g), how fast the mean Clip-Laplace report moves with the input.

    m'(g) = Cov(z, sign(z - g)) / lam. With l = (C + g) / lam, r = (C - g) / lam, L = 1 - exp(-l), R = 1 - exp(-r) and
    P2 the incomplete gamma function this is 2 (R P2(l) + L P2(r)) / (L + R)^2. It is even, falls with |g|, starts at
    1 - a / (exp(a) - 1), a = epsilon / 2, and is exactly 0 at the clip. g is in [-C, C], epsilon (per coordinate, in
    nats) and C in (0, inf); g and epsilon may be arrays.
    """
    law = ClipLaplace(np.asarray(location, dtype=np.float64), np.asarray(epsilon, dtype=np.float64), clip)
    left, right = (law.clip + law.location) / law.scale, (law.clip - law.location) / law.scale
    mass_left, mass_right = -np.expm1(-left), -np.expm1(-right)
    crossed = mass_right * gammainc(2, left) + mass_left * gammainc(2, right)
    return np.asarray(2 * crossed / (mass_left + mass_right) ** 2)


@dataclass(frozen=True)
class CalibrationError:
    """What bounds the error of a calibrated coordinate while every user's gradient is in [-G, G].

    With D = (mean report) - M(mean gradient): E[D^2] <= variance / users + offset^2, |E D| <= offset, where
    offset = mismatch * (root mean square distance of the users' coordinates from their mean). The estimate is off by
    at most |D| / chord, and its mean by at most (|E D| + bend E[D^2]) / slope.
    """

    users: int  # n
    clip: float  # C
    reach: float  # G, in (0, C)
    variance: float  # mean over the users of the largest variance of a report, in squared units of clip
    chord: float  # smallest slope of a chord of M from [-G, G] to [-C, C]
    slope: float  # smallest slope of M on [-G, G]
    mismatch: float  # how far the users' m_i are from one common straight line: root mean square of slopes
    bend: float  # weight of E[D^2] in the bias, one over units of clip


def calibration_error(budgets: ArrayLike, clip: float, reach: float) -> CalibrationError:
    """Return the constants of the paper's calibration for continuous reports of users with these budgets (nats).

    clip is in [1e-30, 1e30], reach in (0, clip): the curve is flat at the clip and cannot be inverted there. That, and
    budgets too small to tell the curve from a constant, raise a `RegimeError`.
    """
    epsilon = positive_array("budgets", budgets)
    clip, reach = within("clip", clip, 1e-30, 1e30), positive("reach", reach)
    if not reach < clip:
        raise RegimeError(f"reach must be below clip {clip:g}, where the mean report does not move; got {reach:g}")
    steep, flat = report_slope(0.0, epsilon, clip), report_slope(reach, epsilon, clip)
    mean_reports = ClipLaplace(np.array([[reach], [clip]]), epsilon, clip).mean().mean(axis=1)
    chord = float(mean_reports[1] - mean_reports[0]) / (clip - reach)
    if not chord > _SMALLEST_CHORD:
        raise RegimeError(f"budgets must move the mean report; its slope is {chord:g} at a mean of {epsilon.mean():g}")
    middle, half = (steep + flat) / 2, (steep - flat) / 2
    farthest = np.abs(middle - middle.mean()) + half
    mismatch = float(np.sqrt((farthest**2).mean()))
    bend = float(_curvature(epsilon, clip).mean()) / (2 * chord**2) + 1 / (4 * chord * (clip - reach))
    variance = float(_largest_variance(epsilon, clip, reach).mean())
    return CalibrationError(epsilon.size, clip, reach, variance, chord, float(flat.mean()), mismatch, bend)


def _largest_variance(epsilon: F64, clip: float, reach: float) -> F64:
    """Return an upper bound of Var z over |g| <= G for every budget.

    |d Var / dg| = |Cov((z - E z)^2, sign(z - g))| / lam <= (C + G)^2 / (2 lam), so half a spacing of that is added for
    what lies between grid points. Also Var <= C^2 / 3, because the law is log-concave on its interval, and
    Var <= E[(z - g)^2] <= 2 lam^2.
    """
    grid = np.linspace(0, reach, _GRID)
    on_grid = np.zeros_like(epsilon)
    for location in grid:  # one at a time: a million users times the grid would not fit into memory
        on_grid = np.maximum(on_grid, ClipLaplace(location, epsilon, clip).var())
    between = epsilon * (clip + reach) ** 2 / (4 * clip) * (grid[1] / 2)
    return np.asarray(np.minimum(np.minimum(on_grid + between, clip**2 / 3), 8 * (clip / epsilon) ** 2))


def _curvature(epsilon: F64, clip: float) -> F64:
    """Return an upper bound of |m''| on [-C, C] for every budget: (4 t / (1 - exp(-epsilon)) + rest) / lam."""
    half = epsilon / 2
    mean_step = gammainc(2, half) / -np.expm1(-half)
    rest = np.minimum(epsilon / 12, 0.25)
    return np.asarray((4 * mean_step / -np.expm1(-epsilon) + rest) * epsilon / (2 * clip))
