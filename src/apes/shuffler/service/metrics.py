"""What the shuffler counts about itself."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, generate_latest

# When a counter was made is when the process began: one more line per counter would tell nothing.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it without a type


class Metrics:
    """Counters of one service for Prometheus, in a registry of their own. They name no sender and no value."""

    def __init__(self) -> None:
        self._registry, by = CollectorRegistry(), ["reason"]
        count = partial(Counter, registry=self._registry)
        self.reports_accepted = count("apes_reports_accepted_total", "Sealed reports that counted.")
        self.reports_refused = count("apes_reports_refused_total", "Sealed reports that did not count, by reason.", by)
        self.rounds_released = count("apes_rounds_released_total", "Rounds released.")
        self.requests_refused = count("apes_requests_refused_total", "Requests refused, by reason.", by)
        self._connections = count("apes_connections_closed_total", "Connections that had to go, by reason.", by)
        self.intake_seconds = count("apes_intake_seconds_total", "Seconds spent on taking batches.")

    def count_connection(self, reason: str) -> None:
        """Note that a connection was sent away."""
        self._connections.labels(reason).inc()

    def text(self) -> bytes:
        """All counters, in the text format 0.0.4."""
        return generate_latest(self._registry)
