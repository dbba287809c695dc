"""Populations: whoever hands out users with their data and their budgets, block by block."""

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apes.data.table.schema import Schema
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64


@dataclass(frozen=True, eq=False)
class UserBlock:
    """Raw data of consecutive users; stays on the client's side.

    Attributes:
        first_user: Number of the first user of the block.
        budgets: Local budget epsilon of each user, per coordinate and round, in nats.
        features: Rows of all users' examples, user after user (float32).
        labels: Class of each row (unsigned integers), or its real-valued target (float32).
        offsets: User u of the block holds rows offsets[u] to offsets[u + 1].
    """

    first_user: int
    budgets: F64
    features: F32
    labels: NDArray[Any]
    offsets: I64

    def __post_init__(self) -> None:
        # Compiled loops go from offset to offset without looking.
        offsets, rows = np.asarray(self.offsets), len(self.features)
        is_rising = offsets.ndim == 1 and offsets.size > 1 and np.issubdtype(offsets.dtype, np.integer)
        is_rising = is_rising and offsets[0] == 0 and bool((offsets[1:] > offsets[:-1]).all())
        if not is_rising or offsets[-1] != rows:
            must = f"offsets must rise from 0 to the number of rows, {rows}, by at least one row per user"
            raise ParameterError(f"{must}, got {offsets}")
        if len(self.labels) != rows:
            raise ParameterError(f"labels must have one entry per row, {rows}, got {len(self.labels)}")
        if np.shape(self.budgets) != (offsets.size - 1,):
            raise ParameterError(
                f"budgets must have one entry per user, {offsets.size - 1}, got shape {np.shape(self.budgets)}"
            )


@dataclass(frozen=True, eq=False)
class Examples:
    """Public examples that a model is judged by.

    Attributes:
        features: Rows, as users have them.
        labels: The class or target of each.
    """

    features: F32
    labels: NDArray[Any]

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: a model judged by others would have another accuracy."""
        return arrays_digest(np.asarray(self.features), np.asarray(self.labels))


class Population(Protocol):
    """Anything that can hand out its users block by block.

    Contract:
        `block` gives the same users the same data whenever and on whichever thread it is asked; a user's budget does
        not depend on the user's data. It may have ``targets``, the largest central epsilon that each user allows over
        all rounds, which must not depend on data either: whoever would pass the own one is left out.

    It may also have ``part(start, stop)``, for workers elsewhere: a population that can be pickled, small if possible
    (where the data are, rather than the data), and answers ``block(s, t)`` for start <= s < t <= stop under the same
    numbers as this one does. A worker keeps its part for a whole run. Without it the population is sent whole.
    """

    @property
    def budgets(self) -> F64:
        """Local budgets of all users, per coordinate and round, each in (0, inf)."""

    @property
    def digest(self) -> str:
        """Text that tells these users with their data and budgets from any others; a resumed run compares it."""

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1."""


def part_of(population: Population, start: int, stop: int) -> Population:
    """Users start .. stop - 1 for a worker elsewhere, under the same numbers; everybody if there are no parts."""
    part = getattr(population, "part", None)
    return population if part is None else part(start, stop)


class KnownRows(Protocol):
    """People of whom is known what a model that fits them looks like: those of `People`, or of `apes.Partitions`."""

    @property
    def features(self) -> int:
        """Numbers of a row."""

    @property
    def classes(self) -> int:
        """Number of classes; raises where labels are real-valued."""

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1."""


def schema_of(people: Population) -> Schema | None:
    """What is public about the table that people are of, where they are of one."""
    schema = getattr(people, "schema", None)
    return schema if isinstance(schema, Schema) else None


def arrays_digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 of arrays: kind, shape and content."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
