"""Local guarantees: what all reports of one user reveal to somebody who sees who sent them.

A coordinate is epsilon-LDP with its user's budget (docs/reports.md), so the d coordinates of a round are d epsilon
together. What a sparsifier does to them afterwards can only lower that:

| sparsifier        | epsilon of a user and round | why                                                              |
|-------------------|-----------------------------|------------------------------------------------------------------|
| none, threshold   | d e                         | composition; a threshold is post-processing of each report       |
| random-b          | b e                         | which b are kept, and what replaces the others, is not from data |
| top-b-first       | 2 b e                       | two updates with b coordinates each differ in 2 b at most        |
| top-b             | min(d e, b e + (d - b) c)   | c is what not being among the b largest tells: docs/proofs.md, 8 |
"""

import math

import numpy as np

from apes.accounting.certificate.blanket import table_error
from apes.accounting.certificate.curve import LARGEST_BUDGET, check_levels
from apes.checks import positive, whole
from apes.mathematics.levels import level_probabilities
from apes.mathematics.thresholds import MAX_LEVELS

# Relative, for sums of up to 256 probabilities and a logarithm: their rounding is below 1e-13.
_ROUNDING = 1e-12


def local_user_epsilon(
    budget: float, dimensions: int, kept: int | None = None, levels: int | None = MAX_LEVELS
) -> float:
    """Bound the local privacy loss of all of a user's coordinates in one round; for random-b, ask for b dimensions.

    The budget is in nats per coordinate and round, kept is b in [1, d] where top-b chooses by size. The answer is in
    nats, at delta = 0, rounded up.

    Guarantee:
        For any two updates of the user and any set S of what the device may send, P(S) <= exp(epsilon) P'(S), however
        ties between reports of equal size are broken. The user's budget is public and the same on both sides.

    >>> local_user_epsilon(1.0, 7850) <= 7850.000001
    True
    >>> round(local_user_epsilon(1.0, 7850, kept=1570))  # d = 7,850, b = d / 5; the claim b e would be 1570
    3330
    """
    budget, levels = positive("budget", budget), check_levels(levels)
    dimensions = whole("dimensions", dimensions, 1)
    total = dimensions * budget
    if kept is not None:
        kept = whole("kept", kept, 1, dimensions)
        total = min(total, kept * budget + (dimensions - kept) * unchosen_epsilon(budget, levels))
    # A sum of products of two numbers, raised above its own rounding.
    return total * (1 + 2.0**-50)


def unchosen_epsilon(budget: float, levels: int | None) -> float:
    """Bound what it tells about one coordinate, in nats, that its report was not among the largest; rounded up.

    Continuous: log((1 + exp(e/2)) / 2). On K levels, with P_j(size ...) the law of a report's size on an input of
    level j, and t the smallest size that was kept:
      max over t of the smaller of
        A_t = max over s <= t of log(max_j P_j(size = s) / min_j P_j(size = s)) and
        C_t = log(max_j P_j(size <= t) / min_j P_j(size < t)).

    >>> round(unchosen_epsilon(1.0, 256), 5), round(unchosen_epsilon(1.0, None), 5)
    (0.28019, 0.28093)
    """
    budget, levels = positive("budget", budget), check_levels(levels)
    if levels is None:
        loss = float(np.logaddexp(0.0, budget / 2)) - math.log(2)
        # The difference of two numbers of size 1 or e cancels for small budgets: its error is that of the larger.
        return min(budget, loss + _ROUNDING * max(1.0, budget))
    if budget > LARGEST_BUDGET:
        # The integers of a table say nothing about ratios there.
        return budget
    # Laws of size, inputs x sizes, smallest size first: levels k and K - 1 - k are of one size.
    table, half = level_probabilities(np.array([budget]), levels)[0], levels // 2
    sizes = (table + table[:, ::-1])[:, levels - half :]
    if levels % 2:
        sizes = np.hstack([table[:, half : half + 1], sizes])
    one_size = np.maximum.accumulate(sizes.max(axis=0) / sizes.min(axis=0))
    up_to = np.cumsum(sizes, axis=1)
    # The smallest size has nothing below it: there A_t alone holds.
    chain = np.append(np.inf, up_to[:, 1:].max(axis=0) / up_to[:, :-1].min(axis=0))
    loss = math.log(float(np.minimum(one_size, chain).max()))
    # Realised probabilities are within a factor 1 + eta of the ideal ones on both sides of the ratio.
    return min(budget, loss + 2 * math.log1p(table_error(budget)) + _ROUNDING)
