"""Seconds of `apes.certify` from everybody's budgets, and of composing one coordinate's curve alone.

``apes_account USERS DIMENSIONS ROUNDS DELTA FILE`` also writes the curve's points, for another accountant to compose.
"""

import json
import sys
import time

import numpy as np

import apes
from apes.accounting.composition.exact import composed_epsilon
from apes.accounting.composition.losses import curve_points

# What `composed_epsilon` allows all uses to leave beyond the last point.
_BREACH = 1e-4


def main() -> None:
    """Measure and print."""
    users, dimensions, rounds = (int(word) for word in sys.argv[1:4])
    delta, file = float(sys.argv[4]), sys.argv[5]
    budgets, uses = apes.make_budgets("uniform2", users, 1), dimensions * rounds
    began = time.perf_counter()
    certified = apes.certify(budgets, delta=delta, dimensions=dimensions, rounds=rounds).epsilon
    certify_seconds = time.perf_counter() - began
    ((curve, _),) = apes.Exposure(budgets, dimensions, 256).curves(delta, rounds)
    (points,) = curve_points([curve], _BREACH * delta / uses)
    np.savez(file, step=points.step, deltas=points.deltas)
    composed_epsilon([(curve, uses)], delta)  # evaluates the curve, which is kept
    began = time.perf_counter()
    composed = composed_epsilon([(curve, uses)], delta)
    seconds = time.perf_counter() - began
    print(
        json.dumps(
            {
                "certify, from the budgets": {"seconds": certify_seconds, "epsilon": certified},
                "one curve composed": {"seconds": seconds, "epsilon": composed},
            }
        )
    )


if __name__ == "__main__":
    main()
