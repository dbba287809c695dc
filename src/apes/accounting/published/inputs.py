"""What a bound for equal budgets is given: a population, of which it sees the size and the largest budget."""

import numpy as np
from numpy.typing import NDArray

from apes.accounting.certificate.curve import check_delta
from apes.checks import positive_array


def as_uniform(budgets: NDArray[np.float64], delta: float) -> tuple[int, float, float]:
    """Give everybody the largest budget, as the paper does with its baselines: n, epsilon0 (nats) and delta."""
    delta, array = check_delta(delta), positive_array("budgets", budgets)
    return array.size, float(array.max()), delta
