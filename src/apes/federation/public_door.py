"""The SuperLink's public door: what nodes need and nothing else, and from whoever is no node no more than a few bytes.

Flower reads a request whole before it asks who sent it, however long it is: whoever reached the port could fill the
SuperLink's memory. `tests/federation/test_flower_contract.py` says what of Flower's insides is relied on.
"""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from apes.shuffler.service.header_limit import is_too_long, refusal

_FOR_NODES = ("/v1/fleet/", "/health")
# Signing on, looking for work and the like; and a part of a reply, which the analyzer takes up to 2^28 bytes of.
_MOST_OF_ANYBODY, _MOST_OF_A_NODE = 1 << 16, (1 << 28) + (1 << 16)
_HEADERS = tuple(
    name.encode() for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
)


class NodesOnly:
    """Lets through to Flower's app what comes by another port than the public one, and of the rest what nodes need."""

    def __init__(self, app: Any, port: int) -> None:
        self._app, self._public = app, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it before any of its body is read."""
        is_public = scope["type"] != "lifespan" and scope["server"][1] == self._public
        refusal = await self._refusal(scope) if is_public else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        if is_too_long(scope):
            return refusal()
        if not scope.get("path", "").startswith(_FOR_NODES):
            return PlainTextResponse("not here\n", 404)
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or not length.isdigit() or len(length) > 20:
            return PlainTextResponse("say how long it is\n", 411)
        if int(length) <= _MOST_OF_ANYBODY:
            return None
        if int(length) > _MOST_OF_A_NODE or not await run_in_threadpool(self._is_nodes, headers):
            return PlainTextResponse("too long\n", 413)
        return None

    def _is_nodes(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a registered node signed a request; Flower looks again, and at when it was signed."""
        try:
            key, time, signature = (headers[name] for name in _HEADERS)
            public, known = b64decode(key, validate=True), self._app.state.linkstate_factory.state()
            if known.get_node_id_by_public_key(public) is None:
                return False
            return verify_signature(bytes_to_public_key(public), time, b64decode(signature, validate=True))
        except (KeyError, ValueError):
            return False
