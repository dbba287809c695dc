"""The client's side of a round: update, choose, clip, perturb, sparsify; block by block, part by part.

Simulated users and real devices run the same stages. A device draws from the operating system's randomness, in
constant time; a simulation draws from addressed randomness, so that results do not depend on blocks or threads.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from apes.checks import finite
from apes.client.one_bit import DeviceRandomizer
from apes.client.randomizer import Place, Randomizer
from apes.client.sparsifier import DeviceSparsifier, Sparsifier
from apes.client.top_b_first import top_b_first
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, U8
from apes.mathematics.randomness import SimulationSource, SystemSource
from apes.mathematics.scratch import borrowed
from apes.messages import Report
from apes.models.model import Model, PreparedUpdate, prepare_updates
from apes.population import UserBlock

# Bounds a block's memory for large models; smaller parts only cost calls (measured from 1024 up).
_COORDINATES_AT_ONCE = 8192


@dataclass(frozen=True)
class Client:
    """What every simulated user runs; `DeviceClient` is what a device runs.

    With ``kept_first``, users set all but that many of their largest coordinates to zero before perturbing.
    """

    model: Model
    randomizer: Randomizer
    sparsifier: Sparsifier | None = None
    kept_first: int | None = None

    def reports(self, weights: F32, block: UserBlock, source: SimulationSource) -> Iterator[Report]:
        """Yield a block's reports at the global model ``weights``, some coordinates at a time."""
        # Before anybody's model runs, and on a copy: it may be a stranger's.
        budgets = block.budgets.copy()
        tables = self.randomizer.prepare(budgets)
        update = _prepared(self, weights, block, on_device=False)
        is_whole = self.randomizer.needs_whole_update or (
            self.sparsifier is not None and self.sparsifier.needs_whole_update
        )
        count = 1 if is_whole else -(-weights.size // _COORDINATES_AT_ONCE)
        parts = list(pairwise(part * weights.size // count for part in range(count + 1)))
        with borrowed(budgets.size * max(stop - start for start, stop in parts)) as scratch:
            for start, stop in parts:
                place = Place(block.first_user, start)
                part = update.coordinates(start, stop, scratch)
                try:
                    values = self.randomizer.draw(part, tables, place, source)
                except ParameterError:
                    # Looked at once more to say whose they are: a look before every draw would cost a pass.
                    finite(f"{type(self.model).__name__}.prepare", part)
                    raise
                if self.sparsifier is not None:
                    values = self.sparsifier.apply(values, tables, self.randomizer, place, source)
                yield Report(values, budgets, block.first_user, start)


@dataclass(frozen=True)
class DeviceClient:
    """What a device or a silo runs: raw data and model to levels, which may leave once they are sealed.

    Not a `Client`: there is no way to have it draw from a simulation's randomness, which can be drawn again.

    Guarantee:
        Every coordinate is epsilon-LDP with its user's budget, exactly.
    """

    model: Model
    randomizer: DeviceRandomizer
    sparsifier: DeviceSparsifier | None = None
    kept_first: int | None = None

    def levels(self, weights: F32, block: UserBlock, source: SystemSource) -> U8:
        """Levels of a block of users at the global model ``weights``: array (users, coordinates)."""
        scratch = np.empty(block.budgets.size * weights.size, dtype=np.float32)
        updates = _prepared(self, weights, block, on_device=True).coordinates(0, weights.size, scratch)
        # Weights that a hostile server chose may overflow on some data and not on other: that must not show as an
        # error, so it becomes a report like any other.
        np.nan_to_num(updates, copy=False, nan=0.0)
        if self.sparsifier is None:
            return self.randomizer.draw_on_device(updates, block.budgets, source)
        return self.sparsifier.draw_on_device(updates, block.budgets, self.randomizer, source)


def _prepared(client: Client | DeviceClient, weights: F32, block: UserBlock, *, on_device: bool) -> PreparedUpdate:
    """A block's updates at the global model ``weights``, with their largest coordinates only if the client says so."""
    # A model that took its steps in place would carry one user's data into the updates of the next: memory of bytes
    # cannot be written to.
    broadcast = np.frombuffer(weights.tobytes(), dtype=np.float32)
    update = prepare_updates(client.model, broadcast, block, is_checked=not on_device)
    if client.kept_first is None:
        return update
    shape = block.budgets.size, weights.size
    return top_b_first(update, client.kept_first, shape, on_device=on_device)
