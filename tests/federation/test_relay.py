"""What the analyzer passes on of a node's reply: what may be a report, nothing that would cost others theirs."""

import threading
import time

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, Metadata, RecordDict
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from local_federation import LocalGrid
from parties import until

from apes.federation import replies as replies_module
from apes.federation.relay import Relay
from apes.federation.replies import Replies
from apes.wire.frames import framed

SIZE = 225


def reply(data):
    """A node's answer with these bytes in the place of its reports."""
    sealed = Array("uint8", (len(data),), "raw", data)
    metadata = Metadata(1, "", 2, 1, "asked", "1", time.time(), 60.0, MessageType.TRAIN)
    return Message(metadata=metadata, content=RecordDict({"reports": ArrayRecord({"sealed": sealed})}))


def passed_on(data, most=3):
    return b"".join(Relay(None, None)._sealed(reply(data), SIZE, most))


def test_frames_that_are_no_report_are_dropped():
    """The shuffler takes 20,000 frames of rubbish in a batch: one node must not be able to fill them for everybody."""
    reports = [np.random.default_rng(seed).bytes(SIZE) for seed in range(3)]
    rubbish = [b""] * 30_000 + [bytes(SIZE - 1), bytes(SIZE + 1)]
    mixed = b"".join(framed([reports[0], *rubbish, *reports[1:]]))
    assert passed_on(mixed) == b"".join(framed(reports))


@pytest.mark.parametrize("cut", [1, SIZE, SIZE + 3])
def test_a_last_frame_cut_short_is_dropped(cut):
    reports = [bytes([seed]) * SIZE for seed in range(3)]
    assert passed_on(b"".join(framed(reports))[:-cut]) == b"".join(framed(reports[:2]))


def test_a_node_fills_no_more_places_than_a_card_has():
    """The batch is bounded: one node that repeats itself must not be able to fill it for everybody."""
    reports = [bytes([seed]) * SIZE for seed in range(200)]
    assert passed_on(b"".join(framed(reports)), most=7) == b"".join(framed(reports[:7]))


def in_parts(message):
    """A reply, what of it is sent, and the tree of its parts."""
    message.metadata.__dict__["_message_id"] = message.object_id
    parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    return message, parts, get_object_tree(message)


def looks(replies, enough):
    """What comes of all looks until there is enough."""
    came = {}
    until(lambda: came.update(replies.look()) or len(came) >= enough)
    return came


def test_a_node_that_announces_and_sends_nothing_holds_up_nobody():
    """It blocked Flower's own way of fetching for everybody; here, the others come while it is waited for."""
    honest, silent = in_parts(reply(b"honest")), in_parts(reply(b"silent"))
    grid, released = LocalGrid({}), threading.Event()
    grid.announce("silent", silent[0], {}, silent[2])
    grid.announce("honest", *honest)
    # By the reply's own metadata: what it is an answer to.
    for number, (head, _) in grid._replies.items():
        head.metadata.reply_to_message_id = number
    replies, pull = Replies(grid, ["silent", "honest"]), grid.PullObject

    def slow(asked):
        if asked.object_id not in honest[1]:
            assert released.wait(60)
        return pull(asked)

    grid.PullObject = slow
    try:
        came = looks(replies, 1)
    finally:
        grid.PullObject = lambda asked: PullObjectResponse(object_found=False)
        released.set()
    assert came["honest"].content.array_records["reports"]["sealed"].data == b"honest"
    assert looks(replies, 1) == {"silent": None}


@pytest.mark.parametrize("found", [True, False])
def test_a_part_that_never_comes_is_given_up(monkeypatch, found):
    monkeypatch.setattr(replies_module, "_SECONDS_FOR_A_PART", 0.0)
    message, _, tree = in_parts(reply(b"sealed"))
    grid = LocalGrid({})
    grid.announce("asked", message, {}, tree)
    grid.PullObject = lambda asked: PullObjectResponse(object_found=found)
    assert looks(Replies(grid, ["asked"]), 1) == {"asked": None}


def test_a_reply_of_more_bytes_than_agreed_is_given_up(monkeypatch):
    """Its parts are fetched no further; nothing is confirmed."""
    monkeypatch.setattr(replies_module, "_LARGEST_REPLY", 50)
    message, parts, tree = in_parts(reply(bytes(1000)))
    grid = LocalGrid({})
    grid.announce("asked", message, parts, tree)
    assert looks(Replies(grid, ["asked"]), 1) == {"asked": None}
    assert grid.confirmed == []
    monkeypatch.setattr(replies_module, "_LARGEST_REPLY", 1 << 20)
    grid.announce("asked", message, parts, tree)
    assert looks(Replies(grid, ["asked"]), 1)["asked"].has_content()
    assert grid.confirmed == [tree.object_id]


def test_what_is_no_message_is_nobodys_error():
    """It ended the analyzer."""
    record, message = ConfigRecord({"no": "message"}), in_parts(reply(b"x"))[0]
    grid = LocalGrid({})
    grid.announce("asked", message, {record.object_id: record.deflate()}, ObjectTree(object_id=record.object_id))
    assert looks(Replies(grid, ["asked"]), 1) == {"asked": None}
    for junk in (b"", b"\xff" * 100):
        grid.announce("asked", message, {"ab": junk}, ObjectTree(object_id="ab"))
        assert looks(Replies(grid, ["asked"]), 1) == {"asked": None}
