"""Structured logs: one line of JSON per event on the standard error, with counts and names of runs, never values."""

import contextlib
import json
import logging
import sys
import time
import traceback
from collections import Counter


class RareLog:
    """Counts events by reason, and logs a count when it is a power of two: nobody can flood the disk with refusals."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._counts: Counter[str] = Counter()

    def count(self, reason: str, **facts: object) -> None:
        """Count one more."""
        self._counts[reason] += 1
        count = self._counts[reason]
        if count & (count - 1) == 0:
            log(self._event, reason=reason, count=count, **facts)


def log(event: str, **facts: object) -> None:
    """Write an event with its facts; a line that cannot be written (the disk is full, say) is lost."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **facts}
    with contextlib.suppress(OSError):
        print(json.dumps(line), file=sys.stderr, flush=True)


def take_over_logging() -> None:
    """Have the warnings of libraries written as lines of ours, rarely: strangers can cause as many as they like.

    So too errors that Python can raise to nobody, as those in a callback of TLS are.
    """
    lines = _Lines()
    logging.basicConfig(handlers=[lines], level=logging.WARNING, force=True)
    sys.unraisablehook = lines.count_unraisable


class Rarely(logging.Filter):
    """Lets a warning or an error of another's log through when the count of those from its place is a power of two."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[tuple[str, int]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        if record.levelno < logging.WARNING:
            return True
        place = record.pathname, record.lineno
        self._counts[place] += 1
        return self._counts[place] & (self._counts[place] - 1) == 0


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._warnings = RareLog("library")

    def emit(self, record: logging.LogRecord) -> None:
        # The message without its arguments, and of an exception its kind and place without its words: either may hold
        # what somebody sent.
        facts = {"logger": record.name, "level": record.levelname.lower(), "message": str(record.msg).strip()}
        # Counted by where in the code it comes from: of messages, which may hold anything, there is no end.
        reason = f"{record.filename}:{record.lineno}"
        if record.exc_info is not None and record.exc_info[0] is not None:
            # The outer frames are the server's.
            frames = traceback.extract_tb(record.exc_info[2])[-3:]
            places = (f"{frame.filename}:{frame.lineno}" for frame in frames)
            reason = " ".join([reason, record.exc_info[0].__name__, *places])
        self._warnings.count(reason, **facts)

    def count_unraisable(self, error: "sys.UnraisableHookArgs") -> None:
        """Count an error by its kind; its words, and what it happened to, may be what somebody sent."""
        self._warnings.count(error.exc_type.__name__, level="error", message="an error that nobody could be told of")
