"""``python -m benchmarks.roster_price``: what reading rounds by the roster costs, where some are missing.

The same draws twice: the analyzer knows the budgets of those who are there, or only the roster and how many they are
(`apes.accounting.roster`). Embedded digits, logistic regression on oriented gradients, reports of one bit.
Options: --users N, --rounds N, --seeds N.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import apes
from apes.accounting.roster import read_as
from apes.data import load
from apes.features.feature_map import mapped
from apes.features.oriented_gradients import OrientedGradients
from apes.mathematics.arrays import F64, Bools
from apes.mathematics.randomness import SimulationSource
from apes.models.model import check_model
from apes.training.cohort import cohort_of
from apes.training.round import run_round
from apes.training.run import Identity, Run

Missing = Callable[[F64, np.random.Generator], Bools]


def main() -> None:
    """Train and print accuracies, in per cent."""
    users, rounds, seeds = (_option(name, default) for name, default in (("users", 3000), ("rounds", 20), ("seeds", 3)))
    for what, missing in (
        ("everybody there", _nobody),
        ("a random tenth missing", _tenth),
        ("loud half missing", _loud),
    ):
        for seed in range(1, seeds + 1):
            known, roster = (_accuracy(users, rounds, seed, missing, by_roster) for by_roster in (False, True))
            print(f"{what}, seed {seed}: {100 * known:.2f} by their own budgets, {100 * roster:.2f} by the roster")


def _option(name: str, default: int) -> int:
    return int(sys.argv[sys.argv.index(f"--{name}") + 1]) if f"--{name}" in sys.argv else default


def _nobody(budgets: F64, rng: np.random.Generator) -> Bools:
    return np.zeros(budgets.size, dtype=bool)


def _tenth(budgets: F64, rng: np.random.Generator) -> Bools:
    return rng.random(budgets.size) < 0.1


def _loud(budgets: F64, rng: np.random.Generator) -> Bools:
    return budgets > np.median(budgets)


def _accuracy(users: int, rounds: int, seed: int, missing: Missing, by_roster: bool) -> float:
    simulation, dataset = apes.Simulation(users=users, seed=seed), load("digits")
    people, test = mapped(
        simulation.people(dataset), apes.Examples(dataset.test_images, dataset.test_labels), OrientedGradients()
    )
    model, budgets, rng = simulation.model(dataset), people.budgets, np.random.default_rng(seed)
    terms = apes.Terms(rounds=rounds, norm=1.0)
    run = Run(
        terms,
        apes.Schedule(),
        model,
        Identity("", "", ""),
        start=check_model(model),
        users=users,
        test=test,
        cohorts=None,
    )
    while not run.is_done:
        there = ~missing(budgets, rng)
        source, now = SimulationSource(seed, run.progress.rounds + 1), run.progress.state.weights
        batch = run_round(terms, model, now, cohort_of(people, there), source, budgets=budgets[there])
        read = read_as(budgets, int(there.sum())) if by_roster else np.sort(budgets[there])
        run.charge(read)
        run.conclude(replace(batch, budgets=read), time.perf_counter())
    return float(run.progress.metrics[-1].accuracy or 0)


if __name__ == "__main__":
    main()
