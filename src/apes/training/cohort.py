"""A cohort: those of a population who take part in a round."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.population import Population, UserBlock


def cohort_of(population: Population, users: NDArray[np.bool_]) -> Population:
    """The population itself if everybody takes part."""
    return population if users.all() else Cohort(population, np.flatnonzero(users))


@dataclass(frozen=True, eq=False)
class Cohort:
    """Some of a population's users, numbered anew."""

    population: Population
    users: NDArray[np.intp]  # in increasing order

    @property
    def budgets(self) -> NDArray[np.float64]:
        """Local budgets of those who take part."""
        return self.population.budgets[self.users]

    @property
    def digest(self) -> str:
        """Of the population, and of who takes part."""
        return f"{self.population.digest} {self.users.tolist()}"

    def block(self, start: int, stop: int) -> UserBlock:
        """Users start .. stop - 1 of those who take part: neighbours in the population are asked for together."""
        users = self.users[start:stop]
        runs = np.split(users, np.flatnonzero(np.diff(users) > 1) + 1)
        parts = [self.population.block(int(run[0]), int(run[-1]) + 1) for run in runs]
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        features, labels, budgets = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("features", "labels", "budgets")
        )
        return UserBlock(start, budgets, features, labels, np.concatenate([[0], np.cumsum(sizes)]))
