"""One round: every user reports, the shuffler releases. Training, audit, paper and benchmarks all call `run_round`."""

from apes.mathematics.arrays import F64
from apes.mathematics.randomness import SimulationSource
from apes.messages import Batch
from apes.models.model import Model
from apes.population import Population
from apes.terms.terms import Terms
from apes.training.crews.crew import Crew, Job
from apes.training.workers import Workers, opened


def run_round(
    terms: Terms,
    model: Model,
    weights: F64,
    population: Population,
    source: SimulationSource,
    *,
    budgets: F64 | None = None,
    workers: Workers | Crew | None = None,
    only_sums: bool = False,
) -> Batch:
    """Let every user report on the model, and release the batch.

    Args:
        terms: What users agreed to.
        model: What is trained.
        weights: The model as it is, flat: as many coordinates as were charged.
        population: The users.
        source: The round's randomness.
        budgets: What was charged, user by user; by default what the terms make of the population's.
        workers: Who does the work; by default a thread per core. A crew that was opened keeps, from round to round,
            what it was sent.
        only_sums: Let the shuffler add continuous reports up: the same model up to rounding, in less time and memory.
    """
    budgets = terms.applied(population.budgets) if budgets is None else budgets
    with opened(workers) as crew:
        return crew.round(Job(terms, model, weights, population, budgets, source, only_sums))
