"""A stranger's mechanism among our stages: updates are clipped here, its reports are checked here."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from apes.checks import finite, whole
from apes.client.clip import clip_updates
from apes.client.randomizer import Place, Randomizer, Values
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.mathematics.chacha import GROUP_WORDS, fill_words, room_for
from apes.mathematics.compiled import compiled
from apes.mathematics.randomness import MOST_ADDRESSES, Address, Key, Purpose, SimulationSource

_GROUP_NUMBERS = GROUP_WORDS // 2
_DROPPED = np.uint64(11)


@dataclass(frozen=True)
class Draws:
    """Randomness of a block of reports: every number has an address, so blocks and threads do not change it.

    Attributes:
        place: First user and first coordinate.
        source: The round's randomness: a cipher's stream, secret unless its key follows from a seed.
        shape: Users and coordinates.
    """

    place: Place
    source: SimulationSource
    shape: tuple[int, int]

    def uniforms(self, stage: int = 0) -> F64:
        """Independent uniform numbers in [0, 1), one per user and coordinate; other stages, below 2^32, give others."""
        whole("stage", stage, 0, MOST_ADDRESSES - 1)
        out = np.empty(self.shape)
        purpose = Purpose.FOREIGN if self.place.purpose is Purpose.REPORT else Purpose.FOREIGN_PADDING
        place = Place(self.place.first_user, self.place.first_coordinate, purpose)
        _fill_uniforms(place.address(self.source, self.shape), stage, self.source.key, out)
        return out


class Perturbs(Protocol):
    """What is asked of a stranger's mechanism on the client's side (`apes.Mechanism` has all of it)."""

    @property
    def clip(self) -> float: ...  # noqa: D102 - see apes.Mechanism

    @property
    def levels(self) -> int | None: ...  # noqa: D102

    def draw(self, updates: F32, budgets: F64, draws: Draws) -> Values: ...  # noqa: D102


@dataclass(frozen=True)
class ForeignRandomizer(Randomizer):
    """Runs a stranger's mechanism on clipped updates."""

    clip: float = field(init=False)
    mechanism: Perturbs

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", self.mechanism.clip)
        super().__post_init__()

    def draw(self, updates: F32, tables: F64, place: Place, source: SimulationSource) -> Values:
        """Clip, let the mechanism draw, and check what it drew."""
        finite("updates", updates)
        draws = Draws(place, source, (updates.shape[0], updates.shape[1]))
        values = self.mechanism.draw(clip_updates(updates, self.clip), tables, draws)
        name = f"{type(self.mechanism).__name__}.draw"
        kind = np.float32 if self.mechanism.levels is None else np.uint8
        if not isinstance(values, np.ndarray) or values.dtype != kind or values.shape != updates.shape:
            got = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise ParameterError(f"{name} must return an array of {kind.__name__} {updates.shape}, got {got}")
        finite(name, values)
        return values if values.flags.c_contiguous else values.copy()


@compiled
def _fill_uniforms(address: Address, stage: int, key: Key, out: F64) -> None:
    """Fill a block (users x coordinates) with multiples of 2^-53 in [0, 1).

    Coordinate c has words 2 c and 2 c + 1 of the stage (`apes.mathematics.chacha`), the lower half first; the lowest 11
    bits are dropped.
    """
    first_user, first, stream = address
    words = room_for(first, out.shape[1], _GROUP_NUMBERS)
    numbers = words.view(np.uint64)[first % _GROUP_NUMBERS :]
    for u in range(out.shape[0]):
        user = np.uint64(first_user + u)
        fill_words(np.uint64(first // _GROUP_NUMBERS), np.uint64(stage), user, stream, key, words)
        for i in range(out.shape[1]):
            out[u, i] = np.float64(numbers[i] >> _DROPPED) * 2.0**-53
