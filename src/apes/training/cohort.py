"""A cohort: those of a population who take part in a round."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.accounting.exposure import budgets_digest
from apes.mathematics.arrays import F64, I64, Bools
from apes.population import Population, UserBlock


def cohort_names(cohorts: Sequence[Bools], budgets: F64) -> list[str]:
    """Names of the budgets of those who take part, round after round."""
    names: list[str] = []
    for number, users in enumerate(cohorts):
        # Mostly nobody left since the last round.
        is_same = number > 0 and np.array_equal(users, cohorts[number - 1])
        names.append(names[-1] if is_same else budgets_digest(budgets[users]))
    return names


def rounds_by_user(cohorts: Sequence[Bools]) -> I64:
    """In how many rounds each user takes part."""
    counts = np.zeros(cohorts[0].size, dtype=np.int64)
    for users in cohorts:
        counts += users
    return counts


def cohort_of(population: Population, users: Bools) -> Population:
    """The population itself if everybody takes part."""
    return population if users.all() else Cohort(population, np.flatnonzero(users))


@dataclass(frozen=True, eq=False)
class Cohort:
    """Some of a population's users, numbered anew."""

    population: Population
    users: NDArray[np.intp]  # in increasing order

    @property
    def budgets(self) -> F64:
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
