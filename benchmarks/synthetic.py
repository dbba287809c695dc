"""Populations of any size: users made on the fly from one pool of images, so that memory does not grow with them."""

import numpy as np
from numpy.typing import NDArray

from apes.population import UserBlock


class SyntheticPopulation:
    """Users who each hold ``per_user`` images picked from a pool by a formula of the user's number.

    Args:
        images: The pool, (images, features).
        labels: Its classes.
        budgets: One budget per user.
        per_user: Images per user.
    """

    def __init__(
        self, images: NDArray[np.float32], labels: NDArray[np.uint8], budgets: NDArray[np.float64], per_user: int = 6
    ) -> None:
        self._images, self._labels, self._per_user = images, labels, per_user
        self.budgets, self.digest = budgets, "synthetic"

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1."""
        rows = np.arange(start * self._per_user, stop * self._per_user)
        # A full-period multiplicative walk over the pool: neighbours hold unlike images, nothing is stored.
        picked = rows * 40_503 % self._images.shape[0]
        offsets = np.arange(stop - start + 1) * self._per_user
        return UserBlock(start, self.budgets[start:stop], self._images[picked], self._labels[picked], offsets)
