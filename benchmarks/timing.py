"""Times that can be trusted: the median of several runs, with the shortest and the longest beside it."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apes.training import peak_memory


@dataclass(frozen=True)
class Times:
    """Wall seconds of several runs of the same work."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.runs)

    def __str__(self) -> str:
        return f"{self.median:.3g} s ({min(self.runs):.3g} to {max(self.runs):.3g}, {len(self.runs)} runs)"


def timed(work: Callable[[], Any], runs: int) -> Times:
    """Run some work so many times."""
    return in_turns({"": work}, runs)[""]


def in_turns(works: dict[str, Callable[[], Any]], runs: int) -> dict[str, Times]:
    """Run several works in turns, so that a busy minute of the machine falls on all of them."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            found[name].append(time.perf_counter() - began)
    return {name: Times(tuple(times)) for name, times in found.items()}


def peak_mb() -> float:
    """Largest resident memory of this process so far, in MB; NaN where the system does not say."""
    found = peak_memory.peak_mb()
    return math.nan if found is None else found
