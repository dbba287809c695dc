"""What every published bound is given: a population of local budgets, and a delta."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apes.checks import positive, positive_array
from apes.errors import ParameterError


class Uniform(NamedTuple):
    """A population as a theorem for equal budgets sees it: its size, and its largest budget (nats)."""

    n: int
    epsilon0: float


def check_budgets(budgets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the budgets as a float64 array, all in (0, inf), at least one."""
    return positive_array("budgets", budgets)


def check_delta(delta: float, name: str = "delta") -> float:
    """Return delta as a float if it lies in (0, 1), else raise."""
    number = positive(name, delta, 1.0)
    if not number < 1:
        raise ParameterError(f"{name} must be in (0, 1), got {delta!r}")
    return number


def as_uniform(budgets: NDArray[np.float64]) -> Uniform:
    """Give everybody the largest budget, as the paper does with its baselines."""
    array = check_budgets(budgets)
    return Uniform(array.size, float(array.max()))
