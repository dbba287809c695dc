"""The folder of a run: configuration, checkpoint, metrics, events, model. Survives a kill at any moment.

The checkpoint holds everything that was reached and is replaced in one step after every round; the line files beside
it are written from it, so they never say more than it does.
"""

import json
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from apes.accounting.exposure import Event
from apes.analyzer.optimizer import ServerState
from apes.errors import DataError, ParameterError
from apes.storage.files import write_bytes, write_whole
from apes.storage.version import __version__
from apes.terms.plan import Plan
from apes.training.analysis import Progress, RoundMetrics

_CONFIG, _CHECKPOINT = "config.json", "checkpoint.npz"


class RunFolder:
    """Where a run keeps what it has reached."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan

    @classmethod
    def create(cls, path: Path, plan: Plan, provenance: str) -> "RunFolder":
        """Start a folder for a new run; refuses one that already holds a run.

        Args:
            path: The folder; made if need be.
            plan: What is going to run.
            provenance: Where the data came from.
        """
        if (path / _CONFIG).exists():
            raise ParameterError(
                f"out must be a new folder, got {str(path)!r}, which holds a run: --resume continues it"
            )
        if path.exists() and not path.is_dir():
            raise ParameterError(f"out must be a folder, got the file {str(path)!r}")
        config = {
            "plan": asdict(plan),
            "data": provenance,
            "version": __version__,
            "python": sys.version.split()[0],
            "numpy": np.__version__,
        }
        _write_text(path / _CONFIG, json.dumps(config, indent=2) + "\n")
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an earlier run."""
        file = path / _CONFIG
        try:
            plan = Plan(**json.loads(file.read_text(encoding="utf-8"))["plan"])
        except FileNotFoundError:
            raise DataError(f"{path} holds no run: there is no {_CONFIG}; start one with --out {path}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is not the configuration of a run: {error}") from None
        return cls(path, plan)

    def load(self) -> Progress | None:
        """What the run had reached, or None if it had not finished a round."""
        file = self.path / _CHECKPOINT
        if not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as stored:
                header = json.loads(bytes(stored["header"]).decode())
                state = ServerState(stored["weights"], stored["velocity"], stored["average"], int(header["step"]))
            metrics = tuple(RoundMetrics(**entry) for entry in header["metrics"])
            events = tuple(Event(**entry) for entry in header["events"])
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{file} is damaged ({error}); start again in a new folder") from None
        if header["fingerprint"] != self.plan.fingerprint:
            raise DataError(f"{file} is a checkpoint of another plan than {self.path / _CONFIG}")
        return Progress(state, metrics, events)

    def save(self, progress: Progress) -> None:
        """Replace the checkpoint, then the line files that follow from it."""
        metrics = [asdict(entry) for entry in progress.metrics]
        events = [entry.as_dict() for entry in progress.events]
        header = {
            "fingerprint": self.plan.fingerprint,
            "step": progress.state.step,
            "metrics": metrics,
            "events": events,
        }

        def write(file: BinaryIO) -> None:
            np.savez(
                file,
                header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
                weights=progress.state.weights,
                velocity=progress.state.velocity,
                average=progress.state.average,
            )

        write_whole(self.path / _CHECKPOINT, write)
        self._write_lines("metrics.jsonl", metrics)
        self._write_lines("events.jsonl", events)

    def finish(self, weights: np.ndarray[Any, np.dtype[np.float64]], summary: dict[str, Any]) -> None:
        """Write the model and the summary."""
        write_whole(self.path / "model.npz", lambda file: np.savez(file, weights=weights))
        _write_text(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def _write_lines(self, name: str, entries: list[dict[str, Any]]) -> None:
        _write_text(self.path / name, "".join(json.dumps(entry) + "\n" for entry in entries))


def _write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())
