"""A published bound of one's own, beside ours: in `apes account` and the paper's figures.

python examples/own_bound.py account --users 1000 --budgets uniform1 --dimensions 100 --rounds 5 --plot account.png
"""

import numpy as np

import apes
from apes.cli.main import main


def smaller_of_two(budgets: np.ndarray, delta: float) -> float:
    """Central epsilon of one coordinate: the smaller one of two bounds of the literature.

    A bound takes everybody's local budgets and a delta in (0, 1), returns nats, and raises `apes.RegimeError` where its
    theorem says nothing.
    """
    return min(apes.PUBLISHED[name](budgets, delta) for name in ("eon_numeric", "fmt22_numeric"))


apes.PUBLISHED["smaller_of_two"] = smaller_of_two

if __name__ == "__main__":
    main()  # the whole command line, with the bound in it
