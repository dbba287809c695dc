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

from apes.errors import ProtocolError
from apes.federation.analyzer import AnalyzerRun
from apes.federation.shuffler_client import CohortTooSmall
from apes.federation.vault.socket import VERSION
from apes.federation.vault.vault import VaultRefusal
from apes.storage.files import write_bytes, write_whole
from apes.storage.json_logs import log
from apes.wire.envelope import envelope_size
from apes.wire.frames import FrameReader, framed

# Flower's own wait for replies looks every three seconds.
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_FOR_NODES = 120.0
_MOST_FAILED_ATTEMPTS = 5
# What a vault says to terms that are not its own, and to more weights than its own have.
_FOR_GOOD = (VaultRefusal.TERMS, VaultRefusal.REQUEST)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, from wherever an earlier run of the same settings stopped."""
    analyzer = AnalyzerRun(Path(str(context.run_config["settings"])))
    write_bytes(analyzer.folder / "analyzer.pid", str(os.getpid()).encode())
    Relay(analyzer, grid).train()
    analyzer.finish()


class Relay:
    """Asks every node for sealed reports, has them shuffled, and has the analyzer take its step."""

    def __init__(self, analyzer: AnalyzerRun, grid: Grid) -> None:
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
        size = envelope_size(self._analyzer.terms.dimensions, self._analyzer.terms.levels)

        def write(file: BinaryIO) -> None:
            for reply in self._replies():
                file.writelines(self._sealed(reply, size))

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
        # Where a round's time went: in vaults and Flower, in shuffler and analyzer.
        times = {"round": number, "collect": collected}
        times["shuffle_and_step"] = time.perf_counter() - began - collected
        with (self._analyzer.folder / "times.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(times) + "\n")
        metrics = self._analyzer.progress.metrics[-1]
        log("round", round=number, accuracy=metrics.accuracy, epsilon=metrics.epsilon)

    def _questions(self) -> list[Message]:
        """What every node is asked in this round."""
        settings, number, terms = self._analyzer.settings, self._analyzer.number, self._analyzer.terms.digest
        weights, life = self._analyzer.progress.state.weights.astype("<f4"), settings.round_seconds
        model = ArrayRecord({"weights": Array("float32", weights.shape, "raw", weights.tobytes())})
        header = ConfigRecord({"version": VERSION, "run": settings.run, "round": number, "terms": terms})
        contents = [(RecordDict({"model": model, "round": header}), node) for node in self._nodes()]
        return [Message(asked, node, MessageType.TRAIN, ttl=life, group_id=str(number)) for asked, node in contents]

    def _replies(self) -> Iterator[Message]:
        """Ask all nodes and yield replies as they come, until all are there or time is up.

        A node that let a round pass is asked again, but not waited for until it has answered once more.
        """
        end, asked = time.monotonic() + self._analyzer.settings.round_seconds, self._questions()
        nodes = [message.metadata.dst_node_id for message in asked]
        waiting = dict(zip(self._grid.push_messages(asked), nodes, strict=True))
        while time.monotonic() < end and set(waiting.values()) - self._silent:
            replies = list(self._grid.pull_messages(list(waiting)))
            for reply in replies:
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                if reply.has_error():
                    log("node-failed", node=node, code=reply.error.code)
                    self._silent.add(node)
                else:
                    self._silent.discard(node)
                    yield reply
            if not replies:
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        self._silent |= set(waiting.values())

    def _nodes(self) -> list[int]:
        return list(self._grid.get_node_ids())

    def _wait_for_nodes(self) -> None:
        end = time.monotonic() + _SECONDS_FOR_NODES
        while len(self._nodes()) < self._analyzer.settings.nodes and time.monotonic() < end:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        if not self._nodes():
            raise ProtocolError(f"no SuperNode came within {_SECONDS_FOR_NODES:g} seconds")

    def _sealed(self, reply: Message, size: int) -> Iterator[bytes]:
        """The sealed reports of a reply, framed; whatever else a node sends is dropped here and harms nobody else's."""
        record = reply.content.array_records.get("reports", ArrayRecord())
        if "sealed" not in record:
            refused = reply.content.config_records.get("refused", ConfigRecord())
            reason = str(refused.get("reason"))[:40]
            log("vault-refused", node=reply.metadata.src_node_id, reason=reason)
            self._refusals[reason] += 1
            return
        reader = FrameReader(size)
        yield from framed(reader.feed(record["sealed"].data))
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
            why += ": their owners agreed to other terms, perhaps to another model, than the analyzer's"
        return f"round {number} found too few reports {times} times; {why}"
