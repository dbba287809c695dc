"""Fill numba's cache and Python's, so that workers that start together do not each compile the same sources."""

import compileall
from pathlib import Path

import numpy as np

import apes


def compile_loops() -> None:
    """Train for a moment under every framework and both kinds of local training."""
    rows, labels = np.random.default_rng(1).random((40, 3)), np.arange(40) % 2
    people = apes.People.from_arrays(rows, labels, budgets="uniform2")
    for framework in ("apes", "s-apes", "s-apes-first", "s-apes-threshold", "unis", "non-private"):
        for local in (None, apes.FedProx(epochs=1)):
            for choices in ({}, {"clip": 0.1}):
                plan = apes.Plan(framework=framework, rounds=1, **choices)
                apes.train(apes.LogisticRegression(3, 2, local), people, plan)


if __name__ == "__main__":
    compileall.compile_dir(Path(apes.__file__).parent, quiet=1)
    compile_loops()
