"""Counters of the shuffler, in the text format that Prometheus reads. They name no sender and no value."""

import threading
from collections import Counter

_HELP = {
    "apes_reports_accepted_total": "Sealed reports that counted.",
    "apes_reports_refused_total": "Sealed reports that did not count, by reason.",
    "apes_rounds_released_total": "Rounds released.",
    "apes_requests_refused_total": "Requests refused, by reason.",
    "apes_intake_seconds_total": "Seconds spent on taking batches.",
}


class Metrics:
    """Named counters with at most one label."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1, reason: str = "") -> None:
        """Add to a counter."""
        if name not in _HELP:
            raise KeyError(name)
        with self._lock:
            self._values[name, reason] += amount  # type: ignore[assignment]

    def text(self) -> str:
        """All counters."""
        lines = []
        with self._lock:
            values = dict(self._values)
        for name, explanation in _HELP.items():
            lines += [f"# HELP {name} {explanation}", f"# TYPE {name} counter"]
            found = {reason: value for (other, reason), value in values.items() if other == name}
            for reason, value in sorted((found or {"": 0}).items()):
                label = f'{{reason="{reason}"}}' if reason else ""
                lines.append(f"{name}{label} {value!r}")
        return "\n".join(lines) + "\n"
