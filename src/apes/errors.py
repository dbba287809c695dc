"""The exceptions of the package: everything it raises on purpose is an ``ApesError``."""


class ApesError(Exception):
    """Base of every error that the package raises on purpose."""


class ParameterError(ApesError, ValueError):
    """A parameter is outside its range; the message names it, the range and the value."""


class RegimeError(ApesError):
    """A theorem was asked about a case that it does not cover."""


class DataError(ApesError):
    """A file or data set is missing, damaged or not what it claims to be; says what to do."""


class ProtocolError(ApesError):
    """A message does not fit the plan under which it was sent."""


class BudgetExceeded(ApesError):  # noqa: N818 - the name says what happened, as in the design
    """A release would spend more privacy budget than was granted."""


class WorkersError(ApesError):
    """Those who do the work are not to be had: gone, out of reach or of another version; says what to do."""
