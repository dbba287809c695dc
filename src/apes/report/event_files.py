"""Event files of a run, for TensorBoard, by its own library: accuracy, loss, epsilon and seconds per round."""

import importlib
import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from apes.errors import ApesError
from apes.training.run import RoundMetrics

LOGS = ("tensorboard",)
"""What can be asked for."""
_TAGS = {"accuracy": "test/accuracy", "loss": "test/loss", "epsilon": "privacy/epsilon", "seconds": "time/seconds"}


def check_installed() -> None:
    """Raise unless TensorBoard's library is there."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ApesError("tensorboard is not installed; get it with: pip install 'apes-fl[tensorboard]'")


class EventFiles:
    """Event files in a folder, one more whenever a run is gone on with.

    Args:
        folder: Where they lie; it is made.
        before: Rounds that are over already: written too if the folder has no event file yet. A reader is told at
            which round this file begins, and drops what an earlier one says of later rounds, which did not count.
    """

    def __init__(self, folder: Path, before: Sequence[RoundMetrics] = ()) -> None:
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        is_new = not folder.exists() or not any(folder.glob("events.out.tfevents.*"))
        self._writer: Any = writer.EventFileWriter(str(folder))
        self._session(len(before) + 1 if before and not is_new else 1)
        for metrics in before if is_new else ():
            self.add(metrics)

    def add(self, metrics: RoundMetrics) -> None:
        """Write what a round came to."""
        summary_pb2 = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        figures = {tag: getattr(metrics, name) for name, tag in _TAGS.items()}
        known = [(tag, float(value)) for tag, value in figures.items() if value is not None]
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in known]
        self._write(metrics.round, summary=summary_pb2.Summary(value=values))
        self._writer.flush()

    def __enter__(self) -> "EventFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def _session(self, step: int) -> None:
        event_pb2 = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._write(step, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))

    def _write(self, step: int, **what: Any) -> None:
        event_pb2 = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, **what))
