"""Who holds what: users with their data and their budgets, handed out in blocks."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apes.checks import finite, positive_array
from apes.errors import ParameterError


@dataclass(frozen=True, eq=False)
class UserBlock:
    """Raw data of consecutive users; stays on the client's side.

    Attributes:
        first_user: Number of the first user of the block.
        budgets: Local budget epsilon of each user, per coordinate and round, in nats.
        features: Rows of all users' examples, user after user (float32).
        labels: Class of each row.
        offsets: User u of the block holds rows offsets[u] to offsets[u + 1].
    """

    first_user: int
    budgets: NDArray[np.float64]
    features: NDArray[np.float32]
    labels: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class Population(Protocol):
    """Anything that can hand out its users block by block."""

    @property
    def budgets(self) -> NDArray[np.float64]:
        """Local budgets of all users."""
        ...

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1."""
        ...


class InMemoryPopulation:
    """Users whose examples lie in one array, grouped by user."""

    def __init__(
        self,
        features: NDArray[np.float32],
        labels: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        budgets: NDArray[np.float64],
    ) -> None:
        self._budgets = positive_array("budgets", budgets)
        if offsets.shape != (self._budgets.size + 1,):
            raise ParameterError(
                f"offsets must have one entry more than the {self._budgets.size} budgets, got {offsets.size}"
            )
        if features.ndim != 2 or labels.shape != (features.shape[0],):
            raise ParameterError(f"labels must have one entry a row of features {features.shape}, got {labels.shape}")
        if offsets[0] != 0 or offsets[-1] != labels.size or (np.diff(offsets) < 1).any():
            raise ParameterError("offsets must rise from 0 to the number of rows, by at least 1 a user")
        if labels.min() < 0 or labels.max() > 255:
            raise ParameterError(f"labels must be in [0, 255], got {labels.min()} to {labels.max()}")
        with np.errstate(over="ignore"):
            self._features = np.ascontiguousarray(features, dtype=np.float32)
        finite("features", self._features)
        self._labels = np.ascontiguousarray(labels, dtype=np.uint8)
        self._offsets = offsets.astype(np.int64)

    @property
    def budgets(self) -> NDArray[np.float64]:
        """Local budgets of all users."""
        return self._budgets

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1, without copying their data."""
        if not 0 <= start < stop <= self._budgets.size:
            raise ParameterError(
                f"start and stop must be in order within [0, {self._budgets.size}], got {start}, {stop}"
            )
        rows = slice(self._offsets[start], self._offsets[stop])
        return UserBlock(
            first_user=start,
            budgets=self._budgets[start:stop],
            features=self._features[rows],
            labels=self._labels[rows],
            offsets=self._offsets[start : stop + 1] - self._offsets[start],
        )
