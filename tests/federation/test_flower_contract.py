"""What we rely on of Flower's insides: where a new version differs, this says what, before a federation does."""

import hashlib
import inspect
import json
import time
from base64 import b64decode
from importlib import import_module
from importlib.metadata import version

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common import constant
from flwr.common.config import validate_fields_in_config
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import PullObjectResponse, PushObjectRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.error.catalog import API_ERROR_MAP
from flwr.supercore.exit import flwr_exit
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, verify_signature
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.main import create_app
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from apes.federation.fleet import ANNOUNCED_SECONDS
from apes.federation.public_door import _FOR_NODES, _HEADERS


def question():
    weights = ArrayRecord({"weights": Array("float32", (2,), "raw", bytes(8))})
    content = RecordDict({"ask": ConfigRecord({"header": b"header"}), "model": weights})
    ids = {"run_id": 5, "message_id": "", "src_node_id": 1, "dst_node_id": 7, "reply_to_message_id": ""}
    life = {"group_id": "3", "created_at": time.time(), "ttl": 600.0, "message_type": "train"}
    return make_message(metadata=Metadata(**ids, **life), content=content)


def test_the_version():
    assert version("flwr").startswith("1.41.")


def test_a_message_falls_apart_into_objects_and_comes_together_again():
    """Each is known by the SHA-256 of what it is sent as; the tree names all of them, and nothing else is needed."""
    message = question()
    objects, tree = get_all_nested_objects(message), get_object_tree(message)
    contents = {name: each.deflate() for name, each in objects.items()}
    assert {part.object_id for part in iterate_object_tree(tree)} == contents.keys()
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in contents.items())
    again = inflate_object_from_contents(tree.object_id, contents)
    assert again.content.config_records["ask"]["header"] == b"header"
    assert again.content.array_records["model"]["weights"].data == bytes(8)


def test_a_reply_goes_back_where_the_message_came_from():
    """Made of what a node gets first: the message without its content."""
    message = question()
    message.metadata.__dict__["_message_id"] = message.object_id
    head = message_from_proto(message_to_proto(remove_content_from_message(message)))
    reply = Message(RecordDict({"refused": ConfigRecord({"reason": "word"})}), reply_to=head)
    assert reply.metadata.reply_to_message_id == message.object_id
    assert (reply.metadata.src_node_id, reply.metadata.dst_node_id) == (7, 1)
    assert (reply.metadata.group_id, reply.metadata.run_id) == ("3", 5)
    assert reply.metadata.ttl <= 600.0
    assert reply.has_content()


def test_the_fleets_requests_and_answers():
    def fields(kind):
        return set(kind.DESCRIPTOR.fields_by_name)

    assert {"public_key", "heartbeat_interval"} <= fields(ActivateNodeRequest)
    assert {"messages_list", "message_object_trees"} <= fields(PullMessagesResponse)
    assert {"node", "messages_list", "message_object_trees", "clientapp_runtime_list"} <= fields(PushMessagesRequest)
    assert {"objects_to_push", "session_id"} <= fields(PushMessagesResponse)
    assert {"object_found", "object_available", "object_content"} <= fields(PullObjectResponse)
    assert {"node", "run_id", "object_id", "object_content", "session_id"} <= fields(PushObjectRequest)


def test_the_clients():
    fleet = FleetHttpClient("https://127.0.0.1:1", interceptors=[])
    for name in ("ActivateNode", "DeactivateNode", "SendNodeHeartbeat", "PullMessages", "PushMessages"):
        assert callable(getattr(fleet, name))
    assert isinstance(fleet._client, httpx.Client)
    # Which is why the courier says otherwise.
    assert fleet._client.follow_redirects is True
    fleet._client.close()
    assert callable(ControlHttpClient.RegisterNode)
    for name in ("PullMessages", "PullObject", "ConfirmMessageReceived"):
        assert callable(getattr(RuntimeHttpClient, name))


def test_the_grid_has_a_client_a_node_and_a_run():
    grid = HttpGrid("127.0.0.1:1", True, token="t")
    assert isinstance(grid._runtime_client, RuntimeHttpClient)
    assert grid.node.node_id == constant.SUPERLINK_NODE_ID
    assert isinstance(inspect.getattr_static(HttpGrid, "run"), property)
    grid.close()


@pytest.mark.parametrize(
    ("code", "number", "status"),
    [
        (ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED, 2004, 412),
        (ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, 2007, 403),
        (ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE, 23, 412),
    ],
)
def test_the_codes_of_errors(code, number, status):
    assert (code, API_ERROR_MAP[code].http_status_code) == (number, status)
    said = FlowerError.from_json(json.dumps({"code": number, "public_message": "why"}))
    assert (said.code, said.message) == (number, "why")
    assert FlowerError.from_json("<html>") is None


def test_heartbeats():
    assert constant.HEARTBEAT_MIN_INTERVAL <= ANNOUNCED_SECONDS
    assert constant.HEARTBEAT_PATIENCE == 2


def test_why_flowers_own_connection_is_not_used():
    """It ends the process by force; were that to go, ours might go too."""
    assert "os._exit" in inspect.getsource(flwr_exit)
    source = inspect.getsource(import_module("flwr.supernode.fleet_http_connection"))
    assert "flwr_exit(" in source
    assert "os.kill(os.getpid(), signal.SIGINT)" in source


def test_an_app_must_have_a_part_for_nodes():
    """Or ours would have none."""
    components = {"serverapp": "a.b:app"}
    config = {
        "project": {"name": "a", "version": "1.0.0", "description": "", "license": "x"},
        "tool": {"flwr": {"app": {"publisher": "a", "components": components}}},
    }
    is_valid, errors, _ = validate_fields_in_config(config)
    assert not is_valid
    assert any("clientapp" in error for error in errors)


def test_the_superlink_is_one_app_whose_paths_say_who_they_are_for():
    """All that nodes need is below one of two paths; runs are started and carried out below two others."""
    module = import_module("flwr.superlink.cli.flower_superlink")
    assert callable(module.uvicorn.run)
    assert callable(module.flower_superlink)
    assert "uvicorn.run(\n        app=fastapi_app," in inspect.getsource(module._run_superlink_http_api)
    paths = create_app().openapi()["paths"].keys()
    for_nodes = {path for path in paths if path.startswith(_FOR_NODES)}
    assert "/v1/fleet/pull-messages" in for_nodes
    assert {"/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task"} <= paths - for_nodes
    assert all(path.startswith(("/v1/fleet/", "/health")) for path in for_nodes)


def test_how_nodes_sign_and_where_they_are_known():
    """Three headers, of which one is signed; the app knows the registered keys as they are shown there."""
    assert _HEADERS == (b"flwr-public-key", b"flwr-timestamp", b"flwr-signature")
    state = create_app().state.linkstate_factory.state()
    key = generate_private_key(SECP384R1())
    context = ProtobufRequestContext("", PullMessagesRequest(), httpx.Request("POST", "https://127.0.0.1"))
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, lambda context: httpx.Response(200))
    shown, time, signature = (context.request.headers[name.decode()] for name in _HEADERS)
    assert b64decode(shown) == public_key_to_bytes(key.public_key())
    assert verify_signature(key.public_key(), time.encode(), b64decode(signature))
    assert state.get_node_id_by_public_key(b64decode(shown)) is None
