"""The folder of a run: configuration, checkpoint, metrics, exposures, model. Survives a kill at any moment.

The checkpoint holds everything that was reached and is replaced in one step after every round, once the log says what
the round cost. Budgets of participants lie beside it under their digest, so that what was certified can be computed
again from the folder alone.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee
from apes.analyzer.optimizer import ServerState
from apes.data.table.schema import Schema
from apes.errors import DataError
from apes.mathematics.arrays import F64
from apes.storage.arrays import read_arrays
from apes.storage.files import write_bytes, write_whole
from apes.storage.version import __version__
from apes.training.basis import Basis, accountant_of, check_planned, check_same
from apes.training.going_on import filter_of
from apes.training.kept_budgets import keep_budgets, read_budgets
from apes.training.model_file import read_model, write_model
from apes.training.run import Identity, Progress, RoundMetrics
from apes.training.run_files import CHECKPOINT, CONFIG, EXPOSURES, METRICS, MODEL, SUMMARY, check_new, configured

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, OverflowError)


class RunFolder:
    """Where a run keeps what it has reached, and what it was started with: choices, accountant, data, versions."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path, self.config = path, config

    @classmethod
    def create(
        cls,
        path: Path,
        choices: Mapping[str, Any],
        basis: Basis,
        *,
        data: str,
        schema: Schema | None = None,
        data_dir: Path | None = None,
        levels: Mapping[str, float] | None = None,
    ) -> "RunFolder":
        """Start a folder for a new run; refuses one that already holds a run.

        ``choices`` is what is going to run, as plain values; ``basis`` what its guarantee will rest on. With the schema
        of a table, new rows can be encoded as those were that the model was trained on. ``data_dir`` is where the files
        of a named set were. ``levels`` are the budgets, as they are applied, of the levels that somebody chose.
        """
        check_new(path)
        versions = {"version": __version__, "python": sys.version.split()[0], "numpy": np.__version__}
        place = None if data_dir is None else str(data_dir.resolve())
        plan = {"choices": dict(choices), "basis": dict(basis), "data": data, "data_dir": place}
        plan["levels"] = dict(levels or {})
        config = {**plan, "schema": None if schema is None else schema.as_dict(), **versions}
        _write_json(path / CONFIG, config)
        return cls(path, config)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an earlier run."""
        file = path / CONFIG
        try:
            return cls(path, configured(json.loads(file.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            raise DataError(f"{path} holds no run: there is no {CONFIG}; start one with --out {path}") from None
        except _UNREADABLE as error:
            raise DataError(f"{file} is not the configuration of a run: {error}") from None

    def load(self) -> Progress | None:
        """What the run had reached, or None if it had not finished a round; rounds are not released a second time."""
        reached = self._checkpoint()
        # A crash in the first round leaves one line in the log, and nothing that is written after a checkpoint.
        if reached is None and (len(self._lines(EXPOSURES)) > 1 or (self.path / METRICS).exists()):
            raise DataError(f"{self.path} has released rounds, but its checkpoint is gone; start again in a new folder")
        return reached

    def _checkpoint(self) -> Progress | None:
        file = self.path / CHECKPOINT
        if not file.exists():
            return None
        try:
            stored = read_arrays(file, ("header", "weights", "velocity", "squares", "average", "step"))
            header, step = json.loads(stored.pop("header").tobytes().decode()), stored.pop("step").item()
            state, identity = ServerState(**stored, step=step), Identity(**header["identity"])
            metrics = tuple(RoundMetrics(**entry) for entry in header["metrics"])
            exposures = self._exposures(header["exposures"])
        except (*_UNREADABLE, DataError) as error:
            raise DataError(f"{file} is damaged ({error}); start again in a new folder") from None
        return Progress(identity, state, metrics, exposures)

    def save(self, progress: Progress) -> None:
        """Replace the log, then the checkpoint, then the metrics."""
        metrics = [asdict(entry) for entry in progress.metrics]
        exposures = [exposure.as_dict() for exposure in progress.exposures]
        header = {"identity": asdict(progress.identity), "metrics": metrics, "exposures": exposures}
        # Who took part must be known again after a crash, to charge for it; so it is kept before the round counts.
        keep_budgets(self.path, progress.exposures[-1])
        # The log before the checkpoint: after a crash it may say a round too many, which is done again, never too few.
        self._grow_log([{"run": header["identity"], **line} for line in exposures])
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        write_whole(self.path / CHECKPOINT, lambda file: np.savez(file, header=text, **vars(progress.state)))
        self._tell(progress.metrics)

    def _tell(self, metrics: Iterable[RoundMetrics]) -> None:
        write_bytes(self.path / METRICS, "".join(json.dumps(asdict(entry)) + "\n" for entry in metrics).encode())

    def _grow_log(self, entries: list[dict[str, Any]]) -> None:
        """Write the log anew; what it said before must be its beginning."""
        lines, before = [json.dumps(entry) for entry in entries], self._lines(EXPOSURES)
        if lines[: len(before)] != before:
            raise DataError(f"{self.path / EXPOSURES} is of another run than this; start again in a new folder")
        write_bytes(self.path / EXPOSURES, "".join(line + "\n" for line in lines).encode())

    def _lines(self, name: str) -> list[str]:
        file = self.path / name
        try:
            return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        except _UNREADABLE as error:
            raise DataError(f"{file} cannot be read: {error}") from None

    def keep_model(self, weights: F64, about: Mapping[str, Any]) -> None:
        """Write the trained model with what is said about it; and first the metrics, where a kill left some out."""
        reached = self._checkpoint()
        if reached is not None and len(self._lines(METRICS)) < len(reached.metrics):
            self._tell(reached.metrics)
        write_model(self.path / MODEL, weights, about)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary, which says that the run is over: what is made of the run has to be there before."""
        _write_json(self.path / SUMMARY, summary)

    @property
    def schema(self) -> Schema | None:
        """What is public about the table that the run is on, by the log of a simulation; None if it is on no table."""
        stored = self.config["schema"]
        found = None if stored is None else Schema.from_dict(stored)
        digest, bound = "" if found is None else found.digest, self.charged()[0].schema
        # A federation's log is bound to terms that have the schema in them.
        if bound not in ("", digest):
            raise DataError(f"{self.path / CONFIG} is not that of its log: it has another schema than was trained on")
        return found

    def model(self) -> tuple[F64, dict[str, Any] | None]:
        """Weights of a run that is over, and what its model's file says about them, if it does."""
        file = self.path / MODEL
        if not file.exists():
            raise DataError(f"{self.path} has no model yet: finish the run first, with --resume {self.path}")
        weights, about = read_model(file)
        if about is not None and about.get("terms_sha256") != self.charged()[0].terms:
            raise DataError(f"{file} is the model of another run than {EXPOSURES} is the log of")
        return weights, about

    def weights(self) -> F64:
        """Weights of a run that is over."""
        return self.model()[0]

    def recertify(self) -> tuple[list[float], Guarantee]:
        """What was spent after every round, and the guarantee, from the log alone: exposures and the budgets they name.

        Whoever stopped a run before its end may have looked at what it had learned, so all rounds that were settled
        beforehand count. Whoever let it go on beyond those has looked: what is guaranteed then is the target.

        What the guarantee rests on (delta, target or limit, settled or not, planned rounds and cohorts) is bound to
        every line of the log and to the checkpoint, and a configuration that says otherwise is refused. That finds what
        was edited; against somebody who forges all files of the folder nothing helps but a signature by somebody else.
        """
        identity, exposures = self.charged()
        basis, accountant = self._bound(identity)
        self._check_whole(identity, exposures)
        last, names = replace(exposures[-1], round=0), [exposure.budgets_sha256 for exposure in exposures]
        if accountant.settled:
            check_planned(basis, names[: basis["rounds"]], self.path)
        if accountant.settled and len(exposures) > basis["rounds"]:
            accountant = filter_of(basis)
        by_round = [accountant.record(exposure) for exposure in exposures]
        if accountant.settled:
            while accountant.rounds < basis["rounds"] and accountant.allows(last):
                accountant.record(last)
        schema = self.schema
        return by_round, replace(accountant.guarantee, caveats=() if schema is None else schema.caveats)

    def _bound(self, identity: Identity) -> tuple[Basis, Accountant]:
        """What the guarantee rests on, by the log; refused if the configuration says otherwise."""
        try:
            said, bound = dict(self.config["basis"]), dict(json.loads(identity.basis))
            check_same(said, bound, str(self.path / CONFIG))
            return bound, accountant_of(bound)
        except (*_UNREADABLE, AttributeError) as error:
            raise DataError(f"{self.path} does not say what its guarantee rests on: {error}") from None

    def _check_whole(self, identity: Identity, exposures: tuple[Exposure, ...]) -> None:
        """Raise unless the log has all rounds that checkpoint, metrics and summary know of, and is of the same run."""
        reached = self._checkpoint()
        if reached is not None and reached.identity != identity:
            raise DataError(f"{self.path / EXPOSURES} is of another run than {CHECKPOINT}")
        known = () if reached is None else reached.exposures
        told = max(len(known), self._rounds_told())
        if len(exposures) < told or [e.as_dict() for e in known] != [e.as_dict() for e in exposures[: len(known)]]:
            raise DataError(f"{self.path / EXPOSURES} is not the whole log of this run: others say {told} rounds")

    def charged(self) -> tuple[Identity, tuple[Exposure, ...]]:
        """Which run the log is of, all of it, and what it says was charged."""
        file = self.path / EXPOSURES
        if not (lines := self._lines(EXPOSURES)):
            raise DataError(f"{self.path} has released nothing yet: there is nothing in {EXPOSURES}")
        try:
            entries = [json.loads(line) for line in lines]
            runs = [entry.pop("run") for entry in entries]
            if any(run != runs[0] for run in runs):
                raise DataError(f"{file} is not the log of a run: it has lines of several")
            return Identity(**runs[0]), self._exposures(entries)
        except (*_UNREADABLE, AttributeError) as error:
            raise DataError(f"{file} is not the log of a run: {error}") from None

    def _rounds_told(self) -> int:
        """How many rounds there were, going by metrics and summary; 0 without either."""
        file = self.path / SUMMARY
        try:
            summary = json.loads(file.read_text(encoding="utf-8"))["rounds"] if file.exists() else 0
            return max(int(summary), len(self._lines(METRICS)))
        except _UNREADABLE as error:
            raise DataError(f"{file} is damaged: {error}") from None

    def _exposures(self, lines: Iterable[Mapping[str, Any]]) -> tuple[Exposure, ...]:
        # Rounds with the same participants name the same file, which is read once.
        read = cache(partial(read_budgets, self.path))
        return tuple(Exposure.from_dict(line, read(str(line["budgets_sha256"]))) for line in lines)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())
