"""Structured logs: one line of JSON an event on the standard error, with counts and names of runs, never values."""

import json
import sys
import time


def log(event: str, **facts: object) -> None:
    """Write an event with its facts."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **facts}
    print(json.dumps(line), file=sys.stderr, flush=True)
