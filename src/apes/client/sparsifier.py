"""Sparsifiers: keep the reports that say most, pad the others; always after perturbation.

The paper's Algorithm 2 prints CLap(0, ...) in its first line where the perturbed update is meant, and a scale d times
too large for budgets a coordinate; what its text describes is built here.

Top-b looks at all of a user's coordinates at once, so its output is not a product over coordinates and the central
certificate does not cover it. A fixed public threshold acts on each report alone and alike for everyone, so it is
post-processing of APES and inherits its certificate (theory, section 7).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apes.client.randomizer import Place, Randomizer, Values
from apes.codes import levels_beyond
from apes.errors import ParameterError
from apes.parameters import positive, whole, within
from apes.randomness import Purpose, SimulationSource, fill_uniform


class Sparsifier(Protocol):
    """Replaces part of a block's perturbed reports by padding."""

    @property
    def needs_whole_update(self) -> bool:
        """Whether all of a user's coordinates must be seen at once."""
        ...

    def apply(
        self,
        values: Values,
        tables: NDArray[Any],
        randomizer: Randomizer,
        place: Place,
        source: SimulationSource,
    ) -> Values:
        """Return the reports after sparsification."""
        ...


@dataclass(frozen=True)
class TopB:
    """Keep a user's b reports of largest size, pad the rest with perturbed zeros (S-APES).

    Ties are broken at random. The padding has the user's own budget, as in the paper.
    """

    b: int
    needs_whole_update = True

    def __post_init__(self) -> None:
        whole("b", self.b, 1)

    def apply(
        self,
        values: Values,
        tables: NDArray[Any],
        randomizer: Randomizer,
        place: Place,
        source: SimulationSource,
    ) -> Values:
        """Pad all but the b largest reports of every user."""
        ties = _uniforms(values, place, source)
        if values.dtype == np.uint8:
            # A level's size is a whole number, so adding a number below 1 breaks ties and nothing else.
            sizes: NDArray[np.floating[Any]] = np.abs(2 * values.astype(np.float32) - _top_level(tables)) + ties
        else:
            # Different float32 numbers are at least 2^-24 apart, so a factor below 1 + 2^-30 breaks ties only.
            sizes = (np.abs(values.astype(np.float64)) + 2.0**-149) * (1 + ties.astype(np.float64) * 2.0**-30)
        return _pad(values, _largest(sizes, self.b), tables, randomizer, place, source)


@dataclass(frozen=True)
class RandomB:
    """Keep b reports of every user chosen at random, pad the rest with perturbed zeros."""

    b: int
    needs_whole_update = True

    def __post_init__(self) -> None:
        whole("b", self.b, 1)

    def apply(
        self,
        values: Values,
        tables: NDArray[Any],
        randomizer: Randomizer,
        place: Place,
        source: SimulationSource,
    ) -> Values:
        """Pad all but b random reports of every user."""
        kept = _largest(_uniforms(values, place, source), self.b)
        return _pad(values, kept, tables, randomizer, place, source)


@dataclass(frozen=True)
class Threshold:
    """Keep reports of size at least tau C, pad the rest with Clip-Laplace at 0 of one public budget.

    Args:
        tau: Threshold as a fraction of C, in [0, 1].
        padding_epsilon: Budget of the padding's law, the same for everybody, in (0, 44].

    Guarantee:
        The padding does not depend on the user, so the result is post-processing of each report alone.
    """

    tau: float
    padding_epsilon: float = 4.0
    needs_whole_update = False

    def __post_init__(self) -> None:
        within("tau", self.tau, 0, 1)
        positive("padding_epsilon", self.padding_epsilon, 44)

    def apply(
        self,
        values: Values,
        tables: NDArray[Any],
        randomizer: Randomizer,
        place: Place,
        source: SimulationSource,
    ) -> Values:
        """Pad every report below the threshold."""
        if values.dtype == np.uint8:
            kept = levels_beyond(_top_level(tables) + 1, self.tau)[values]
        else:
            kept = np.abs(values) >= self.tau * randomizer.clip
        public = randomizer.prepare(np.full(values.shape[0], self.padding_epsilon))
        return _pad(values, kept, public, randomizer, place, source)


def _top_level(tables: NDArray[Any]) -> int:
    return int(tables.shape[1]) - 1


def _uniforms(values: Values, place: Place, source: SimulationSource) -> NDArray[np.float32]:
    out = np.empty(values.shape, dtype=np.float32)
    fill_uniform((place.first_user, place.first_coordinate, source.stream(Purpose.CHOICE)), source.key, out)
    return out


def _largest(sizes: NDArray[np.floating[Any]], b: int) -> NDArray[np.bool_]:
    """Mark exactly b largest entries of every row."""
    if b > sizes.shape[1]:
        raise ParameterError(f"b must be in [1, {sizes.shape[1]}], the number of coordinates; got {b}")
    kept = np.zeros(sizes.shape, dtype=bool)
    places = np.argpartition(sizes, sizes.shape[1] - b, axis=1)[:, sizes.shape[1] - b :]
    np.put_along_axis(kept, places, True, axis=1)
    return kept


def _pad(
    values: Values,
    kept: NDArray[np.bool_],
    tables: NDArray[Any],
    randomizer: Randomizer,
    place: Place,
    source: SimulationSource,
) -> Values:
    where = Place(place.first_user, place.first_coordinate, Purpose.PADDING)
    padding = randomizer.draw(np.zeros(values.shape, dtype=np.float32), tables, where, source)
    return np.where(kept, values, padding)
