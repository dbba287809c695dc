"""The only types that cross a boundary between the parties.

A `Report` goes from the users to the shuffler, a shuffled batch from the shuffler to the analyzer; an `Estimate` is
what the analyzer makes of it. The analyzer's functions take batches only, so handing them reports does not type-check.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Report:
    """Perturbed coordinates of a block of users, on their way to the shuffler.

    Attributes:
        values: Levels (uint8) or values (float32), users x coordinates.
        budgets: The users' local budgets.
        first_user: Who sent the first row; known to the shuffler, never passed on.
        first_coordinate: Which coordinate the first column is.
    """

    values: NDArray[np.uint8] | NDArray[np.float32]
    budgets: NDArray[np.float64]
    first_user: int
    first_coordinate: int


@dataclass(frozen=True, eq=False)
class CountedBatch:
    """Coded reports after shuffling: how often each level occurs in each coordinate.

    Says exactly as much as the permuted reports and no more.

    Attributes:
        counts: Array (coordinates, levels); every row sums to the number of users.
        budgets: The users' budgets in an order of their own.
    """

    counts: NDArray[np.int64]
    budgets: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PermutedBatch:
    """Reports after shuffling, each coordinate (row) in an order of its own.

    Attributes:
        values: Array (coordinates, users) of values (float32) or levels (uint8).
        budgets: The users' budgets in an order of their own.
    """

    values: NDArray[np.float32] | NDArray[np.uint8]
    budgets: NDArray[np.float64]

    def counted(self, levels: int) -> CountedBatch:
        """The same batch of levels, as counts."""
        rows = [np.bincount(row, minlength=levels) for row in self.values]
        return CountedBatch(np.stack(rows).astype(np.int64), self.budgets)


@dataclass(frozen=True, eq=False)
class SummedBatch:
    """Reports of a framework without a shuffler, added up.

    Attributes:
        mean: Mean report of each coordinate.
        budgets: The users' budgets.
    """

    mean: NDArray[np.float64]
    budgets: NDArray[np.float64]


Batch = CountedBatch | PermutedBatch | SummedBatch


@dataclass(frozen=True, eq=False)
class Estimate:
    """The analyzer's estimate of the users' mean clipped update.

    Attributes:
        mean: One number per coordinate.
        standard_error: The noise of one coordinate's estimate near zero, from the public budgets alone.
    """

    mean: NDArray[np.float64]
    standard_error: float
