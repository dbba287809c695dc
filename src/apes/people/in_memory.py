"""Users whose rows lie in one array, and parts of them that workers are sent."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from apes.checks import finite_float32, numbers, positive_array
from apes.data.table.people_rows import TableFacts
from apes.data.table.schema import Schema
from apes.errors import ParameterError
from apes.mathematics.arrays import F64
from apes.people.labels import as_labels, check_classes
from apes.population import Examples, UserBlock, arrays_digest


class InMemory:
    """Users whose rows lie in one array, user after user; what `apes.People` are, however they were made."""

    facts: TableFacts | None = None

    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        offsets: ArrayLike,
        budgets: ArrayLike,
        *,
        test: Examples | None = None,
        classes: int | None = None,
        schema: Schema | None = None,
        targets: ArrayLike | None = None,
    ) -> None:
        self._budgets = positive_array("budgets", budgets)
        users = self._budgets.size
        self.targets = None if targets is None else positive_array("targets", targets)
        if self.targets is not None and self.targets.size != users:
            raise ParameterError(f"targets must have one entry per user, {users}, got {self.targets.size}")
        # What is neither class nor target is refused below, in words about labels.
        starts, marks = numbers("offsets", offsets, "iu"), numbers("labels", labels, "iufUSO")
        rows = numbers("features", features, "biuf")
        if starts.shape != (users + 1,):
            raise ParameterError(f"offsets must have one entry more than the {users} budgets, got {starts.size}")
        if rows.ndim < 2 or marks.shape != rows.shape[:1]:
            raise ParameterError(f"labels must have one entry per row of features {rows.shape}, got {marks.shape}")
        if starts[0] != 0 or starts[-1] != marks.size or (np.diff(starts.astype(np.int64)) < 1).any():
            raise ParameterError("offsets must rise from 0 to the number of rows, by at least 1 per user")
        self._features = finite_float32("features", rows)
        self._labels, self._offsets = as_labels(marks), starts.astype(np.int64)
        self.test, self.schema = test, schema
        self._classes = None if classes is None else check_classes("labels", self._labels, classes)

    @property
    def budgets(self) -> F64:
        """Local budgets of all users."""
        return self._budgets

    @property
    def features(self) -> int:
        """Numbers of a row."""
        return int(np.prod(self._features.shape[1:]))

    @property
    def classes(self) -> int:
        """Number of classes."""
        if not np.issubdtype(self._labels.dtype, np.integer):
            raise ParameterError(f"labels must be classes, got real-valued targets ({self._labels.dtype})")
        return int(self._labels.max()) + 1 if self._classes is None else self._classes

    @property
    def digest(self) -> str:
        """SHA-256 of everything the users hold, budgets and targets included."""
        targets = () if self.targets is None else (self.targets,)
        return arrays_digest(self._features, self._labels, self._offsets, self._budgets, *targets)

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1, without copying their data."""
        # Made once: a block of everybody looks at all offsets when it is made.
        return _cut(self._everybody, start, stop)

    @cached_property
    def _everybody(self) -> UserBlock:
        return UserBlock(0, self._budgets, self._features, self._labels, self._offsets)

    def part(self, start: int, stop: int) -> "PeoplePart":
        """Users start .. stop - 1 for a worker elsewhere, under the same numbers: their rows and no others."""
        return PeoplePart(self.block(start, stop))


@dataclass(frozen=True, eq=False)
class PeoplePart:
    """Some of the users of `InMemory`, under the numbers that they have there."""

    users: UserBlock

    @property
    def budgets(self) -> F64:
        """Local budgets of these users."""
        return self.users.budgets

    @property
    def digest(self) -> str:
        """SHA-256 of what these users hold, and of their numbers."""
        own = self.users
        return arrays_digest(np.array([own.first_user]), own.features, own.labels, own.offsets, own.budgets)

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1, without copying their data."""
        return _cut(self.users, start, stop)


def _cut(users: UserBlock, start: int, stop: int) -> UserBlock:
    """Users start .. stop - 1 of a block, whose users have the numbers that it says."""
    first, last = users.first_user, users.first_user + users.budgets.size
    if not first <= start < stop <= last:
        raise ParameterError(f"start and stop must be in order within [{first}, {last}], got {start}, {stop}")
    offsets = users.offsets[start - first : stop - first + 1]
    rows = slice(offsets[0], offsets[-1])
    budgets = users.budgets[start - first : stop - first]
    return UserBlock(start, budgets, users.features[rows], users.labels[rows], offsets - offsets[0])
