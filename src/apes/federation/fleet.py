"""A node's side of Flower's Fleet API, over TLS and signed with the node's key: sign on, receive, send.

Flower's own connection (`http_request_response`) is not used: on an error it ends the process, five seconds later even
if that was prevented, and on a 401 it interrupts it. Flower's client is used, and no app is ever fetched with it.
`tests/federation/test_flower_contract.py` says what of Flower's insides is relied on.
"""

import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from apes.errors import ProtocolError
from apes.federation.bounded import bound_answers
from apes.federation.expiry import why_refused
from apes.storage.json_logs import RareLog, log

ANNOUNCED_SECONDS = 15
"""How often a heartbeat is promised, at least 10; the SuperLink takes a node for gone after two of these."""
_SECONDS_BETWEEN_HEARTBEATS = 8.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
# Of a message: how many objects, how long those that were announced may be on their way.
_MOST_OBJECTS, _SECONDS_TO_COME = 10_000, 60.0
# What proxies and servers answer that are about to come back.
_AWAY = (httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.GATEWAY_TIMEOUT)
Q = TypeVar("Q")
A = TypeVar("A")


class NotRegistered(ProtocolError):  # noqa: N818 - the name says what happened
    """The SuperLink does not take this node's key."""


class StillThere(ProtocolError):  # noqa: N818 - likewise
    """The SuperLink does not let the node in: it does not know the key, or takes it to be there already."""


class RunOver(ProtocolError):  # noqa: N818 - likewise
    """The run that a message belongs to does not run any more."""


