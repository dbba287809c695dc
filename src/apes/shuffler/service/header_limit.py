"""The limit on a request's header: request line and all headers together, however they arrive.

HTTP parsers bound the part of a header that they are still waiting for; a header that arrives in one read is parsed
whole, whatever its size. So the size is looked at again when a header is complete, before anything else is done.
"""

from starlette.responses import PlainTextResponse
from starlette.types import Scope

MOST_HEADER = 16 * 1024
"""Bytes of a request line and all headers; a longer header is refused."""


def is_too_long(scope: Scope) -> bool:
    """Whether the header of an HTTP request is longer than it may be."""
    query = len(scope.get("query_string", b""))
    target = len(scope["raw_path"]) + (query + len(b"?") if query else 0)
    line = len(scope["method"]) + target + len(b"  HTTP/1.1\r\n")
    headers = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    return line + headers + len(b"\r\n") > MOST_HEADER


def refusal() -> PlainTextResponse:
    """The answer to a header that is too long; the connection ends with it."""
    text = f"the header has more than {MOST_HEADER} bytes\n"
    return PlainTextResponse(text, 431, {"connection": "close"})
