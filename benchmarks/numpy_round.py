"""One round of Algorithm 1 in plain vectorised NumPy: the yardstick of `make bench`.

Written to be fast without compiled loops: users in blocks that fit the caches, float32 throughout, one random
number a draw, in-place ufuncs. It does what Algorithm 1 says: gradient, clip, Clip-Laplace by inversion of its
distribution function, an independent permutation a coordinate, mean, calibration by a look-up table.
"""

import numpy as np
from numpy.typing import NDArray

from apes.mathematics.laws import ClipLaplace


def clip_laplace(
    values: NDArray[np.float32], budgets: NDArray[np.float32], clip: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw CLap(value, 2C / epsilon, C) for a block (users x coordinates) of clipped values."""
    e = budgets[:, None]
    a = values * np.float32(0.5 / clip)
    a += np.float32(0.5)
    left = np.expm1(-e * a)  # minus the mass below a, not normalised
    right = np.expm1(e * a - e)
    y = rng.random(values.shape, dtype=np.float32)
    y *= left + right  # in (-(both masses), 0]
    y -= left  # above 0: the draw is below a
    distance = np.log1p(-np.abs(y))
    distance /= e
    np.copysign(distance, -y, out=distance)
    a += distance
    a -= np.float32(0.5)
    a *= np.float32(2 * clip)
    return a


def gradients(
    weights: NDArray[np.float32], images: NDArray[np.float32], one_hot: NDArray[np.float32], per_user: int
) -> NDArray[np.float32]:
    """Gradients (users, classes, features + 1) of a block of users with equally many images."""
    logits = images @ weights.T
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits -= one_hot
    logits /= np.float32(per_user)
    residuals = logits.reshape(-1, per_user, weights.shape[0]).transpose(0, 2, 1)
    return np.asarray(residuals @ images.reshape(-1, per_user, images.shape[1]), dtype=np.float32)


def round_of_algorithm_1(
    weights: NDArray[np.float32],
    images: NDArray[np.float32],
    labels: NDArray[np.uint8],
    budgets: NDArray[np.float64],
    clip: float,
    rng: np.random.Generator,
    block: int = 64,
) -> NDArray[np.float64]:
    """Return the calibrated mean gradient (d,) of one round; ``images`` carry a last column of ones."""
    users, classes = budgets.size, weights.shape[0]
    per_user = images.shape[0] // users
    one_hot = np.eye(classes, dtype=np.float32)[labels]
    single = budgets.astype(np.float32)
    reports = np.empty((users, weights.size), dtype=np.float32)
    for start in range(0, users, block):
        stop = min(start + block, users)
        rows = slice(start * per_user, stop * per_user)
        gradient = gradients(weights, images[rows], one_hot[rows], per_user).reshape(stop - start, -1)
        np.clip(gradient, -clip, clip, out=gradient)
        reports[start:stop] = clip_laplace(gradient, single[start:stop], clip, rng)
    rng.permuted(reports, axis=0, out=reports)
    mean = reports.mean(axis=0, dtype=np.float64)
    grid = np.linspace(-clip, clip, 1001)
    nodes = np.quantile(budgets, np.linspace(0, 1, 257))
    expected = ClipLaplace(grid[:, None], nodes[None, :], clip).mean().mean(axis=1)
    return np.asarray(np.interp(mean, expected, grid))
