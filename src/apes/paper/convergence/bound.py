"""How fast training converges under Clip-Laplace and calibration: a bound that is proved.

The setting is Algorithm 1 with continuous reports: w+ = w - s ghat, where ghat is the calibrated mean report. The proof
is in docs/convergence.md, which also says what is wrong with Theorem 3 of the paper; that theorem, as printed, is in
`apes.paper.convergence.published`. The two share their purpose, smoothness, the Polyak-Lojasiewicz inequality and the
dissimilarity B; ours needs neither a Lipschitz loss nor a proximal step, counts the dimensions, and shrinks with n.
"""

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from apes.checks import positive, whole, within
from apes.errors import RegimeError
from apes.mathematics.arrays import F64
from apes.paper.convergence.calibration_error import CalibrationError

LARGEST = 1e150


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of the mean loss f and of the users' losses F_i.

    Users differ by mean_i |grad F_i - grad f|^2 <= zeta^2 + (B^2 - 1) |grad f|^2 (L2, zeta in units of the gradient);
    zeta = 0 is the paper's B-dissimilarity: all users share one optimum.
    """

    smoothness: float  # L in (0, inf): the gradient of f is L-Lipschitz
    pl: float  # beta in (0, L]: f - f* <= |grad f|^2 / (2 beta) (Polyak-Lojasiewicz); beta-strongly convex is enough
    dimensions: int  # d, at least 1
    dissimilarity: float = 1.0  # B in [1, inf)
    scatter: float = 0.0  # zeta in [0, inf)

    def __post_init__(self) -> None:
        positive("smoothness", self.smoothness)
        positive("pl", self.pl, self.smoothness)
        whole("dimensions", self.dimensions, 1)
        within("dissimilarity", self.dissimilarity, 1, LARGEST)
        within("scatter", self.scatter, 0, LARGEST)


def convergence_bound(assumptions: Assumptions, error: CalibrationError, step: float, rounds: int, gap: float) -> F64:
    """Bound the expected loss gap after every round.

    Theorem. While every coordinate of every user's gradient is in [-G, G], G < C, and s <= 1 / L,
    E[f(w_T) - f*] <= q^T gap + (1 + q + ... + q^(T-1)) r, with the smaller of two pairs (q, r):

    1. q = 1 - s beta (1 - b1 - L s rho^2 (B^2 - 1) / chord^2),
       r = (s/2) b0^2 / (1 - b1) + (L s^2 / 2) (d v / n + rho^2 zeta^2) / chord^2,
       where b0 + b1 |grad f| bounds the bias: with h = rho (1 + bend rho G) / slope, b1 = h sqrt(B^2 - 1) and
       b0 = h zeta + sqrt(d) bend v / (n slope); v, chord, slope, rho, bend are variance to bend of `error`;
    2. q = 1 - s beta, r = (s/2) d (C + G)^2: no estimate is off by more than C + G.

    "While" is meant so: a run counts in round t if its gradients kept within [-G, G] in all rounds before t, else as 0.
    Proved in real arithmetic for the exact inverse; the package has a table of it, which moves an estimate by less than
    1e-6 C for mean gradients up to C / 4.

    The step s is in (0, 1 / L], else a `RegimeError` is raised; rounds T at least 1; gap = f(w_0) - f* in [0, inf).
    Returned are T + 1 numbers, the first of which is gap.
    """
    step, rounds, gap = positive("step", step), whole("rounds", rounds, 1), within("gap", gap, 0, LARGEST)
    if not step * assumptions.smoothness <= 1:
        raise RegimeError(f"step must be at most 1 / smoothness = {1 / assumptions.smoothness:g}, got {step:g}")
    worst = assumptions.dimensions * (error.clip + error.reach) ** 2
    saturated = iterate_bound(1 - step * assumptions.pl, step / 2 * worst, rounds, gap)
    return np.minimum(iterate_bound(*_calibrated(assumptions, error, step), rounds, gap), saturated)


def iterate_bound(rate: float, noise: float, rounds: int, gap: float) -> F64:
    """Return gap, then rate x (the last) + noise, for so many rounds: rounds + 1 numbers."""
    return np.array(list(accumulate(range(rounds), lambda reached, _: rate * reached + noise, initial=gap)))


def _calibrated(assumptions: Assumptions, error: CalibrationError, step: float) -> tuple[float, float]:
    """Return the first pair (q, r) of the theorem; r is infinite where the users differ too much for it."""
    L, excess = assumptions.smoothness, assumptions.dissimilarity**2 - 1
    spread_bias = error.mismatch * (1 + error.bend * error.mismatch * error.reach) / error.slope
    noise_bias = math.sqrt(assumptions.dimensions) * error.bend * error.variance / (error.users * error.slope)
    b0, b1 = spread_bias * assumptions.scatter + noise_bias, spread_bias * math.sqrt(excess)
    kept = 1 - b1 - L * step * error.mismatch**2 * excess / error.chord**2
    if not kept > 0:
        return 1.0, math.inf
    noise = assumptions.dimensions * error.variance / error.users + (error.mismatch * assumptions.scatter) ** 2
    added = step / 2 * b0**2 / (1 - b1) + L * step**2 / 2 * noise / error.chord**2
    return 1 - step * assumptions.pl * kept, added
