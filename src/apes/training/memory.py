"""What a round takes in memory, said or refused before anything is charged."""

import logging
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from apes.client.clip import MOST_COORDINATES
from apes.errors import ParameterError
from apes.terms.terms import Terms
from apes.training.crews.crew import Crew
from apes.training.workers import Workers

_GB = 2.0**30
# From here on it is said.
_MUCH = 1 << 30
_MEMINFO = Path("/proc/meminfo")
_LIMIT, _IN_USE = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
_log = logging.getLogger("apes")


def check_memory(
    dimensions: int, terms: Terms, users: int, workers: Workers | Crew | None = None, only_sums: bool = False
) -> int:
    """Return the number of a model's coordinates, if a round of it fits into the memory that is free.

    A round that takes more than 1 GB is said in a line on the log of ``apes``, once.

    Raises:
        ParameterError: If it does not fit, with what it would take and what to choose instead.
    """
    if terms.norm is not None and not dimensions <= MOST_COORDINATES:
        raise ParameterError(f"dimensions must be in [1, {MOST_COORDINATES}] with a norm, got {dimensions}")
    levels = terms.reports.levels
    if levels is None and (only_sums or not terms.kind.shuffled):
        return dimensions
    threads = _tallies(workers)
    needed = round_bytes(dimensions, levels, users, threads)
    what = f"reports of {users:,} users" if levels is None else f"counts of {levels} levels"
    says = f"{what} on {dimensions:,} coordinates take about {needed / _GB:.3g} GB of memory"
    instead = f"2 levels with a norm take {round_bytes(dimensions, 2, users, threads) / _GB:.2g} GB"
    if needed > (free := free_bytes()):
        got = "continuous" if levels is None else levels
        raise ParameterError(f"levels must be fewer: {says}, {free / _GB:.3g} GB are free; {instead}; got {got!r}")
    if needed > _MUCH:
        _say(f"{says}; {instead}")
    return dimensions


def _tallies(workers: Workers | Crew | None) -> int:
    """How many count at once, each into a table of its own."""
    if workers is None or isinstance(workers, Workers):
        return (Workers() if workers is None else workers).count
    return workers.facts.count or 1


def round_bytes(dimensions: int, levels: int | None, users: int, threads: int) -> int:
    """Bytes that a batch takes while it is gathered and read: of counts (levels), or of all reports (None)."""
    if levels is None:
        return 4 * dimensions * users
    # Ones per thread and in all; both levels in the batch; what the analyzer makes of it.
    if levels == 2:
        return dimensions * (2 * threads + 8 + 16 + 16)
    # 16 bits per thread, 64 in all, and as many once more where the analyzer weights them.
    return dimensions * levels * (2 * threads + 8 + 8)


def free_bytes() -> int:
    """Memory that can be had now: of the machine, or of the container if that has less."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        lines = [line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")]
        found.append(1024 * int(lines[0].split()[1]))
    with suppress(OSError, ValueError):
        found.append(int(_LIMIT.read_text()) - int(_IN_USE.read_text()))
    return min(found, default=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


# A command asks before it makes a folder, and training asks again.
@lru_cache(maxsize=256)
def _say(line: str) -> None:
    _log.warning("apes: %s", line)
