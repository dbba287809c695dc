"""Seconds of dp_accounting's composition of a curve: ``dp_account FILE USES DELTA``, the file by `apes_account.py`."""

import json
import sys
import time

import numpy as np
from dp_accounting.pld import pld_pmf


def main() -> None:
    """Measure and print; the first run, which loads, does not count."""
    points, uses, delta = np.load(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    step, deltas = float(points["step"]), points["deltas"]
    half = deltas.size // 2
    for _ in range(2):
        began = time.perf_counter()
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(step, np.arange(-half, half + 1), deltas)
        epsilon = float(pmf.self_compose(uses).get_epsilon_for_delta(delta))
        seconds = time.perf_counter() - began
    print(json.dumps({"the same curve composed": {"seconds": seconds, "epsilon": epsilon}}))


if __name__ == "__main__":
    main()
