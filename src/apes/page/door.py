"""The door: who is answered at all, what every answer says, and how much may be sent. Everything else is refused.

A page of a stranger's, open in the same browser, can send requests to this machine; and a name of a stranger's can be
made to mean this machine (DNS rebinding). So the Host has to be ours, a request that a page made has to come from ours,
and no other page may put ours in a frame or read an answer.
"""

import asyncio

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Whoever sends a body slower than this is sent away.
_SECONDS = 20.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class Refused(Exception):  # noqa: N818 - what happened to a request
    """A request is not answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def response(self) -> JSONResponse:
        """What is said instead."""
        return JSONResponse({"refused": str(self)}, status_code=self.status)


class Door:
    """Lets requests of our own page in, as an ASGI application around another."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # A socket that is not accepted is closed.
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            self._check(Headers(scope=scope), scope["path"])
        except Refused as refused:
            await refused.response(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _check(self, headers: Headers, path: str) -> None:
        if headers.getlist("host") not in [[host] for host in self._hosts]:
            raise Refused(421, "this page answers to its own address on this machine only")
        if any(origin not in self._origins for origin in headers.getlist("origin")):
            raise Refused(403, "this page answers to itself only, not to other pages")
        # A link to the page may stand anywhere; what it asks for may not.
        is_visit = path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_visit:
            raise Refused(403, "this page answers to itself only, not to other pages")


async def body_of(request: Request, most: int) -> bytes:
    """The body of a request, of at most so many bytes, sent without dawdling."""
    too_large = Refused(413, f"at most {most / 2**20:.3g} MB may be sent")
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told[:20]) > most:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > most:
                    raise too_large
    except TimeoutError:
        raise Refused(408, f"what is sent has to be here within {_SECONDS:.0f} s") from None
    return bytes(content)
