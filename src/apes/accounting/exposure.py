"""What ran in a round, as the accountant has to know it: no data, no values, no names."""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Event:
    """One round's release.

    Attributes:
        round: Number of the round, from 1.
        mechanism: ``clip-laplace``, ``laplace`` or ``none``.
        levels: Levels of a coded report; None for continuous reports.
        clip: C, per coordinate.
        users: How many took part.
        dimensions: Coordinates of a report, each perturbed under the whole of its user's budget.
        coordinates_from_data: How many of them are charged for: those in which two updates' reports can differ.
        shuffled: Whether reports of a coordinate were permuted (or counted) across users.
        sparsifier: ``top-b``, ``random-b``, ``threshold``, ``top-b-first`` or None.
        budgets_sha256: Digest of the sorted local budgets of those who took part (little-endian float64).
        smallest_budget: Smallest of them.
        largest_budget: Largest of them.
        neighbours: The relation a guarantee would be about: one user's data replaced, n public.
    """

    round: int
    mechanism: str
    levels: int | None
    clip: float
    users: int
    dimensions: int
    coordinates_from_data: int
    shuffled: bool
    sparsifier: str | None
    budgets_sha256: str
    smallest_budget: float
    largest_budget: float
    neighbours: str = "replace-one-user"

    def as_dict(self) -> dict[str, Any]:
        """The event as plain values, for a line of JSON."""
        return asdict(self)


def budgets_digest(budgets: NDArray[np.float64]) -> str:
    """SHA-256 of the sorted budgets: names a multiset of budgets without an order."""
    return hashlib.sha256(np.sort(budgets).astype("<f8").tobytes()).hexdigest()
