"""A round of Algorithm 1 in plain NumPy: `benchmarks/numpy_round.py`."""

import numpy as np

from apes.budgets import make_budgets
from benchmarks.numpy_round import round_of_algorithm_1
from benchmarks.peer_programs.stages import PER_USER, measure, read_task


def main() -> None:
    """Rounds of more and more of the users."""
    task, rng = read_task(), np.random.default_rng(1)
    images = np.ones((task.users * PER_USER, task.images.shape[1] + 1), dtype=np.float32)
    images[:, :-1] = task.images
    labels, budgets = task.labels.astype(np.uint8), make_budgets("uniform2", task.users, 1)
    weights = np.zeros((10, images.shape[1]), dtype=np.float32)

    def run_round(users: int) -> None:
        rows = users * PER_USER
        round_of_algorithm_1(weights, images[:rows], labels[:rows], budgets[:users], 0.1, rng)

    measure(run_round, task)


if __name__ == "__main__":
    main()
