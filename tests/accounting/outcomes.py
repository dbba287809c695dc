"""All outcomes of the shuffled reports of small populations, with several coordinates each."""

import math
from collections import defaultdict
from itertools import product

# Relative and absolute error of these sums.
ORACLE = (1e-12, 1e-15)


def user_law(rows, update, choice, dimensions):
    """Law of one user's d reports: the input where a coordinate is kept, the middle level where it is not.

    ``choice`` lists (probability, kept set): made without looking at update or reports.
    """
    levels, law = rows.shape[1], defaultdict(float)
    # Perturb everything, choose, replace: the order in which the device of the paper does it.
    for reports in product(range(levels), repeat=dimensions):
        drawn = math.prod(rows[j, k] for j, k in zip(update, reports, strict=True))
        for weight, kept in choice:
            for padding in product(range(levels), repeat=dimensions - len(kept)):
                pads = iter(padding)
                out = tuple(reports[i] if i in kept else next(pads) for i in range(dimensions))
                law[out] += drawn * weight * math.prod(rows[levels // 2, k] for k in padding)
    return law


def add_user(law, user):
    """The law of the shuffled reports with one user more: every coordinate sorted by itself."""
    result = defaultdict(float)
    for columns, before in law.items():
        for reports, probability in user.items():
            key = tuple(tuple(sorted((*column, k))) for column, k in zip(columns, reports, strict=True))
            result[key] += before * probability
    return result


def divergence(first, second, t):
    return sum(max(0.0, mass - math.exp(t) * second.get(key, 0.0)) for key, mass in first.items())
