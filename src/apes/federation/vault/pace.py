"""When an answer goes out: at a public time after the request, whatever the work was.

How long the work takes depends on budgets and rows, so whoever waits for an answer could read them off a clock.
"""

import time
from collections.abc import Callable

from apes.checks import positive
from apes.storage.json_logs import RareLog

LONGEST = 3600.0
"""Most seconds that an answer may be made to wait for."""
# What every answer takes, whoever asks: two writes to the disk, a wake-up, and room for a machine that is busy.
_SECONDS = 0.25
# Twice what a coordinate of a user takes on one core of a 2.3 GHz Xeon: update, draw and seal, with some dozen rows.
_SECONDS_PER_COORDINATE = 1e-6
# Of a courier that waits for an answer, seconds.
_SHORTEST_PATIENCE = 600.0
# How soon a sleeper wakes depends on how long it slept. So the last stretch is waited for awake.
_SECONDS_AWAKE = 0.002


def public_seconds(dimensions: int, users: int) -> float:
    """Seconds from a request to its answer, by what everybody may know: coordinates of a report, users of a vault.

    The users are as many as reports are in an answer. Rows are not counted, since their number is nobody's to know.

    >>> round(public_seconds(7850, 1), 3), round(public_seconds(7850, 1000), 1)
    (0.258, 8.1)
    """
    return min(_SECONDS + _SECONDS_PER_COORDINATE * dimensions * users, LONGEST)


def patience_for(dimensions: int, users: int) -> float:
    """Seconds that a courier waits for an answer: more than an answer takes, also one that is late."""
    return max(_SHORTEST_PATIENCE, 2 * public_seconds(dimensions, users))


class Pace:
    """Lets answers go out so many seconds after their requests; where the work took longer, at the next multiple.

    Guarantee:
        As long as the work is done in time, when an answer goes out depends on nothing but the request's own time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._late = positive("answer_seconds", seconds, LONGEST), RareLog("late")

    def wait(self, began: float, is_done: Callable[[], bool]) -> None:
        """Wait until the answer to a request of ``began``, by `time.monotonic`, is made and may go out.

        To be called on another thread than the work is on: a scheduler lets those wait who have worked.
        """
        times = 1
        _wait_until(began + self._seconds)
        while not is_done():
            times = int((time.monotonic() - began) / self._seconds) + 1
            _wait_until(began + times * self._seconds)
        if times > 1:
            # Nobody but the vault's owner reads this: it says that answer_seconds is too small.
            self._late.count("answer", answer_seconds=self._seconds)


def _wait_until(end: float) -> None:
    time.sleep(max(end - _SECONDS_AWAKE - time.monotonic(), 0))
    while time.monotonic() < end:
        # Lets others of this process work, if they have not done yet.
        time.sleep(0)