class Fleet:
    """A connection to the SuperLink at ``address`` (host and port) whose certificate the authority signed.

    While the SuperLink cannot be reached, every call waits and tries again, for as long as it takes. Of a message, and
    of any one answer, ``largest`` bytes are taken at most.
    """

    def __init__(self, address: str, authority: Path, key: EllipticCurvePrivateKey, largest: int) -> None:
        self._public, self._node, self._ended = public_key_to_bytes(key.public_key()), Node(), threading.Event()
        host, _, port = address.rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._client = FleetHttpClient(
            f"https://{address}",
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
            ],
            verify=ssl.create_default_context(cafile=str(authority)),
        )
        # A server is not to send us elsewhere: into the user's own network, say.
        self._client._client.follow_redirects = False
        # Nor to fill the memory here; and it is not to be asked to compress.
        self._client._client.headers["accept-encoding"] = "identity"
        self._largest = largest
        bound_answers(self._client._client, largest)
        self._away, self._lost = RareLog("superlink-away"), RareLog("heartbeat-lost")
        self._alive = threading.Thread(target=self._keep_alive, daemon=True)

    def sign_on(self, known_as: int | None = None) -> int:
        """Become the node of this key, and keep on saying that we are there; return its number.

        Who is ``known_as`` a number signs off first: one who was killed still counts as there.
        """
        if known_as is not None:
            self._sign_off(known_as)
        asked = ActivateNodeRequest(public_key=self._public, heartbeat_interval=ANNOUNCED_SECONDS)
        self._node = Node(node_id=self._call(self._client.ActivateNode, asked).node_id)
        if not self._alive.is_alive():
            self._alive.start()
        return int(self._node.node_id)

    def sign_off(self) -> None:
        """Say that nobody is there any more, once, since nobody waits for it; and hang up."""
        self._ended.set()
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        except (httpx.HTTPError, ProtocolError) as error:
            log("not-signed-off", kind=type(error).__name__)
        finally:
            self._client.close()

    def receive(self) -> tuple[Message, Message] | None:
        """The next message, if there is one: first without its content, for a reply, then as it was sent."""
        found = self._call(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        head, tree = message_from_proto(found.messages_list[0]), found.message_object_trees[0]
        run, contents = head.metadata.run_id, self._contents(head.metadata.run_id, tree)
        received = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=tree.object_id)
        self._call(self._client.ConfirmMessageReceived, received)
        whole = inflate_object_from_contents(tree.object_id, contents)
        if not isinstance(whole, Message):
            raise ProtocolError(f"the SuperLink sent a {type(whole).__name__} for a message")
        return head, whole

    def send(self, reply: Message) -> None:
        """Hand in a reply."""
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            objects, tree = get_all_nested_objects(reply), get_object_tree(reply)
        asked = PushMessagesRequest(
            node=self._node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[tree],
            # How long the vault took is nobody's business.
            clientapp_runtime_list=[0.0],
        )
        answer, run = self._call(self._client.PushMessages, asked), reply.metadata.run_id
        for name in answer.objects_to_push:
            if name in objects:
                piece = PushObjectRequest(
                    node=self._node,
                    run_id=run,
                    object_id=name,
                    object_content=objects[name].deflate(),
                    session_id=answer.session_id,
                )
                self._call(self._client.PushObject, piece)

    def _contents(self, run: int, tree: ObjectTree) -> dict[str, bytes]:
        names = {piece.object_id for piece in iterate_object_tree(tree)}
        if len(names) > _MOST_OBJECTS:
            raise ProtocolError(f"a message must have at most {_MOST_OBJECTS} parts, got {len(names)}")
        contents, size, end = {}, 0, time.monotonic() + _SECONDS_TO_COME
        for name in names:
            contents[name] = self._content(PullObjectRequest(node=self._node, run_id=run, object_id=name), end)
            size += len(contents[name])
            if size > self._largest:
                raise ProtocolError(f"a message must have at most {self._largest} bytes")
        return contents

    def _content(self, asked: PullObjectRequest, end: float) -> bytes:
        while True:
            answer = self._call(self._client.PullObject, asked)
            if answer.object_available:
                return bytes(answer.object_content)
            if not answer.object_found or time.monotonic() > end:
                raise ProtocolError("a part of a message never came")
            time.sleep(_FIRST_PAUSE)

    def _sign_off(self, node: int) -> None:
        try:
            self._call(self._client.DeactivateNode, DeactivateNodeRequest(node_id=node))
        except ProtocolError as error:
            # Not there: as it should be. Signing on says what else is wrong.
            log("was-signed-off", message=str(error))

    def _keep_alive(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_HEARTBEATS):
            asked = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=ANNOUNCED_SECONDS)
            try:
                self._client.SendNodeHeartbeat(asked)
            # RuntimeError: hung up meanwhile.
            except (httpx.HTTPError, ProtocolError, RuntimeError) as error:
                # Whoever looks for messages meets the same trouble, and says more about it.
                self._lost.count(type(error).__name__)

    def _call(self, method: Callable[[Q], A], asked: Q) -> A:
        """Ask until there is an answer; refusals become errors of ours."""
        pause, was_away = _FIRST_PAUSE, False
        while True:
            try:
                answer = method(asked)
            except httpx.TransportError as error:
                # The end of its certificate is its owner's to hear of, in words.
                ended = why_refused(error, "the SuperLink's", *self._place)
                # Counted by kind, not by words: those may be a server's, and there is no end of them.
                reason = "certificate" if ended else type(error).__name__
                self._away.count(reason, message=ended or str(error)[:200])
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in _AWAY:
                    raise _refusal(error.response) from None
                self._away.count(str(error.response.status_code))
            else:
                if was_away:
                    log("superlink-back")
                return answer
            was_away = True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _refusal(response: httpx.Response) -> ProtocolError:
    said, status = FlowerError.from_json(response.text), response.status_code
    if status == httpx.codes.UNAUTHORIZED:
        return NotRegistered("the SuperLink does not know this node's key, or its clock is minutes off")
    if status == httpx.codes.FORBIDDEN:
        return RunOver("the run is over")
    if said is not None and said.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
        return StillThere("the SuperLink does not let this node in")
    return ProtocolError(f"the SuperLink refused with status {status}" + ("" if said is None else f" ({said.code})"))
