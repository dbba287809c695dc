"""The client's side of a round: update, perturb, sparsify; block by block, part by part."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.client.randomizer import Place, Randomizer
from apes.client.sparsifier import Sparsifier
from apes.mathematics.randomness import SimulationSource
from apes.messages import Report
from apes.models.updates import Updater
from apes.population import UserBlock

# Bounds a block's memory for large models; smaller parts only cost calls (measured from 1024 up).
_COORDINATES_AT_ONCE = 8192


@dataclass(frozen=True)
class Client:
    """What every user runs; a device is a block of one.

    Args:
        updater: Raw data and model to update.
        randomizer: Update to perturbed report.
        sparsifier: What is done to the report afterwards, or None.
    """

    updater: Updater
    randomizer: Randomizer
    sparsifier: Sparsifier | None = None

    def reports(self, weights: NDArray[np.float32], block: UserBlock, source: SimulationSource) -> Iterator[Report]:
        """Yield a block's reports, some coordinates at a time.

        Args:
            weights: The global model, (classes, features + 1).
            block: The users' raw data and budgets.
            source: The round's randomness.
        """
        update = self.updater.prepare(weights, block)
        tables = self.randomizer.prepare(block.budgets)
        parts = list(self._parts(weights.size))
        # One piece of memory for all parts: fresh pages would cost more than the arithmetic on them saves.
        scratch = np.empty(block.budgets.size * max(stop - start for start, stop in parts), dtype=np.float32)
        for start, stop in parts:
            place = Place(block.first_user, start)
            values = self.randomizer.draw(update.coordinates(start, stop, scratch), tables, place, source)
            if self.sparsifier is not None:
                values = self.sparsifier.apply(values, tables, self.randomizer, place, source)
            yield Report(values, block.budgets, block.first_user, start)

    def _parts(self, dimensions: int) -> Iterator[tuple[int, int]]:
        whole = self.sparsifier is not None and self.sparsifier.needs_whole_update
        parts = 1 if whole else -(-dimensions // _COORDINATES_AT_ONCE)
        for part in range(parts):
            yield part * dimensions // parts, (part + 1) * dimensions // parts
