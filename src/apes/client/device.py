"""A device's side of a round: the same stages as in the simulation, on the operating system's randomness."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.client.randomizer import CodedClipLaplace
from apes.client.sparsifier import DeviceSparsifier
from apes.mathematics.randomness import SystemSource
from apes.models.updates import Updater
from apes.population import UserBlock


@dataclass(frozen=True)
class DeviceClient:
    """What a device or a silo runs: raw data and model to levels, which may leave once they are sealed.

    Args:
        updater: Raw data and model to update.
        randomizer: Update to levels.
        sparsifier: What keeps part of the levels only, or None.

    Guarantee:
        Every coordinate is epsilon-LDP with its user's budget, exactly.
    """

    updater: Updater
    randomizer: CodedClipLaplace
    sparsifier: DeviceSparsifier | None = None

    def levels(self, weights: NDArray[np.float32], block: UserBlock, source: SystemSource) -> NDArray[np.uint8]:
        """Levels of a block of users: array (users, coordinates).

        Args:
            weights: The global model, (classes, features + 1).
            block: The users' raw data and budgets.
            source: Randomness that nobody can foresee.
        """
        scratch = np.empty(block.budgets.size * weights.size, dtype=np.float32)
        updates = self.updater.prepare(weights, block).coordinates(0, weights.size, scratch)
        # Weights that a hostile server chose may overflow on some data and not on other: that must not show as an
        # error, so it becomes a report like any other.
        np.nan_to_num(updates, copy=False, nan=0.0)
        if self.sparsifier is None:
            return self.randomizer.draw_on_device(updates, block.budgets, source)
        return self.sparsifier.draw_on_device(updates, block.budgets, self.randomizer, source)
