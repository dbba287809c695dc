"""A node's side of the SuperLink, without a network: what a hostile server may send, and what a node makes of it."""

import json

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeResponse, PullMessagesResponse, PushMessagesResponse
from flwr.proto.message_pb2 import ConfirmMessageReceivedResponse, ObjectTree, PullObjectRequest, PullObjectResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from apes.errors import DataError, ProtocolError
from apes.federation import courier, fleet
from apes.federation.bounded import bound_answers
from apes.federation.courier import COURIER, Courier, CourierSettings
from apes.federation.fleet import Fleet, NotRegistered, RunOver, StillThere
from apes.federation.keys import Authority, node_key, write_secret
from apes.storage.settings import write_settings

LARGEST = 1 << 16
PROTOBUF = {"content-type": "application/protobuf"}


class Server(httpx.BaseTransport):
    """A SuperLink that answers every path by a function of the request."""

    def __init__(self):
        self.answers, self.asked = {}, []

    def handle_request(self, request):
        name = request.url.path.rpartition("/")[2]
        self.asked.append(name)
        answer = self.answers[name]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(200, headers=PROTOBUF, content=answer.SerializeToString())


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    file = tmp_path_factory.mktemp("a") / "authority.pem"
    file.write_bytes(Authority().certificate())
    return file


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(fleet, "_FIRST_PAUSE", 0.0)
    return Server()


@pytest.fixture
def node(authority, server):
    """A node whose connection ends in this process; what looks at answers stays in between."""
    made = Fleet("127.0.0.1:1", authority, generate_private_key(SECP384R1()), LARGEST)
    made._client._client._transport._inner = server
    yield made
    made._client.close()


class Pieces(httpx.SyncByteStream):
    """An answer that does not say how long it is, and how much of it was taken."""

    def __init__(self, count):
        self.taken, self._count = 0, count

    def __iter__(self):
        for _ in range(self._count):
            self.taken += 1
            yield bytes(1 << 10)


def test_a_server_does_not_send_a_node_elsewhere(node, server):
    server.answers["activate-node"] = httpx.Response(307, headers={"location": "https://127.0.0.1:1/v1/fleet/inside"})
    with pytest.raises(ProtocolError, match="status 307"):
        node.sign_on()
    assert server.asked == ["activate-node"]


def test_an_answer_is_taken_no_further_than_agreed(node, server):
    """Its length is not said, or it is; either way, most of it is never fetched."""
    for headers in (PROTOBUF, PROTOBUF | {"content-length": str(400 << 20)}):
        pieces = Pieces(1000)
        server.answers["pull-messages"] = httpx.Response(200, headers=headers, stream=pieces)
        with pytest.raises(ProtocolError, match=f"has more than {LARGEST} bytes"):
            node.receive()
        assert pieces.taken <= (LARGEST >> 10) + 1


def test_as_much_as_agreed_is_taken():
    client = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=Pieces(64))))
    bound_answers(client, LARGEST)
    assert len(client.get("https://here").content) == LARGEST


def test_a_compressed_answer_is_not_taken(node, server):
    packed = httpx.Response(200, headers=PROTOBUF | {"content-encoding": "gzip"}, stream=Pieces(1000))
    server.answers["pull-messages"] = packed
    with pytest.raises(ProtocolError, match="compresses its answers"):
        node.receive()
    assert packed.stream.taken == 0
    assert node._client._client.headers["accept-encoding"] == "identity"


