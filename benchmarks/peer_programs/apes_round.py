"""A round of APES: updates, draws, shuffling, counts, calibration. Variants: ``256`` levels, ``2`` (one bit)."""

import numpy as np

import apes
from apes.mathematics.compiled import quiet_blas
from apes.training.round import run_round as run
from benchmarks.peer_programs.stages import NORM, PER_USER, measure, read_task


def main() -> None:
    """Rounds of more and more of the users."""
    task = read_task()
    terms = apes.Terms(clip=0.1, norm=NORM if task.variant == "2" else None)
    budgets, calibrator = apes.make_budgets("uniform2", task.users, 1), terms.calibrator()
    model, workers = apes.LogisticRegression(task.images.shape[1], 10), apes.Workers()
    images, labels = np.asarray(task.images), task.labels.astype(np.uint8)

    def run_round(users: int) -> None:
        rows = users * PER_USER
        people = apes.People(images[:rows], labels[:rows], np.arange(0, rows + 1, PER_USER), budgets[:users])
        source = apes.SimulationSource(1, 1)
        calibrator.estimate(run(terms, model, model.start(), people, source, workers=workers))

    with quiet_blas():
        measure(run_round, task)


if __name__ == "__main__":
    main()
