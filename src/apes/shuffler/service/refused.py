"""What the shuffler says to a request that it does not serve."""


class RequestRefused(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A request that the policy does not allow: HTTP status, one word that is counted, what the caller may know."""

    def __init__(self, status: int, reason: str, message: str, details: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.details = status, reason, details or {}