def question(size=8):
    """A message as the SuperLink has it: its head, its parts and their tree."""
    weights = ArrayRecord({"weights": Array("float32", (size // 4,), "raw", bytes(size))})
    content = RecordDict({"ask": ConfigRecord({"header": b"header"}), "model": weights})
    ids = {"run_id": 5, "message_id": "", "src_node_id": 1, "dst_node_id": 7, "reply_to_message_id": ""}
    life = {"group_id": "3", "created_at": 1e9, "ttl": 600.0, "message_type": "train"}
    message = make_message(metadata=Metadata(**ids, **life), content=content)
    message.metadata.__dict__["_message_id"] = message.object_id
    parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    head = message_to_proto(remove_content_from_message(message))
    return head, parts, get_object_tree(message)


def serve(server, head, parts, tree):
    """Have a SuperLink hand out a message."""

    def part(request):
        asked = PullObjectRequest.FromString(request.content)
        content = parts[asked.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    server.answers |= {
        "pull-messages": PullMessagesResponse(messages_list=[head], message_object_trees=[tree]),
        "pull-object": part,
        "confirm-message-received": ConfirmMessageReceivedResponse(),
    }


def test_a_message_comes_whole(node, server):
    serve(server, *question())
    head, whole = node.receive()
    assert not head.content.config_records
    assert whole.content.config_records["ask"]["header"] == b"header"
    server.answers["pull-messages"] = PullMessagesResponse()
    assert node.receive() is None


def test_a_message_of_too_many_bytes_is_not_taken(node, server):
    """Each part may be small."""
    head, parts, tree = question()
    many = {f"{number:064x}": bytes(LARGEST // 4) for number in range(100)}
    serve(server, head, parts | many, ObjectTree(object_id=tree.object_id, children=[_leaf(name) for name in many]))
    with pytest.raises(ProtocolError, match=f"a message must have at most {LARGEST} bytes"):
        node.receive()
    assert server.asked.count("pull-object") <= 6


def test_a_message_of_too_many_parts_is_not_taken(node, server):
    head, _, tree = question()
    many = [_leaf(f"{number:x}") for number in range(101)]
    server.answers["pull-messages"] = PullMessagesResponse(
        messages_list=[head], message_object_trees=[ObjectTree(object_id=tree.object_id, children=many)]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "_MOST_OBJECTS", 100)
        # The answer itself may be as long.
        patch.setattr(node._client._client._transport, "_most", 1 << 24)
        with pytest.raises(ProtocolError, match="a message must have at most 100 parts, got 102"):
            node.receive()


def _leaf(name):
    return ObjectTree(object_id=name)


def test_what_is_no_message_is_refused(node, server):
    record = ConfigRecord({"no": "message"})
    head, _, _ = question()
    serve(server, head, {record.object_id: record.deflate()}, ObjectTree(object_id=record.object_id))
    with pytest.raises(ProtocolError, match="sent a ConfigRecord for a message"):
        node.receive()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(401, 1, NotRegistered), (403, 2007, RunOver), (412, 2004, StillThere), (500, 1, ProtocolError)],
)
def test_refusals_are_errors_of_ours(node, server, status, code, kind):
    said = json.dumps({"code": code, "public_message": "no"})
    server.answers["activate-node"] = httpx.Response(status, text=said)
    with pytest.raises(kind) as raised:
        node.sign_on()
    assert type(raised.value) is kind


def test_who_cannot_be_reached_is_asked_again(node, server):
    times = []

    def away(request):
        times.append(1)
        if len(times) == 1:
            raise httpx.ConnectError("nobody there")
        return httpx.Response(503) if len(times) == 2 else ActivateNodeResponse(node_id=9)

    server.answers["activate-node"] = away
    node._alive.start = lambda: None
    assert node.sign_on() == 9
    assert len(times) == 3


@pytest.fixture
def folder(tmp_path, authority):
    """A courier's."""
    write_secret(tmp_path / "node.key", node_key()[0])
    (tmp_path / "authority.pem").write_bytes(authority.read_bytes())
    write_settings(tmp_path / COURIER, CourierSettings("127.0.0.1:1", largest=LARGEST))
    return tmp_path


def test_a_second_courier_with_the_same_key_is_refused(folder):
    """They would sign each other off."""
    first = Courier(folder / COURIER)
    with pytest.raises(DataError, match=r"courier\.json is in use by another process"):
        Courier(folder / COURIER)
    first._fleet._client.close()


@pytest.fixture
def carrying(folder, server):
    made = Courier(folder / COURIER)
    made._fleet._client._client._transport._inner = server
    yield made
    made._fleet._client.close()


def test_a_courier_hands_on_what_it_does_not_read(carrying, server, monkeypatch):
    """Header and weights to the vault, byte for byte; the answer back."""
    asked, sent = [], []
    monkeypatch.setattr(courier, "ask_vault", lambda path, *question: asked.append(question) or b"\0sealed")
    monkeypatch.setattr(carrying._fleet, "send", sent.append)
    serve(server, *question())
    assert carrying._carry()
    assert asked == [(b"header", bytes(8), 600.0)]
    assert sent[0].content.array_records["reports"]["sealed"].data == b"sealed"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"", "silent"), (b"\1terms", "terms"), (b"\1" + 100 * b"x", 40 * "x"), (b"\2terms", "terms")],
)
def test_a_refusal_is_carried_as_a_word(carrying, server, monkeypatch, answer, reason):
    sent = []
    monkeypatch.setattr(courier, "ask_vault", lambda *_: answer)
    monkeypatch.setattr(carrying._fleet, "send", sent.append)
    serve(server, *question())
    assert carrying._carry()
    assert sent[0].content.config_records["refused"]["reason"] == reason
    assert not sent[0].content.array_records


RUBBISH = [
    RecordDict({}),
    RecordDict({"ask": ConfigRecord({"header": "a text"}), "model": ArrayRecord({})}),
    RecordDict({"ask": ConfigRecord({"header": b"{}"})}),
    RecordDict({"ask": ArrayRecord({}), "model": ConfigRecord({"header": b"{}"})}),
    RecordDict({"round": ConfigRecord({"version": 2, "round": 1})}),
]


@pytest.mark.parametrize("content", RUBBISH, ids=range(len(RUBBISH)))
def test_a_question_that_is_none_does_not_reach_the_vault(carrying, server, monkeypatch, content):
    """Nor does it end the courier."""
    monkeypatch.setattr(courier, "ask_vault", lambda *_: pytest.fail("it was asked"))
    ids = {"run_id": 5, "message_id": "", "src_node_id": 1, "dst_node_id": 7, "reply_to_message_id": ""}
    life = {"group_id": "3", "created_at": 1e9, "ttl": 600.0, "message_type": "train"}
    message = make_message(metadata=Metadata(**ids, **life), content=content)
    message.metadata.__dict__["_message_id"] = message.object_id
    parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    serve(server, message_to_proto(remove_content_from_message(message)), parts, get_object_tree(message))
    assert not carrying._carry()


class EnoughError(Exception):
    """Ends a courier that would go on for ever."""


@pytest.mark.parametrize("status", [400, 403, 429, 500])
def test_a_server_that_fails_is_asked_again_after_a_pause(carrying, server, monkeypatch, status):
    """One question per pause, and the pauses grow: never a loop that asks as fast as it can."""
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        assert server.asked.count("pull-messages") == len(pauses)
        if len(pauses) == 5:
            raise EnoughError

    monkeypatch.setattr(courier.time, "sleep", sleep)
    server.answers["pull-messages"] = httpx.Response(status)
    with pytest.raises(EnoughError):
        carrying._serve()
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] <= carrying._settings.pause


def test_a_server_that_cannot_be_reached_is_logged_by_kind_not_by_its_words(node, server, capfd):
    """The log keeps one count per kind of error, however many texts a server makes up."""
    texts = iter(range(1000))

    def away(request):
        number = next(texts)
        if number == 999:
            return ActivateNodeResponse(node_id=9)
        raise httpx.ConnectError(f"no {number}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "_LONGEST_PAUSE", 0.0)
        server.answers["activate-node"] = away
        node._alive.start = lambda: None
        node.sign_on()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    told = [line for line in lines if line["event"] == "superlink-away"]
    assert [line["count"] for line in told] == [2**power for power in range(10)]
    assert {line["reason"] for line in told} == {"ConnectError"}


def test_a_reply_is_handed_in_with_all_its_parts(node, server):
    """And how long the vault took is not told."""
    handed = []

    def push(request):
        handed.append(request.content)
        return PushMessagesResponse(objects_to_push=[])

    serve(server, *question())
    head, _ = node.receive()
    server.answers["push-messages"] = push
    node.send(Message(RecordDict({"refused": ConfigRecord({"reason": "terms"})}), reply_to=head))
    asked = fleet.PushMessagesRequest.FromString(handed[0])
    assert list(asked.clientapp_runtime_list) == [0.0]
    assert len(asked.message_object_trees) == 1
