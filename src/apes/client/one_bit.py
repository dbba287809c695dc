"""Reports of one bit per coordinate, on updates whose norm is bounded as well: |x_j| <= C for all j and |x|_2 <= R."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from apes.checks import finite, positive, within
from apes.client.clip import MOST_COORDINATES, norm_limit
from apes.client.draws.bits import draw_bits, draw_bits_on_device
from apes.client.kept_tables import KeptTables
from apes.client.randomizer import CodedClipLaplace, Place, Randomizer, as_block
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, U8, U64
from apes.mathematics.randomness import SimulationSource, SystemSource
from apes.mathematics.thresholds import flip_thresholds

_KEPT = KeptTables()


@dataclass(frozen=True)
class OneBit(Randomizer):
    """Clip-Laplace on two levels, which is a sign rounded at random and flipped; exact in integers.

    Guarantee:
        Every coordinate is epsilon-LDP with its user's epsilon, to the last bit, and no update is longer than R,
        whatever data and model are (`apes.client.clip.clip_norm`).
    """

    norm: float  # R, in (0, inf), in the unit of C
    levels: ClassVar[int] = 2
    needs_whole_update: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # Steps per unit of update must be a finite float32.
        within("clip", positive("clip", self.clip), 1e-30, 1e30)
        positive("norm", self.norm)

    def prepare(self, budgets: F64) -> U64:
        """Flip thresholds of a block of users; kept, since the same blocks come again every round."""
        budgets = np.asarray(budgets, dtype=np.float64)
        return _KEPT.get((budgets.tobytes(), 2), lambda: flip_thresholds(budgets))

    def draw(self, updates: F32, tables: U64, place: Place, source: SimulationSource) -> U8:
        """Bits drawn from the simulation's randomness, of whole updates."""
        updates, bits = _whole_updates(updates, tables.size), np.empty(updates.shape, dtype=np.uint8)
        limit = norm_limit(self.norm, self.clip)
        address = place.address(source, updates.shape)
        if not draw_bits(updates, tables, self.clip, limit, address, source.key, bits):
            finite("updates", updates)
            raise ParameterError("updates must be finite")
        return bits

    def draw_on_device(self, updates: F32, budgets: F64, source: SystemSource) -> U8:
        """Bits drawn in constant time from the operating system's randomness, of whole updates."""
        updates = _whole_updates(updates, budgets.size)
        finite("updates", updates)
        limit = norm_limit(self.norm, self.clip)
        return draw_bits_on_device(updates, flip_thresholds(budgets), self.clip, limit, source)


DeviceRandomizer = CodedClipLaplace | OneBit
"""Randomizers that draw from the operating system's randomness."""


def _whole_updates(updates: F32, users: int) -> F32:
    updates = as_block(updates, users)
    if not updates.shape[1] <= MOST_COORDINATES:
        raise ParameterError(f"dimensions must be in [1, {MOST_COORDINATES}] with a norm, got {updates.shape[1]}")
    return updates
