"""Listening: takes connections one by one, so that a door can say which of them stay; uvicorn does the rest."""

import asyncio
import contextlib
import hmac
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from apes.errors import DataError
from apes.shuffler.service.door import Door, Visitor
from apes.shuffler.service.header_limit import is_too_long, refusal

_WAITING_TO_BE_TAKEN = 2048
# For the other side's farewell; it need not say it.
_SECONDS_TO_PART = 2.0
# After a moment without room in the system's tables.
_SECONDS_TO_RECOVER = 0.1


class Greeter:
    """An application behind a door: tells it who has asked, with the token or without, and who was answered.

    A request whose header is too long is refused here, with the token or without.
    """

    def __init__(self, app: ASGIApp, door: Door, authorization: bytes) -> None:
        self._app, self._door, self._authorization = app, door, authorization

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        peer = tuple(scope["client"])
        is_refused = is_too_long(scope)
        self._door.asked(peer, not is_refused and is_shown(scope["headers"], self._authorization))
        app = refusal() if is_refused else self._app
        try:
            await app(scope, receive, send)
        finally:
            self._door.answered(peer)


def is_shown(headers: Any, authorization: bytes) -> bool:
    """Whether headers, as pairs of bytes, hold exactly this authorization; takes as long whatever they hold."""
    shown = next((value for name, value in headers if name == b"authorization"), b"")
    return hmac.compare_digest(shown, authorization)


class Listener(uvicorn.Server):
    """Serves TLS connections that a door lets in; a handshake has as long as everything before the first request."""

    def __init__(self, config: uvicorn.Config, door: Door, handshake_seconds: float, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._door, self._handshake_seconds, self._end = door, handshake_seconds, end
        self._taking: list[asyncio.Task[None]] = []
        self._sockets: list[socket.socket] = []
        self._arriving: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await self.lifespan.startup()
        self._sockets = await _listening(self.config.host, self.config.port)
        self._taking = [asyncio.create_task(self._take(listening)) for listening in self._sockets]
        self.servers, self.started = [], True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nobody any more, let requests with the token come to their end, and stop.

        At last ``end`` is called: after this, uvicorn has the process end by the signal that it got.
        """
        for task in self._taking:
            task.cancel()
        for listening in self._sockets:
            listening.close()
        self._door.shut()
        await super().shutdown(sockets)
        self._end()

    async def _take(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError:
                # It is gone again, or the system has no room; there will be some.
                await asyncio.sleep(_SECONDS_TO_RECOVER)
                continue
            visitor = Visitor(connection, (str(peer[0]), int(peer[1])))
            if self._door.enter(visitor):
                task = asyncio.create_task(self._let_in(visitor, connection))
                self._arriving.add(task)
                task.add_done_callback(self._arriving.discard)
            else:
                connection.close()
            # A crowd that waits to be taken must not keep the others from being served, or those sent away from going.
            await asyncio.sleep(0)

    async def _let_in(self, visitor: Visitor, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: _Visit(self, self._door, visitor),
                connection,
                ssl=self.config.ssl,
                ssl_handshake_timeout=self._handshake_seconds,
                ssl_shutdown_timeout=_SECONDS_TO_PART,
            )
        except OSError:
            # No TLS, or not in time, or gone: nobody has asked for anything.
            self._door.leave(visitor)
            with contextlib.suppress(OSError):
                connection.close()


class _Visit(H11Protocol):
    """HTTP on a connection, whose beginning and end the door hears of. A header has at most 16 KiB."""

    def __init__(self, server: Listener, door: Door, visitor: Visitor) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._door, self._visitor = door, visitor

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        self._visitor.transport = transport
        super().connection_made(transport)
        # By which the door knows it.
        self.client = self._visitor.peer

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self._visitor)
        super().connection_lost(exc)


async def _listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host."""
    loop, found = asyncio.get_running_loop(), []
    try:
        places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((place[0], place[4]) for place in places):
            listening = socket.create_server(address, family=family, backlog=_WAITING_TO_BE_TAKEN)
            listening.setblocking(False)
            found.append(listening)
    except OSError as error:
        raise DataError(f"{host}:{port} cannot be listened on: {error}") from None
    return found
