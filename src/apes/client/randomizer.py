"""Randomizers: what a user does to the clipped update before it leaves the device.

A randomizer is prepared once for a block of users (tables that depend on their budgets alone) and then draws any
part of their coordinates.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apes.checks import finite, positive, whole, within
from apes.client.draws.coded import draw_codes
from apes.client.draws.continuous import draw_clip_laplace, draw_clip_laplace_at_zero, draw_laplace
from apes.client.draws.device import draw_codes_on_device
from apes.client.draws.padding import draw_padding
from apes.client.kept_tables import KeptTables
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, U8, U64
from apes.mathematics.randomness import Address, Purpose, SimulationSource, SystemSource, check_addresses
from apes.mathematics.thresholds import MAX_LEVELS, acceptance_thresholds

_KEPT = KeptTables()
Values = U8 | F32
Tables = NDArray[Any]


@dataclass(frozen=True)
class Place:
    """Where in the population a block of draws belongs: with it, every simulated draw has its own randomness."""

    first_user: int
    first_coordinate: int
    purpose: Purpose = Purpose.REPORT

    def address(self, source: SimulationSource, shape: tuple[int, ...]) -> Address:
        """The place in a round's randomness of a block of this shape, users x coordinates."""
        users, coordinates = shape
        check_addresses("users", self.first_user, users)
        check_addresses("coordinates", self.first_coordinate, coordinates)
        return self.first_user, self.first_coordinate, source.stream(self.purpose)


@dataclass(frozen=True)
class Randomizer(ABC):
    """Perturbs blocks of updates, clipped to [-C, C], under their users' budgets."""

    clip: float  # C, in (0, inf)
    needs_whole_update: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("clip", self.clip)

    def prepare(self, budgets: F64) -> Tables:
        """Tables of a block of users: the budgets themselves, if nothing else is needed."""
        return budgets

    @abstractmethod
    def draw(self, updates: F32, tables: Tables, place: Place, source: SimulationSource) -> Values:
        """Perturbed updates (users x coordinates)."""

    def padding(self, tables: Tables, width: int, place: Place, source: SimulationSource) -> Values:
        """Perturbed zeros (users x width) under the tables' budgets: the law that `draw` has on updates of 0."""
        return self.draw(np.zeros((tables.shape[0], width), dtype=np.float32), tables, place, source)


@dataclass(frozen=True)
class CodedClipLaplace(Randomizer):
    """Clip-Laplace on K levels, exact in integers: what leaves a device.

    Guarantee:
        Every coordinate is epsilon-LDP with its user's epsilon, to the last bit (`apes.mathematics.thresholds`).
    """

    levels: int = MAX_LEVELS  # K in [2, 256]

    def __post_init__(self) -> None:
        # Levels per unit of update must be a finite float32.
        within("clip", positive("clip", self.clip), 1e-30, 1e30)
        whole("levels", self.levels, 2, MAX_LEVELS)

    def prepare(self, budgets: F64) -> U64:
        """Acceptance thresholds of a block of users; kept, since the same blocks come again every round."""
        budgets = np.asarray(budgets, dtype=np.float64)
        return _KEPT.get((budgets.tobytes(), self.levels), lambda: acceptance_thresholds(budgets, self.levels))

    def draw(self, updates: F32, tables: U64, place: Place, source: SimulationSource) -> U8:
        """Levels drawn from the simulation's randomness."""
        updates = as_block(updates, tables.shape[0])
        codes = np.empty(updates.shape, dtype=np.uint8)
        if not draw_codes(updates, tables, self.clip, place.address(source, updates.shape), source.key, codes):
            finite("updates", updates)
            raise ParameterError("updates must be finite")
        return codes

    def padding(self, tables: U64, width: int, place: Place, source: SimulationSource) -> U8:
        """Levels of perturbed zeros, to 2^-24 in total variation (`apes.client.draws.padding`)."""
        codes = np.empty((tables.shape[0], width), dtype=np.uint8)
        draw_padding(tables, place.address(source, codes.shape), source.key, codes)
        return codes

    def draw_on_device(self, updates: F32, budgets: F64, source: SystemSource) -> U8:
        """Levels drawn in constant time from the operating system's randomness."""
        updates = as_block(updates, budgets.size)
        finite("updates", updates)
        return draw_codes_on_device(updates, budgets, self.clip, self.levels, source)


class ContinuousClipLaplace(Randomizer):
    """Clip-Laplace in floating point (the paper's Definition 5 with A = C): for simulation."""

    def draw(self, updates: F32, tables: F64, place: Place, source: SimulationSource) -> F32:
        """Values in [-C, C]."""
        updates, out = _finite_block(updates, tables.size)
        draw_clip_laplace(updates, tables, self.clip, place.address(source, out.shape), source.key, out)
        return out

    def padding(self, tables: F64, width: int, place: Place, source: SimulationSource) -> F32:
        """Values of perturbed zeros."""
        out = np.empty((tables.size, width), dtype=np.float32)
        draw_clip_laplace_at_zero(tables, self.clip, place.address(source, out.shape), source.key, out)
        return out


class LaplaceNoise(Randomizer):
    """The Laplace mechanism of the baselines: unbounded, unbiased, in floating point."""

    def draw(self, updates: F32, tables: F64, place: Place, source: SimulationSource) -> F32:
        """The clipped updates plus noise of scale 2C / epsilon."""
        updates, out = _finite_block(updates, tables.size)
        draw_laplace(updates, tables, self.clip, place.address(source, out.shape), source.key, out)
        return out


@dataclass(frozen=True)
class NoNoise(Randomizer):
    """No clipping and no noise: training without privacy."""

    clip: float = math.inf

    def __post_init__(self) -> None:
        """There is no clip to check."""

    def draw(self, updates: F32, tables: F64, place: Place, source: SimulationSource) -> F32:
        """The updates as they are."""
        finite("updates", updates)
        return updates.copy()


def as_block(updates: F32, users: int) -> F32:
    """Contiguous float32 users x coordinates, as the compiled loops read them without looking."""
    if updates.ndim != 2 or updates.shape[0] != users:
        raise ParameterError(f"updates must be {users} users x coordinates, got shape {updates.shape}")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(updates, dtype=np.float32)


def _finite_block(updates: F32, users: int) -> tuple[F32, F32]:
    """The updates as a finite block, and room for the reports on them."""
    updates = as_block(updates, users)
    finite("updates", updates)
    return updates, np.empty_like(updates)
