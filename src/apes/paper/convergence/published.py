"""Theorem 3 of Liu et al. 2023 as printed, for comparison. published: not a bound; it is exceeded.

docs/convergence.md has the example, and the steps of the proof that fail.

The theorem: E[f(w_T) - f*] <= a1^T gap + (a1^T - 1) / (a1 - 1) (O(a2 C / min e) + O(a3 C^2 / min e^2)). Its Appendix B
has, in place of the two O terms, a2 sqrt(Q) + a3 Q with Q >= E[(eta_i - eta(gbar))^2] for one coordinate of one user
after calibration. That is computed here, with Q from the law.

Corrected, because the print cannot be meant: in Q the appendix has 8 C / min e for 8 C^2 / min e and once 2 C^2 for
8 C^2 (a second moment of -0.409 at C = 0.1, e = 1, where the law has 0.0102); Theorem 3 has the smoothness L in a2, its
proof the Lipschitz constant l of the loss. Kept, because they are the claim: no factor d, no 1 / n, a1, a2 and a3.
"""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from apes.checks import positive, positive_array, whole, within
from apes.errors import RegimeError
from apes.mathematics.arrays import F64
from apes.mathematics.laws import ClipLaplace
from apes.paper.convergence.bound import LARGEST, iterate_bound


@dataclass(frozen=True)
class PublishedAssumptions:
    """The theorem's assumptions, in its own letters.

    A gradient step s fits them with mu = 1 / s and alpha = L s: then w_i = w - s grad F_i, and grad h_i(w_i) is
    grad F_i(w_i) - grad F_i(w). The paper also asks that the Hessian be at least L, which with smoothness L leaves only
    multiples of the identity; mubar = L + mu rests on it.
    """

    smoothness: float  # L in (0, inf), of every F_i
    pl: float  # beta in (0, L]
    lipschitz: float  # l in (0, inf): |grad f| <= l (L2)
    proximal: float  # mu in (0, inf), weight of the proximal term
    inexactness: float  # alpha in [0, inf): |grad h_i(w_i)| <= alpha |grad F_i(w)|; not the step of Algorithm 1
    dissimilarity: float = 1.0  # B in [1, inf)

    def __post_init__(self) -> None:
        positive("smoothness", self.smoothness)
        positive("pl", self.pl, self.smoothness)
        positive("lipschitz", self.lipschitz)
        positive("proximal", self.proximal)
        within("inexactness", self.inexactness, 0, LARGEST)
        within("dissimilarity", self.dissimilarity, 1, LARGEST)

    def coefficients(self) -> tuple[float, float, float]:
        """Return a1 (a rate), a2 (weight of the noise's root mean square) and a3 (of its mean square), a2 with l."""
        L, beta, mu, alpha, B = self.smoothness, self.pl, self.proximal, self.inexactness, self.dissimilarity
        mubar = L + mu
        pull = (alpha * B - 1) / mu + L * B * (1 + alpha) / (mu * mubar) + L * (B * (1 + alpha) / mubar) ** 2
        return 1 + 2 * beta * pull, self.lipschitz * (1 / mu + B * L * (1 + alpha) / mubar), L / 2


def published_noise(budgets: ArrayLike, clip: float) -> float:
    """Return Q = 2 E[eta^2] + 2 E[eta]^2, at g = C and the smallest budget, where it is largest; squared units of clip.

    There, with lam = 2 C / e and x = 1 / (exp(e) - 1), E[eta] = 2 C x - lam, E[eta^2] = 2 lam^2 - (4 C^2 + 4 lam C) x.

    >>> round(published_noise([1.0, 2.0], 0.1), 6)  # the appendix, whose last line drops a term: 0.220538
    0.034305
    """
    law = ClipLaplace(positive("clip", clip), positive_array("budgets", budgets).min(), clip)
    bias = law.mean() - clip
    return float(2 * (law.var() + bias**2) + 2 * bias**2)


def published_bound(assumptions: PublishedAssumptions, budgets: ArrayLike, clip: float, rounds: int, gap: float) -> F64:
    """Return the printed figure after every round: rounds + 1 numbers, the first of which is gap.

    published: not a bound. A `RegimeError` if a1 >= 1: the Polyak-Lojasiewicz inequality then points the wrong way.
    """
    a1, a2, a3 = assumptions.coefficients()
    if not a1 < 1:
        raise RegimeError(f"a1 must be below 1 (a smaller step, or users more alike), got {a1:g}")
    noise = published_noise(budgets, clip)
    added = a2 * noise**0.5 + a3 * noise
    return iterate_bound(a1, added, whole("rounds", rounds, 1), within("gap", gap, 0, LARGEST))
