"""Replies of nodes as the analyzer fetches them: each by itself, so that one that never comes whole holds up nobody.

Flower's own `Grid.pull_messages` fetches one reply after another. A node that announced one and never sent its parts
blocked it for three minutes, for everybody; one whose parts make no message ended it with an error.
`tests/federation/test_flower_contract.py` says what of Flower's insides is relied on.
"""

import threading
import time
from collections.abc import Iterable
from queue import Empty, Queue

from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid.http_grid import HttpGrid

from apes.errors import ProtocolError
from apes.storage.json_logs import RareLog

# Looks come soon after a reply, and rarely when there is none.
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.05, 0.5, 1.5
# How long the next part of a reply may take, and how large a reply may be: some 30,000 users of the paper's model.
_SECONDS_FOR_A_PART, _LARGEST_REPLY = 20.0, 1 << 28


class Replies:
    """Replies to the messages of these numbers."""

    def __init__(self, grid: HttpGrid, asked: Iterable[str]) -> None:
        self._grid, self._unseen, self._pause = grid, set(asked), _FIRST_PAUSE
        self._came: Queue[tuple[str, Message | None]] = Queue()
        self._lost = RareLog("reply-lost")

    def look(self) -> list[tuple[str, Message | None]]:
        """What has come since the last look, by the number of what was asked; None for one that came to nothing.

        If nothing has, it returns after a pause.
        """
        if self._unseen:
            asked = PullAppMessagesRequest(message_ids=self._unseen)
            found = self._grid._runtime_client.PullMessages(asked)
            for head, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                number = head.metadata.reply_to_message_id
                if number in self._unseen:
                    self._unseen.discard(number)
                    threading.Thread(target=self._fetch, args=(number, tree), daemon=True).start()
        came = self._all_that_came()
        self._pause = _FIRST_PAUSE if came else min(_GROWTH * self._pause, _LONGEST_PAUSE)
        return came

    def _all_that_came(self) -> list[tuple[str, Message | None]]:
        came = []
        try:
            came.append(self._came.get(timeout=self._pause))
            while True:
                came.append(self._came.get_nowait())
        except Empty:
            return came

    def _fetch(self, number: str, tree: ObjectTree) -> None:
        try:
            reply = self._whole(tree)
        # Of a node's bytes, by Flower's code: there is no telling what may be raised.
        except Exception as error:
            self._lost.count(type(error).__name__)
            reply = None
        self._came.put((number, reply))

    def _whole(self, tree: ObjectTree) -> Message:
        client, node, run = self._grid._runtime_client, self._grid.node, self._grid.run.run_id
        contents, size = {}, 0
        for name in {part.object_id for part in iterate_object_tree(tree)}:
            contents[name] = self._part(PullObjectRequest(node=node, run_id=run, object_id=name))
            size += len(contents[name])
            if size > _LARGEST_REPLY:
                raise ProtocolError(f"a reply must have at most {_LARGEST_REPLY} bytes")
        received = ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=tree.object_id)
        client.ConfirmMessageReceived(received)
        reply = inflate_object_from_contents(tree.object_id, contents)
        if not isinstance(reply, Message):
            raise ProtocolError(f"a node sent a {type(reply).__name__} for a reply")
        return reply

    def _part(self, asked: PullObjectRequest) -> bytes:
        end, pause = time.monotonic() + _SECONDS_FOR_A_PART, _FIRST_PAUSE
        while True:
            answer = self._grid._runtime_client.PullObject(asked)
            if answer.object_available:
                return bytes(answer.object_content)
            if not answer.object_found or time.monotonic() > end:
                raise ProtocolError("a part of a reply never came")
            time.sleep(pause)
            pause = min(_GROWTH * pause, _LONGEST_PAUSE)
