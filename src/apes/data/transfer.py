"""Fetch one file by HTTP."""

import http.client
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from apes.errors import DataError

_TIMEOUT_SECONDS = 30.0  # without a single byte
_CHUNK_BYTES = 1 << 18


def fetch(url: str, target: Path, limit: int, report: Callable[[float], None]) -> None:
    """Fetch ``url`` into the file ``target``, which may be left incomplete on failure.

    Args:
        url: http or https.
        target: the file to write.
        limit: the largest length accepted, in bytes.
        report: called now and then with the part that has arrived, in [0, 1].

    Raises:
        DataError: if the server cannot be reached, refuses, or sends too little or too much; the message
            gives the cause alone.
    """
    request = Request(url, headers={"User-Agent": "apes"})
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            _copy(response, target, limit, report)
    except HTTPError as error:
        error.close()
        raise DataError(f"HTTP {error.code} {error.reason}") from None
    except URLError as error:
        raise DataError(_one_line(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise DataError(_one_line(error)) from None


def _copy(response: http.client.HTTPResponse, target: Path, limit: int, report: Callable[[float], None]) -> None:
    expected = response.length
    received = 0
    with target.open("wb") as file:
        while chunk := response.read(_CHUNK_BYTES):
            received += len(chunk)
            if received > limit:
                raise DataError(f"sends more than the {limit} bytes expected at most")
            file.write(chunk)
            if expected:
                report(received / expected)
    # read(n) does not complain when the connection ends early.
    if expected is not None and received != expected:
        raise DataError(f"transfer ended after {received} of {expected} bytes")


def _one_line(cause: object) -> str:
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(text.split())
