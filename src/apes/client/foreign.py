"""A stranger's mechanism among our stages: updates are clipped here, its reports are checked here."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apes.checks import finite
from apes.client.clip import clip_updates
from apes.client.draws.uniforms import fill_uniforms
from apes.client.randomizer import Place, Values
from apes.errors import ParameterError
from apes.mathematics.randomness import Purpose, SimulationSource


@dataclass(frozen=True)
class Draws:
    """Randomness of a block of reports: every number has an address, so blocks and threads do not change it.

    Attributes:
        place: First user and first coordinate.
        source: The round's randomness; not cryptographic.
        shape: Users and coordinates.
    """

    place: Place
    source: SimulationSource
    shape: tuple[int, int]

    def uniforms(self, stage: int = 0) -> NDArray[np.float64]:
        """Independent uniform numbers in [0, 1), one per user and coordinate; other stages give others."""
        out = np.empty(self.shape)
        purpose = Purpose.FOREIGN if self.place.purpose is Purpose.REPORT else Purpose.FOREIGN_PADDING
        stream = self.source.stream(purpose)
        fill_uniforms((self.place.first_user, self.place.first_coordinate, stream), stage, self.source.key, out)
        return out


class Perturbs(Protocol):
    """What is asked of a stranger's mechanism on the client's side (`apes.Mechanism` has all of it)."""

    @property
    def clip(self) -> float: ...  # noqa: D102 - see apes.Mechanism

    @property
    def levels(self) -> int | None: ...  # noqa: D102

    def draw(  # noqa: D102
        self, updates: NDArray[np.float32], budgets: NDArray[np.float64], draws: Draws
    ) -> Values: ...


@dataclass(frozen=True)
class ForeignRandomizer:
    """Runs a stranger's mechanism on clipped updates."""

    mechanism: Perturbs

    @property
    def clip(self) -> float:
        """C."""
        return self.mechanism.clip

    def prepare(self, budgets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The budgets themselves."""
        return budgets

    def draw(
        self, updates: NDArray[np.float32], tables: NDArray[np.float64], place: Place, source: SimulationSource
    ) -> Values:
        """Clip, let the mechanism draw, and check what it drew."""
        finite("updates", updates)
        draws = Draws(place, source, (updates.shape[0], updates.shape[1]))
        values = self.mechanism.draw(clip_updates(updates, self.clip), tables, draws)
        name = f"{type(self.mechanism).__name__}.draw"
        kind = np.float32 if self.mechanism.levels is None else np.uint8
        if not isinstance(values, np.ndarray) or values.dtype != kind or values.shape != updates.shape:
            got = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise ParameterError(f"{name} must return an array of {kind.__name__} {updates.shape}, got {got}")
        if self.mechanism.levels is not None:
            return np.ascontiguousarray(values, dtype=np.uint8)
        finite(name, values)
        return np.ascontiguousarray(values, dtype=np.float32)

    def padding(self, tables: NDArray[np.float64], width: int, place: Place, source: SimulationSource) -> Values:
        """Perturbed zeros."""
        return self.draw(np.zeros((tables.size, width), dtype=np.float32), tables, place, source)
