"""What a round takes in memory, said or refused before anything is charged."""

import logging
from functools import lru_cache

import numpy as np

from apes.client.clip import MOST_COORDINATES
from apes.errors import ParameterError
from apes.terms.terms import Terms
from apes.training.crews.crew import Crew, Facts
from apes.training.crews.work import FEWEST_USERS
from apes.training.free_memory import free_bytes
from apes.training.workers import Workers

_GB = 2.0**30
# From here on it is said.
_MUCH = 1 << 30
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
    who = _who(workers)
    needed = _needed(dimensions, levels, users, who)
    what = f"reports of {users:,} users" if levels is None else f"counts of {levels} levels"
    says = f"{what} on {dimensions:,} coordinates take about {needed / _GB:.3g} GB of memory"
    instead = f"2 levels with a norm take {_needed(dimensions, 2, users, who) / _GB:.2g} GB"
    if needed > (free := free_bytes()):
        alone = _needed(dimensions, levels, users, Facts(who.way, 1))
        if who.way in ("threads", "processes") and alone <= free:
            fewer = f"{free / _GB:.3g} GB are free; with one of them, {alone / _GB:.2g} GB"
            raise ParameterError(f"{who.way} must be fewer: {says}, {fewer}; got {who.count}")
        got = "continuous" if levels is None else levels
        raise ParameterError(f"levels must be fewer: {says}, {free / _GB:.3g} GB are free; {instead}; got {got!r}")
    if needed > _MUCH:
        _say(f"{says}; {instead}")
    return dimensions


def _who(workers: Workers | Crew | None) -> Facts:
    """Who is to do the work, as far as that is known beforehand."""
    if workers is not None and not isinstance(workers, Workers):
        return workers.facts
    workers = Workers() if workers is None else workers
    return Facts("threads", workers.count) if workers.processes is None else Facts("processes", workers.processes)


def _needed(dimensions: int, levels: int | None, users: int, who: Facts) -> int:
    """Bytes that a round takes on this machine."""
    size = processes_bytes if who.way == "processes" else round_bytes
    return size(dimensions, levels, users, who.count or 1)


def round_bytes(dimensions: int, levels: int | None, users: int, threads: int) -> int:
    """Bytes that a batch takes while it is gathered and read: of counts (levels), or of all reports (None)."""
    if levels is None:
        return 4 * dimensions * users
    # Ones per thread and in all; both levels in the batch; what the analyzer makes of it.
    if levels == 2:
        return dimensions * (2 * threads + 8 + 16 + 16)
    # 16 bits per thread, 64 in all, and as many once more where the analyzer weights them.
    return dimensions * levels * (2 * threads + 8 + 8)


def processes_bytes(dimensions: int, levels: int | None, users: int, processes: int) -> int:
    """The same where processes of this machine gather, each for itself; they are done when it is put together here."""
    here = round_bytes(dimensions, levels, users, 1)
    if levels is None:
        # What they hold, what is on its way, and what is made of it.
        return 3 * here
    working, sent = min(processes, -(-users // FEWEST_USERS)), np.min_scalar_type(users).itemsize
    # Each counts in 16 bits and in 64, of two levels the ones, and sends both as narrow as they may be.
    each = 2 + 8 + 16 + 2 * sent if levels == 2 else levels * (2 + 8 + sent)
    return max(here, dimensions * working * each)


# A command asks before it makes a folder, and training asks again.
@lru_cache(maxsize=256)
def _say(line: str) -> None:
    _log.warning("apes: %s", line)
