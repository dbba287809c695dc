"""Feature maps: fixed and public, the same for everybody, so that training on features costs no privacy."""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apes.checks import finite
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.population import Examples, Population, UserBlock, part_of


class FeatureMap(Protocol):
    """A map from a block of raw rows to rows of features.

    Contract:
        A row's features depend on that row alone, and not on anybody's data otherwise: a map that was fitted to the
        users' data is not public. It gives the same features whenever and on whichever thread it is asked.
    """

    @property
    def digest(self) -> str:
        """Text that tells this map from any other: part of the terms."""

    def __call__(self, rows: F32) -> F32:
        """Features of some rows, one float32 row per row."""


def mapped(people: Population, test: Examples | None, features: FeatureMap) -> tuple[Population, Examples | None]:
    """The same people and examples, seen through a feature map."""
    if not isinstance(features.digest, str) or not features.digest:
        raise ParameterError(f"{type(features).__name__}.digest must be a text that tells the map from others")
    return _MappedPopulation(people, features), None if test is None else seen_through(features, test)


def seen_through(features: FeatureMap | None, examples: Examples) -> Examples:
    """The same examples, seen through a feature map, if there is one."""
    return examples if features is None else Examples(_checked(features, examples.features), examples.labels)


class _MappedPopulation:
    """Users whose rows are features; computed once per block and kept."""

    def __init__(self, people: Population, features: FeatureMap) -> None:
        self._people, self._features = people, features
        self._kept: dict[tuple[int, int], F32] = {}

    @property
    def budgets(self) -> F64:
        return self._people.budgets

    @property
    def targets(self) -> F64 | None:
        return getattr(self._people, "targets", None)

    @property
    def digest(self) -> str:
        return self._people.digest

    def block(self, start: int, stop: int) -> UserBlock:
        block = self._people.block(start, stop)
        if (start, stop) not in self._kept:
            self._kept[start, stop] = _checked(self._features, block.features)
        return replace(block, features=self._kept[start, stop])

    def part(self, start: int, stop: int) -> "_MappedPopulation":
        people = part_of(self._people, start, stop)
        return self if people is self._people else _MappedPopulation(people, self._features)

    def __getstate__(self) -> dict[str, Any]:
        # Whoever gets it computes what it needs.
        return vars(self) | {"_kept": {}}


def _checked(features: FeatureMap, rows: NDArray[Any]) -> F32:
    # Read-only: a map that works in place would change the users' own rows.
    given = rows.view()
    given.flags.writeable = False
    out, name = features(given), type(features).__name__
    if not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.ndim < 2 or len(out) != len(rows):
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ParameterError(f"{name} must return {len(rows)} float32 rows, got {got}")
    finite(name, out)
    return np.ascontiguousarray(out)
