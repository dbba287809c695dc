"""The analyzer on Flower: relays sealed reports that it cannot read, and goes on from counts."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid.http_grid import HttpGrid

from apes.errors import ProtocolError
from apes.federation.analyzer import AnalyzerRun
from apes.federation.replies import Replies
from apes.federation.shuffler_client import CohortTooSmall
from apes.federation.vault.vault import VaultRefusal
from apes.storage.files import write_bytes, write_whole
from apes.storage.json_logs import log
from apes.wire.envelope import envelope_size
from apes.wire.frames import FrameReader, framed

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_FOR_NODES = 120.0
_MOST_FAILED_ATTEMPTS = 5
# What a vault says to terms that are not its own, to more weights than its own have, and to another's announcement.
_FOR_GOOD = (VaultRefusal.TERMS, VaultRefusal.REQUEST, VaultRefusal.ANNOUNCEMENT)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, from wherever an earlier run of the same settings stopped."""
    analyzer = AnalyzerRun(Path(str(context.run_config["settings"])))
    write_bytes(analyzer.folder / "analyzer.pid", str(os.getpid()).encode())
    if not isinstance(grid, HttpGrid):
        raise ProtocolError(f"the analyzer must run on a SuperLink, got a {type(grid).__name__}")
    Relay(analyzer, grid).train()
    analyzer.finish()


class Relay:
    """Asks every node for sealed reports, has them shuffled, and has the analyzer take its step."""

    def __init__(self, analyzer: AnalyzerRun, grid: HttpGrid) -> None:
        self._analyzer, self._grid = analyzer, grid
        self._silent: set[int] = set()
        self._refusals: Counter[str] = Counter()

    def train(self) -> None:
        """Run the rounds that are left; a round with too few reports is tried again."""
        terms, failed = self._analyzer.terms, 0
        log("analyzer", round=self._analyzer.number, rounds=terms.rounds, terms=terms.digest)
        self._wait_for_nodes()
        while not self._analyzer.is_done:
            number = self._analyzer.number
            if self._analyzer.begin_round():
                self._run_round()
            failed = 0 if self._analyzer.number > number or self._analyzer.is_done else failed + 1
            if failed == _MOST_FAILED_ATTEMPTS or (failed > 0 and self._is_hopeless()):
                raise ProtocolError(self._too_few(number, failed))
            if failed > 0:
                # Whoever was merely slow is waited for again, and whoever left may come back.
                self._silent.clear()
                self._wait_for_nodes()

    def _run_round(self) -> None:
        began, number = time.perf_counter(), self._analyzer.number
        self._refusals.clear()
        terms = self._analyzer.terms
        size, most = envelope_size(terms.dimensions, terms.levels), terms.limits.largest_card

        def write(file: BinaryIO) -> None:
            for reply in self._replies():
                file.writelines(self._sealed(reply, size, most))

        write_whole(self._analyzer.batch, write)
        collected = time.perf_counter() - began
        try:
            self._analyzer.close_round()
        except CohortTooSmall as error:
            log("cohort-too-small", round=number, message=str(error))
            return
        if self._analyzer.is_done and self._analyzer.number == number:
            log("target-reached", round=number)
            return
        # Where a round's time went: in Flower and vaults, in shuffler and analyzer.
        times = {"round": number, "collect": collected}
        times["shuffle_and_step"] = time.perf_counter() - began - collected
        with (self._analyzer.folder / "times.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(times) + "\n")
        metrics = self._analyzer.progress.metrics[-1]
        log("round", round=number, accuracy=metrics.accuracy, epsilon=metrics.epsilon)

    def _questions(self) -> list[Message]:
        """What every node is asked in this round."""
        weights, life, number = self._analyzer.weights, self._analyzer.settings.round_seconds, self._analyzer.number
        model = ArrayRecord({"weights": Array("float32", (len(weights) // 4,), "raw", weights)})
        # Signed: nodes pass it on unread, and vaults answer nothing else.
        ask = ConfigRecord({"header": self._analyzer.announcement})
        contents = [(RecordDict({"model": model, "ask": ask}), node) for node in self._nodes()]
        return [Message(asked, node, MessageType.TRAIN, ttl=life, group_id=str(number)) for asked, node in contents]

    def _replies(self) -> Iterator[Message]:
        """Ask all nodes and yield replies as they come, until all are there or time is up.

        A node that let a round pass is asked again, but not waited for until it has answered once more.
        """
        end, asked = time.monotonic() + self._analyzer.settings.round_seconds, self._questions()
        nodes = [message.metadata.dst_node_id for message in asked]
        waiting = dict(zip(self._grid.push_messages(asked), nodes, strict=True))
        replies = Replies(self._grid, waiting)
        while time.monotonic() < end and set(waiting.values()) - self._silent:
            for number, reply in replies.look():
                node = waiting.pop(number)
                if reply is None or not reply.has_content():
                    log("node-failed", node=node)
                    self._silent.add(node)
                else:
                    self._silent.discard(node)
                    yield reply
        self._silent |= set(waiting.values())

    def _nodes(self) -> list[int]:
        return list(self._grid.get_node_ids())

    def _wait_for_nodes(self) -> None:
        end = time.monotonic() + _SECONDS_FOR_NODES
        while len(self._nodes()) < self._analyzer.settings.nodes and time.monotonic() < end:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if not self._nodes():
            raise ProtocolError(f"no node came within {_SECONDS_FOR_NODES:g} seconds")

    def _sealed(self, reply: Message, size: int, most: int) -> Iterator[bytes]:
        """The sealed reports of a reply, framed; whatever else a node sends is dropped here and harms nobody else's."""
        record = reply.content.array_records.get("reports", ArrayRecord())
        if "sealed" not in record:
            refused = reply.content.config_records.get("refused", ConfigRecord())
            reason = str(refused.get("reason"))[:40]
            log("vault-refused", node=reply.metadata.src_node_id, reason=reason)
            self._refusals[reason] += 1
            return
        reader = FrameReader(size)
        reports = [frame for frame in reader.feed(record["sealed"].data) if len(frame) == size]
        if len(reports) > most:
            log("too-many", node=reply.metadata.src_node_id, reports=len(reports), most=most)
        # What is no report, or more than a card's, has no place in the batch, which is bounded: it would cost the
        # others theirs.
        yield from framed(reports[:most])
        if not reader.is_complete:
            log("cut-short", node=reply.metadata.src_node_id)

    def _is_hopeless(self) -> bool:
        """Whether every node that there is refuses for a reason that asking again does not change."""
        return sum(self._refusals[reason] for reason in _FOR_GOOD) >= max(len(self._nodes()), 1)

    def _too_few(self, number: int, times: int) -> str:
        said = ", ".join(f"{reason!r} {count} times" for reason, count in sorted(self._refusals.items()))
        # What vaults say in one word, their owners say at length.
        why = f"vaults refused by {said}" if said else "see the shuffler's log"
        if any(reason in self._refusals for reason in _FOR_GOOD):
            why += ": their owners agreed to other terms, perhaps to another model or analyzer, than this one"
        return f"round {number} found too few reports {times} times; {why}"
