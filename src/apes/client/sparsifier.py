"""Sparsifiers: keep the reports that say most, pad the others; always after perturbation.

The paper's Algorithm 2 prints CLap(0, ...) in its first line where the perturbed update is meant, and a scale d times
too large for budgets per coordinate; what its text describes is built here.

Top-b looks at all of a user's coordinates at once, so its output is not a product over coordinates and the central
certificate does not cover it. A fixed public threshold acts on each report alone and alike for everyone, so it is
post-processing of APES and inherits its certificate (docs/proofs.md, 9). A random choice is not made from data: given
it, the result is APES on updates with zeros in the other coordinates, and only b coordinates count (docs/proofs.md, 9).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from apes.checks import positive, whole, within
from apes.client.draws.choice import keep_any, keep_largest, put_kept
from apes.client.one_bit import DeviceRandomizer
from apes.client.randomizer import Place, Randomizer, Tables, Values
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, U8, Bools
from apes.mathematics.levels import levels_beyond
from apes.mathematics.randomness import Address, Key, Purpose, SimulationSource, SystemSource


@dataclass(frozen=True)
class _KeepB(ABC):
    """Keep b reports of every user, pad the rest with perturbed zeros of the user's own budget."""

    b: int
    needs_whole_update = True

    def __post_init__(self) -> None:
        whole("b", self.b, 1)

    @abstractmethod
    def _choose(self, values: Values, tables: Tables, address: Address, key: Key, kept: Bools) -> None:
        """Mark b reports of every user."""

    def apply(
        self, values: Values, tables: Tables, randomizer: Randomizer, place: Place, source: SimulationSource
    ) -> Values:
        """Pad all but b reports of every user."""
        self._check(values.shape[1])
        kept = np.empty(values.shape, dtype=np.bool_)
        address = replace(place, purpose=Purpose.CHOICE).address(source, values.shape)
        self._choose(values, tables, address, source.key, kept)
        padding = randomizer.padding(tables, values.shape[1], replace(place, purpose=Purpose.PADDING), source)
        put_kept(values, kept, padding)
        return padding

    def _check(self, coordinates: int) -> None:
        if self.b > coordinates:
            raise ParameterError(f"b must be in [1, {coordinates}], the number of coordinates; got {self.b}")


class TopB(_KeepB):
    """Keep a user's b reports of largest size, ties broken at random; padded as in the paper (S-APES)."""

    def _choose(self, values: Values, tables: Tables, address: Address, key: Key, kept: Bools) -> None:
        if values.dtype == np.uint8:
            keep_largest(_farther_level(values, tables.shape[1]), self.b, address, key, kept)
        else:
            # Without its sign, a float32 number's bits order as the number does.
            sizes = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0x7FFFFFFF)
            keep_largest(sizes, self.b, address, key, kept)


class RandomB(_KeepB):
    """Keep b reports of every user chosen at random, pad the rest with perturbed zeros."""

    def _choose(self, values: Values, tables: Tables, address: Address, key: Key, kept: Bools) -> None:
        keep_any(self.b, address, key, kept)

    def draw_on_device(self, updates: F32, budgets: F64, randomizer: DeviceRandomizer, source: SystemSource) -> U8:
        """Choose b coordinates, set the others to zero, perturb all: the same law as padding after perturbation."""
        self._check(updates.shape[1])
        # The smallest b of uniform words are any b, each set as likely as another.
        chosen = np.argpartition(source.words(*updates.shape), self.b - 1, axis=1)[:, : self.b]
        masked = np.zeros_like(updates)
        np.put_along_axis(masked, chosen, np.take_along_axis(updates, chosen, axis=1), axis=1)
        return randomizer.draw_on_device(masked, budgets, source)


@dataclass(frozen=True)
class Threshold:
    """Keep reports of size at least tau C, pad the rest with Clip-Laplace at 0 of one public budget.

    Guarantee:
        The padding does not depend on the user, so the result is post-processing of each report alone.
    """

    tau: float  # threshold as a fraction of C, in [0, 1]
    padding_epsilon: float = 4.0  # budget of the padding's law, the same for everybody, in (0, 44]
    needs_whole_update = False

    def __post_init__(self) -> None:
        within("tau", self.tau, 0, 1)
        positive("padding_epsilon", self.padding_epsilon, 44)

    def apply(
        self, values: Values, tables: Tables, randomizer: Randomizer, place: Place, source: SimulationSource
    ) -> Values:
        """Pad every report below the threshold."""
        if values.dtype == np.uint8:
            kept = self.keeps_levels(values, tables.shape[1])
        else:
            kept = np.abs(values) >= self.tau * randomizer.clip
        public = randomizer.prepare(np.full(values.shape[0], self.padding_epsilon))
        padding = randomizer.padding(public, values.shape[1], replace(place, purpose=Purpose.PADDING), source)
        put_kept(values, kept, padding)
        return padding

    def draw_on_device(self, updates: F32, budgets: F64, randomizer: DeviceRandomizer, source: SystemSource) -> U8:
        """Perturb, then pad every level below the threshold."""
        drawn = randomizer.draw_on_device(updates, budgets, source)
        public = np.full(budgets.size, self.padding_epsilon)
        padding = randomizer.draw_on_device(np.zeros_like(updates), public, source)
        put_kept(drawn, self.keeps_levels(drawn, randomizer.levels), padding)
        return padding

    def keeps_levels(self, values: Values, levels: int) -> Bools:
        """Which of the reported levels, out of ``levels``, are far enough from the centre."""
        beyond = levels_beyond(levels, self.tau)
        centre = beyond.size // 2
        return np.asarray(_farther_level(values, levels) >= centre + int(np.argmax(beyond[centre:])))


Sparsifier = TopB | RandomB | Threshold
# Those with a central certificate.
DeviceSparsifier = RandomB | Threshold


def _farther_level(values: Values, levels: int) -> U8:
    """The larger of k and K - 1 - k: orders levels by their distance from the centre."""
    return np.maximum(values, np.subtract(levels - 1, values, dtype=np.uint8), dtype=np.uint8)
