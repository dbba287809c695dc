"""The SuperLink's two doors, without a network: what comes in by the public one, and what is only served here."""

import asyncio
from types import SimpleNamespace

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from apes.federation import superlink
from apes.federation.public_door import NodesOnly
from apes.federation.superlink import SuperLinkSettings

PUBLIC, LOCAL = 7001, 7002
MEMBER, STRANGER = (generate_private_key(SECP384R1()) for _ in range(2))
MEGABYTES = {"content-length": str(200 << 20)}


class Flower:
    """Stands in for Flower's app: knows one node, answers everything, and says what reached it."""

    def __init__(self):
        self.reached = []
        known = {public_key_to_bytes(MEMBER.public_key()): 7}
        links = SimpleNamespace(get_node_id_by_public_key=known.get)
        self.state = SimpleNamespace(linkstate_factory=SimpleNamespace(state=lambda: links))

    async def __call__(self, scope, receive, send):
        self.reached.append(scope.get("path"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def status(path, headers, port=PUBLIC):
    """The status of the answer to a request by a port, and whether it reached Flower; its body is never read."""
    flower, said = Flower(), []

    async def receive():
        pytest.fail("the body was read")

    async def send(message):
        said.append(message.get("status"))

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "server": ("127.0.0.1", port), "path": path, "raw_path": path.encode(), "headers": raw}
    scope["method"] = "POST"
    asyncio.run(NodesOnly(flower, PUBLIC)(scope, receive, send))
    return said[0], bool(flower.reached)


def shown(key):
    """What a node's requests are signed with."""
    context = ProtobufRequestContext("", PullMessagesRequest(), httpx.Request("POST", "https://127.0.0.1"))
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, lambda context: httpx.Response(200))
    return {name: value for name, value in context.request.headers.items() if name.startswith("flwr-")}


PATHS = ("control/start-run", "control/register-node", "runtime/acquire-task", "runtime/pull-messages", "fleetx", "")


@pytest.mark.parametrize("path", PATHS)
def test_who_has_the_invitation_reaches_nothing_but_what_nodes_need(path):
    assert status(f"/v1/{path}", {}) == (404, False)
    assert status(f"/v1/{path}", {}, port=LOCAL) == (200, True)
    assert status("/v1/fleet/pull-messages", {}) == (200, True)


def test_a_stranger_sends_no_more_than_a_few_bytes():
    forged = shown(MEMBER) | {"flwr-signature": shown(STRANGER)["flwr-signature"]}
    for headers in (
        {},
        shown(STRANGER),
        forged,
        forged | {"flwr-signature": "?"},
        forged | {"flwr-public-key": "YQ=="},
        shown(MEMBER) | {"flwr-timestamp": "another"},
    ):
        assert status("/v1/fleet/push-object", MEGABYTES | headers) == (413, False), headers
        assert status("/v1/fleet/push-object", {"content-length": "1000"} | headers) == (200, True)
    assert status("/v1/fleet/push-object", MEGABYTES | shown(MEMBER)) == (200, True)
    longer = {"content-length": str(300 << 20)}
    assert status("/v1/fleet/push-object", longer | shown(MEMBER)) == (413, False)


@pytest.mark.parametrize(
    "headers", [{"transfer-encoding": "chunked"}, {"content-length": "-1"}, {"content-length": 30 * "9"}]
)
def test_who_does_not_say_how_much_comes_is_refused(headers):
    assert status("/v1/fleet/push-object", headers) == (411, False)
    assert status("/v1/fleet/push-object", headers | shown(MEMBER)) == (411, False)


def test_runs_are_started_by_the_local_door_alone(monkeypatch):
    """Whoever reached that port could start a run, whose code the SuperLink then ran."""
    opened, served = [], []
    monkeypatch.setattr(superlink, "_door", lambda *place: opened.append(place) or place)
    monkeypatch.setattr(superlink.uvicorn.Server, "run", lambda server, sockets: served.append((server, sockets)))
    superlink._with_two_doors(SuperLinkSettings("0.0.0.0", PUBLIC, LOCAL))(Flower(), access_log=True)
    ((server, doors),) = served
    assert opened == doors == [("0.0.0.0", PUBLIC), ("127.0.0.1", LOCAL)]
    assert isinstance(server.config.app, NodesOnly)
    assert server.config.access_log is False
    # What is kept of a header that is not complete yet has a bound; uvicorn's other parser has none.
    assert (server.config.http, server.config.h11_max_incomplete_event_size) == ("h11", 16 * 1024)
