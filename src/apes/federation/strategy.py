"""The analyzer on Flower: a strategy that relays sealed reports it cannot read, and goes on from counts."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result, Strategy

from apes.errors import ProtocolError
from apes.federation.analyzer import AnalyzerRun
from apes.federation.shuffler_client import CohortTooSmall
from apes.federation.vault.socket import VERSION
from apes.storage.files import write_bytes, write_whole
from apes.storage.json_logs import log
from apes.wire.envelope import envelope_size
from apes.wire.frames import FrameReader, framed

# Flower's own wait for replies looks every three seconds.
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_FOR_NODES = 120.0
_MOST_FAILED_ATTEMPTS = 5

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, from wherever an earlier run of the same settings stopped."""
    analyzer = AnalyzerRun(Path(str(context.run_config["settings"])))
    write_bytes(analyzer.folder / "analyzer.pid", str(os.getpid()).encode())
    strategy = ShuffledMean(analyzer)
    strategy.start(grid, strategy.arrays(), num_rounds=analyzer.terms.plan.rounds)
    analyzer.finish()


class ShuffledMean(Strategy):
    """Asks every node for sealed reports, has them shuffled, steps against the calibrated mean.

    Args:
        analyzer: The run; durable, so that a new strategy on the same settings goes on where this one stopped.
    """

    def __init__(self, analyzer: AnalyzerRun) -> None:
        self._analyzer = analyzer
        self._silent: set[int] = set()

    def arrays(self) -> ArrayRecord:
        """The model as nodes get it."""
        weights = self._analyzer.weights
        return ArrayRecord({"weights": Array("float32", weights.shape, "raw", weights.astype("<f4").tobytes())})

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds that are left; a round with too few reports is tried again.

        Only ``num_rounds`` is heeded of what Flower foresees besides: the rest is the analyzer's settings.
        """
        self.summary()
        _wait_for_nodes(grid, self._analyzer.settings.nodes)
        arrays, failed = initial_arrays, 0
        while self._analyzer.number <= num_rounds and not self._analyzer.is_done:
            number = self._analyzer.number
            if self._analyzer.begin_round():
                asked = list(self.configure_train(number, arrays, ConfigRecord(), grid))
                self.aggregate_train(number, self._collect(grid, asked))
            failed = 0 if self._analyzer.number > number else failed + 1
            if failed == _MOST_FAILED_ATTEMPTS:
                raise ProtocolError(f"round {number} found too few reports {failed} times; see the shuffler's log")
            if failed > 0:
                # Whoever was merely slow is waited for again, and whoever left may come back.
                self._silent.clear()
                _wait_for_nodes(grid, self._analyzer.settings.nodes)
            arrays = self.arrays()
        result = Result()
        result.arrays = arrays
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every node for its reports of this round."""
        settings, terms = self._analyzer.settings, self._analyzer.terms
        asked: dict[str, int | str] = {
            "version": VERSION,
            "run": settings.run,
            "round": server_round,
            "terms": terms.fingerprint,
        }
        for node in grid.get_node_ids():
            content = RecordDict({"model": arrays, "round": ConfigRecord({**asked})})
            yield Message(content, node, MessageType.TRAIN, ttl=settings.round_seconds, group_id=str(server_round))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Relay the sealed reports to the shuffler and take a step from what it releases."""
        began, slowest, size = time.perf_counter(), 0.0, envelope_size(self._analyzer.terms.dimensions)

        def write(file: BinaryIO) -> None:
            nonlocal slowest
            for reply in replies:
                slowest = max(slowest, _vault_seconds(reply))
                file.writelines(_sealed(reply, size))

        write_whole(self._analyzer.batch, write)
        collected = time.perf_counter() - began
        try:
            self._analyzer.close_round()
        except CohortTooSmall as error:
            log("cohort-too-small", round=server_round, message=str(error))
            return None, None
        metrics = self._analyzer.progress.metrics[-1]
        self._note_times(server_round, collected, slowest, time.perf_counter() - began - collected)
        log("round", round=server_round, accuracy=metrics.accuracy, epsilon=metrics.epsilon)
        return self.arrays(), MetricRecord({"accuracy": metrics.accuracy, "loss": metrics.loss})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: the analyzer judges the model on public examples."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Log where the run stands."""
        terms = self._analyzer.terms
        log("analyzer", round=self._analyzer.number, rounds=terms.plan.rounds, terms=terms.fingerprint)

    def _collect(self, grid: Grid, asked: list[Message]) -> Iterable[Message]:
        """Yield replies as they come, until all are there or time is up.

        A node that let a round pass is asked again, but not waited for until it has answered once more.
        """
        end = time.monotonic() + self._analyzer.settings.round_seconds
        nodes = [message.metadata.dst_node_id for message in asked]
        waiting = dict(zip(grid.push_messages(asked), nodes, strict=True))
        while time.monotonic() < end and set(waiting.values()) - self._silent:
            replies = list(grid.pull_messages(list(waiting)))
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

    def _note_times(self, number: int, collected: float, slowest: float, rest: float) -> None:
        """Keep where a round's time went: in vaults, in Flower, in shuffler and analyzer."""
        times = {"round": number, "collect": collected, "slowest_vault": slowest, "shuffle_and_step": rest}
        with (self._analyzer.folder / "times.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(times) + "\n")


def _wait_for_nodes(grid: Grid, wanted: int) -> None:
    end = time.monotonic() + _SECONDS_FOR_NODES
    while len(list(grid.get_node_ids())) < wanted and time.monotonic() < end:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if not list(grid.get_node_ids()):
        raise ProtocolError(f"no SuperNode came within {_SECONDS_FOR_NODES:g} seconds")


def _sealed(reply: Message, size: int) -> Iterator[bytes]:
    """The sealed reports of a reply, framed; whatever else a node sends is dropped here and harms nobody else's."""
    record = reply.content.array_records.get("reports", ArrayRecord())
    if "sealed" not in record:
        refused = reply.content.config_records.get("refused", ConfigRecord())
        log("vault-refused", node=reply.metadata.src_node_id, reason=str(refused.get("reason"))[:40])
        return
    reader = FrameReader(size)
    yield from framed(reader.feed(record["sealed"].data))
    if not reader.is_complete:
        log("cut-short", node=reply.metadata.src_node_id)


def _vault_seconds(reply: Message) -> float:
    timing = reply.content.metric_records.get("timing")
    value = 0.0 if timing is None else timing.get("vault_seconds", 0.0)
    return float(value) if isinstance(value, int | float) else 0.0
