"""From a curve delta(epsilon) to the epsilon at a given delta, on the safe side."""

from collections.abc import Callable

# Width of the last bracket, relative to its upper end, at which the bisection stops.
_RELATIVE_WIDTH = 1e-12
# A bracket (0, epsilon0] halved so often is below any float: the loop ends for every curve.
_MOST_STEPS = 1200


def smallest_epsilon(delta_at: Callable[[float], float], delta: float, epsilon0: float) -> float:
    """Return an epsilon in [0, epsilon0] with delta_at(epsilon) <= delta, the smallest up to 1e-12 of itself.

    Every upper end was evaluated and found below delta, except epsilon0, which needs no theorem: reports of
    epsilon0-LDP are (epsilon0, 0)-DP. So the answer is on the safe side even if the curve does not fall.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, epsilon0
    for _ in range(_MOST_STEPS):
        if high - low <= _RELATIVE_WIDTH * high:
            break
        middle = low + (high - low) / 2
        if delta_at(middle) <= delta:
            high = middle
        else:
            low = middle
    return high
