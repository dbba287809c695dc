"""Clipped sums of updates that are combinations of each user's own rows, without writing any update out.

With update = sum_i a_i (x_i, 1)^T, the squared norm is sum_ik <a_i, a_k> (<x_i, x_k> + 1): inner products of rows do
not change from round to round, and a user has few rows. The sum of all updates, each scaled by s, is one matrix
product sum_i s a_i (x_i, 1)^T over everybody's rows.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from apes.mathematics.arrays import F32, F64
from apes.models.logistic import LogisticRegression
from apes.population import Population, UserBlock

# Sums are of single precision within a block: always of the same users, whoever works.
_USERS_AT_ONCE = 512
# With more rows per user the updates themselves are less work.
_MOST_ROWS = 16


class RowSums:
    """Sums for one model and the people who train it; inner products of their rows are kept."""

    def __init__(self, model: LogisticRegression, people: Population) -> None:
        self._model = model
        users = people.budgets.size
        blocks = pairwise([*range(0, users, _USERS_AT_ONCE), users])
        self._blocks = [_Rows.of(people.block(*block)) for block in blocks]

    @staticmethod
    def suits(people: Population) -> bool:
        """Whether everybody has so few rows that this is less work than their updates."""
        offsets = people.block(0, people.budgets.size).offsets
        return int(np.diff(offsets).max()) <= _MOST_ROWS

    def clipped(self, weights: F32, norm: float, threads: int) -> F64:
        """Sum of everybody's updates, each scaled down to a norm of at most R."""

        def of_block(rows: _Rows) -> F32:
            coefficients = self._model.prepare(weights, rows.block).coefficients
            norms = np.sqrt(rows.squared_norms(coefficients))
            scales = np.minimum(1, norm / np.maximum(norms, norm)).astype(np.float32)
            scaled = coefficients * np.repeat(scales, np.diff(rows.block.offsets))[:, None]
            return np.hstack([scaled.T @ rows.block.features, scaled.sum(axis=0)[:, None]])

        # In the order of users, so that the sum does not depend on threads.
        if threads == 1:
            sums = list(map(of_block, self._blocks))
        else:
            with ThreadPoolExecutor(threads) as pool:
                sums = list(pool.map(of_block, self._blocks))
        return np.asarray(np.sum(sums, axis=0, dtype=np.float64)).reshape(-1)


@dataclass(frozen=True, eq=False)
class _Rows:
    """A block of users, and ``products[k][i]`` = <x_i, x_{i + k}> + 1 where both rows are of one user, else 0."""

    block: UserBlock
    products: list[F64]

    @classmethod
    def of(cls, block: UserBlock) -> "_Rows":
        rows, counts = block.features, np.diff(block.offsets)
        owner = np.repeat(np.arange(counts.size), counts)
        products = []
        for lag in range(int(counts.max())):
            last = len(rows) - lag
            inner = np.einsum("ij,ij->i", rows[:last], rows[lag:], dtype=np.float64) + 1
            products.append(np.where(owner[:last] == owner[lag:], inner, 0.0))
        return cls(block, products)

    def squared_norms(self, coefficients: F32) -> F64:
        """Of every user's update."""
        wide = coefficients.astype(np.float64)
        total = np.zeros(len(wide))
        for lag, products in enumerate(self.products):
            last = len(wide) - lag
            pairs = np.einsum("ij,ij->i", wide[:last], wide[lag:]) * products
            # A pair of different rows is met in both orders.
            total[:last] += pairs if lag == 0 else 2 * pairs
        # Roundings may leave less than nothing where rows cancel.
        return np.maximum(np.add.reduceat(total, self.block.offsets[:-1]), 0.0)
