"""The pessimistic privacy-loss distribution of one coordinate of one round, by connecting the points of its curve.

A divergence is convex in x = exp(t). Known from above at some points, it lies below the lines that connect them
("connect the dots": Doroshenko et al. 2022, arXiv:2207.04380). A broken line that is convex and does not increase is
itself the divergence of a pair of laws on its corners: Q has mass equal to the change of slope at a corner, P that mass
times x, and what is left of the curve past the last corner is a breach, mass that P has and Q has not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apes.accounting import Array
from apes.accounting.certificate.curve import PrivacyCurve
from apes.accounting.composition.lattice import UNIT, Lattice

# Points on either side of 0 at which a curve is evaluated.
_POINTS = 96


@dataclass(frozen=True, eq=False)
class CurvePoints:
    """A curve at the points step * k, k = -K .. K, from above; convex in exp(t) together with the point (0, 1)."""

    step: float
    deltas: Array

    @property
    def last(self) -> float:
        """The last point."""
        return self.step * (self.deltas.size // 2)


def curve_points(curves: Sequence[PrivacyCurve], breach: float) -> list[CurvePoints]:
    """Evaluate a curve that is its own mirror image, or one and that of its laws exchanged, on the same points.

    As far as it matters: ``breach`` in (0, 1) is what a single use may leave beyond the last point; it is counted.
    """
    last = max(curve.epsilon(breach, cells=32) or 0.01 * curve.budget for curve in curves)
    step = last / _POINTS
    # The last one at `last` itself: a unit below the budget the curve would not be 0.
    points = [*(step * k for k in range(_POINTS)), last]
    values = [np.array([curve.delta(t) for t in points]) for curve in curves]
    return [_both_sides(*sides, step) for sides in zip(values, reversed(values), strict=True)]


def _both_sides(values: Array, exchanged: Array, step: float) -> CurvePoints:
    """A curve from its values at points that are not negative, and from those of its laws exchanged."""
    t = step * np.arange(_POINTS, 0, -1)
    # delta(-t) = 1 - exp(-t) + exp(-t) delta(t) of the exchanged laws. A few units, for rounding.
    negative = (-np.expm1(-t) + np.exp(-t) * exchanged[:0:-1]) * (1 + 8 * UNIT)
    deltas = np.minimum.accumulate(np.minimum(np.concatenate([negative, values]), 1.0))
    return CurvePoints(step, convex_minorant(np.exp(step * np.arange(-_POINTS, _POINTS + 1)), deltas))


def losses(curve: CurvePoints, step: float) -> tuple[Lattice, float]:
    """Masses of P on multiples of a step, and the breach: a pair whose divergence is nowhere below the curve.

    Masses may add up to a little more than 1: products of measures dominate as those of laws do (docs/proofs.md, 7).
    """
    half = curve.deltas.size // 2
    corners = np.exp(curve.step * np.arange(-half, half + 1))
    if step == curve.step:
        reach, deltas = half, curve.deltas
    else:
        reach = max(1, int(np.ceil(curve.last / step)))
        # Past the last corner, not a unit before it.
        reach += np.exp(step * reach) < corners[-1]
        # Convex: lines between points of the broken line lie above it.
        deltas = _connected(np.exp(step * np.arange(-reach, reach + 1)), corners, curve.deltas)
    x = np.exp(step * np.arange(-reach, reach + 1))
    slopes = np.diff(np.append(1.0, deltas)) / np.append(x[0], x[:-1] * np.expm1(step))
    second = np.maximum(np.diff(np.append(slopes, 0.0)), 0)
    breach = float(deltas[-1])
    # The divergence of the masses as they came out, from the last point down, and at 0: sums of positive terms.
    after = np.cumsum(second[::-1])[::-1]
    reached = breach + np.append(np.cumsum((after[1:] * x[:-1] * np.expm1(step))[::-1])[::-1], 0.0)
    short = np.append(1 / (reached[0] + after[0] * x[0]), deltas / np.where(deltas > 0, np.maximum(reached, 1e-320), 1))
    # Whatever is missing somewhere is made up for by making everything larger; both sides are off by units per term.
    factor = max(1.0, float(short.max())) * (1 + 16 * x.size * UNIT)
    return Lattice(step, -reach, factor * second * x), factor * breach


def _connected(x: Array, corners: Array, deltas: Array) -> Array:
    """The broken line through (0, 1) and the corners, constant past the last; in positive terms, so nothing cancels."""
    xs, ys = np.append(0.0, corners), np.append(1.0, deltas)
    right = np.clip(np.searchsorted(xs, x), 1, xs.size - 1)
    x0, x1, y0, y1 = xs[right - 1], xs[right], ys[right - 1], ys[right]
    inside = (y1 * np.maximum(x - x0, 0) + y0 * np.maximum(x1 - x, 0)) / (x1 - x0) * (1 + 8 * UNIT)
    return np.asarray(np.where(x >= xs[-1], ys[-1], np.minimum(inside, y0)), dtype=np.float64)


def convex_minorant(x: Array, y: Array) -> Array:
    """Greatest convex function below the points, among them (0, 1), at the points: a divergence is convex in exp(t).

    Up to rounding, and never below it: whether a point is a corner may be decided wrongly where it hardly matters,
    which leaves a value too large; what is put on a line is rounded up.
    """
    xs, ys = np.concatenate([[0.0], x]), np.concatenate([[1.0], y])
    hull: list[int] = []
    for i in range(xs.size):
        while len(hull) >= 2:
            a, b = hull[-2], hull[-1]
            if (ys[b] - ys[a]) * (xs[i] - xs[a]) < (ys[i] - ys[a]) * (xs[b] - xs[a]):
                break
            hull.pop()
        hull.append(i)
    return _connected(x, xs[hull[1:]], ys[hull[1:]])
