"""Counters of the shuffler, for Prometheus. They name no sender and no value."""

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, generate_latest

# When a counter was made is when the process began: one more line per counter would tell nothing.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it without a type


class Metrics:
    """The counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.reports_accepted = self._counter("apes_reports_accepted_total", "Sealed reports that counted.")
        self.reports_refused = self._counter(
            "apes_reports_refused_total", "Sealed reports that did not count, by reason.", "reason"
        )
        self.rounds_released = self._counter("apes_rounds_released_total", "Rounds released.")
        self.requests_refused = self._counter("apes_requests_refused_total", "Requests refused, by reason.", "reason")
        self.intake_seconds = self._counter("apes_intake_seconds_total", "Seconds spent on taking batches.")

    def text(self) -> bytes:
        """All counters, in the text format 0.0.4."""
        return generate_latest(self._registry)

    def _counter(self, name: str, explanation: str, *labels: str) -> Counter:
        return Counter(name, explanation, labels, registry=self._registry)
