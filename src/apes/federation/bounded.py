"""Answers of a server that are not to fill the memory of whoever asked: no longer than agreed, and not compressed."""

from collections.abc import Iterator

import httpx

from apes.errors import ProtocolError


def bound_answers(client: httpx.Client, most: int) -> None:
    """Have a client take at most so many bytes of an answer; ProtocolError from whatever was asked otherwise."""
    client._transport = _Bounded(client._transport, most)
    # Those for proxies that the environment names.
    mounts = {where: way and _Bounded(way, most) for where, way in client._mounts.items()}
    client._mounts = mounts


class _Bounded(httpx.BaseTransport):
    def __init__(self, inner: httpx.BaseTransport, most: int) -> None:
        self._inner, self._most = inner, most

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        # A few bytes of it may become as many as there is memory.
        if "content-encoding" in response.headers:
            response.close()
            raise ProtocolError("the server compresses its answers, which nobody asked for")
        response.stream = _Pieces(response, self._most)
        return response

    def close(self) -> None:
        self._inner.close()


class _Pieces(httpx.SyncByteStream):
    def __init__(self, response: httpx.Response, most: int) -> None:
        self._stream, self._most = response.stream, most

    def __iter__(self) -> Iterator[bytes]:
        received = 0
        if not isinstance(self._stream, httpx.SyncByteStream):
            raise ProtocolError("the server's answer cannot be read")
        for piece in self._stream:
            received += len(piece)
            if received > self._most:
                raise ProtocolError(f"the server's answer has more than {self._most} bytes")
            yield piece

    def close(self) -> None:
        if isinstance(self._stream, httpx.SyncByteStream):
            self._stream.close()
