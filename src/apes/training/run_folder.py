"""The folder of a run: configuration, checkpoint, metrics, exposures, model. Survives a kill at any moment.

The checkpoint holds everything that was reached and is replaced in one step after every round, once the log says what
the round cost. Budgets of participants lie beside it under their digest, so that what was certified can be computed
again from what may be shown of the folder alone (`apes.training.run_files`).
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from apes.accounting.accountant import Accountant
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee
from apes.analyzer.optimizer import ServerState
from apes.checks import truth
from apes.data.table.schema import Schema
from apes.errors import DataError
from apes.mathematics.arrays import F64
from apes.storage.arrays import read_arrays, write_arrays
from apes.storage.files import OWNERS_FILE, read_regular, write_bytes
from apes.storage.locks import held
from apes.storage.version import __version__
from apes.training.basis import Basis, accountant_of, check_planned, check_same
from apes.training.going_on import filter_of
from apes.training.kept_budgets import keep_budgets, read_budgets
from apes.training.key_files import destroy_run_key, read_keys, remove_keys, write_keys
from apes.training.keys import RunKeys
from apes.training.model_file import digest_of_weights, read_model, write_model
from apes.training.run import Identity, Progress, RoundMetrics
from apes.training.run_files import (
    ABOUT,
    CERTIFICATE,
    CHECKPOINT,
    CHOICES,
    CONFIG,
    EXPOSURES,
    IDENTITY,
    METRICS,
    MODEL,
    PRIVATE,
    README,
    RUN_KEY,
    SORTED,
    SUMMARY,
    check_new,
    configured,
    make_private,
    place_of,
    remove_halves,
)

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError, OverflowError)
_ANEW = "what was released is certified by `apes account --run`; for more, start a new run"
_EARLIER = (
    "was begun by an earlier version, whose folders are read (show, account, predict) and not written: start a new run"
)


class RunFolder:
    """Where a run keeps what it has reached, and what it was started with: choices, accountant, data, versions."""

    def __init__(self, path: Path, config: Mapping[str, Any], bound: str = "", own: str = "") -> None:
        self.path, self.config = path, config
        # What log and checkpoint are bound to: digests of what may be shown of the configuration, and of the owner's.
        self._bound_to, self._own_bound_to = bound, own

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
        keys: RunKeys | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> "RunFolder":
        """Start a folder for a new run; refuses one that already holds a run.

        ``choices`` is what is going to run, as plain values; ``basis`` what its guarantee will rest on. With the schema
        of a table, new rows can be encoded as those were that the model was trained on. ``data_dir`` is where the files
        of a named set were. ``levels`` are the budgets, as they are applied, of the levels that somebody chose.
        ``keys``: the run's secrets, where the noise of reports is drawn here. ``shown``: what of ``choices`` and
        ``data`` may be shown, under these names; by default all.
        """
        check_new(path)
        make_private(path)
        versions = {"version": __version__, "python": sys.version.split()[0], "numpy": np.__version__}
        place = None if data_dir is None else str(data_dir.resolve())
        told = {"choices": dict(choices), "data": data} | dict(shown or {})
        plan = {"layout": SORTED, **told, "basis": dict(basis), "levels": dict(levels or {})}
        public = {**plan, "schema": None if schema is None else schema.as_dict(), **versions}
        with cls(path, public).locked():
            # Who was first while the other one waited for the lock has begun a run here.
            if (path / CONFIG).exists():
                check_new(path)
            if keys is not None:
                # Before there is a run: no round is under a key that could be lost.
                remove_keys(path)
                write_keys(path, keys)
            own = {"choices": dict(choices), "data": data, "data_dir": place}
            _write_json(place_of(path, CHOICES), own, OWNERS_FILE)
            _write_json(path / CONFIG, public)
            write_bytes(path / README, ABOUT.encode())
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an earlier run, or a copy of what may be shown of one."""
        file = path / CONFIG
        try:
            written = json.loads(read_regular(file))
            config, own = configured(written), {}
            if config["layout"] == SORTED and (path / PRIVATE).exists():
                file = place_of(path, CHOICES)
                own = json.loads(read_regular(file))
                config |= _owners(config, own)
            return cls(path, config, _digest_of(written), _digest_of(own))
        except FileNotFoundError:
            raise DataError(f"{path} holds no run: there is no {file.name}; start one with --out {path}") from None
        except _UNREADABLE as error:
            raise DataError(f"{file} is not the configuration of a run: {error}") from None

    @property
    def is_sorted(self) -> bool:
        """Whether the owner's files are apart from those that may be shown; in an earlier layout they are not."""
        return bool(self.config["layout"] == SORTED)

    @property
    def is_copy(self) -> bool:
        """Whether this is a copy of what may be shown, without the owner's files."""
        return self.is_sorted and not (self.path / PRIVATE).exists()

    def place(self, name: str) -> Path:
        """Where a file of the run is."""
        return place_of(self.path, name, self.config["layout"])

    def _has(self, name: str) -> bool:
        """Whether a file is there, if only as a link that leads nowhere: it is not passed over then."""
        return os.path.lexists(self.place(name))

    def check_goes_on(self) -> None:
        """Raise unless rounds can be added here, by this version and from all that it takes."""
        if not self.is_sorted:
            raise DataError(f"{self.path} {_EARLIER}")
        if self.is_copy:
            raise DataError(f"{self.path} is a copy of what may be shown of a run, which goes on where it was begun")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Work on the run, alone; a process that died while it did is no obstacle, and what it left half is removed.

        Raises:
            DataError: If another process works on it.
        """
        with held(make_private(self.path) / "run", f"{self.path}: another process works on this run; let it finish"):
            remove_halves(self.path)
            yield

    def load(self) -> Progress | None:
        """What the run had reached, or None if it had not finished a round; rounds are not released a second time."""
        reached = self._checkpoint()
        # A crash in the first round leaves one line in the log, and nothing that is written after a checkpoint.
        if reached is None and not self.is_copy and (len(self._lines(EXPOSURES)) > 1 or self._has(METRICS)):
            raise DataError(f"{self.path} has released rounds, but its checkpoint is gone; start again in a new folder")
        if reached is not None and self.is_sorted and self._header().get("choices") != self._own_bound_to:
            both = f"{self.place(CHOICES)} and {CHECKPOINT}"
            raise DataError(f"{both} are not of the same run, or were changed; start again in a new folder")
        return reached

    def keys(self) -> RunKeys:
        """The secrets to go on with; without noise's where it was destroyed when the run ended.

        Raises:
            DataError: If rounds are to come under a key that is gone, or another than the one that rounds were under.
        """
        self.check_goes_on()
        keys = read_keys(self.path, self.config["choices"].get("seed"))
        reached = self._checkpoint()
        if reached is None or self.finished_rounds == reached.rounds or keys.is_seeded:
            return keys
        if keys.noise is None:
            raise DataError(f"{self.place(RUN_KEY)} is missing, and the run cannot go on without it; {_ANEW}")
        if keys.check != self._header()["key"]:
            raise DataError(f"{self.place(RUN_KEY)} is not the key that the run was drawn under; {_ANEW}")
        return keys

    @property
    def finished_rounds(self) -> int | None:
        """After how many rounds the run was over; None if it was not yet."""
        about = self.model()[1] if self.has_model else None
        return None if about is None else about.get("rounds")

    @property
    def has_model(self) -> bool:
        """Whether there is a model that the run ended with; one without its certificate was being written."""
        return self._has(MODEL) and (not self.is_sorted or self._has(CERTIFICATE))

    def _header(self) -> dict[str, Any]:
        stored = read_arrays(self.place(CHECKPOINT), ("header",), is_stored=True)
        return dict(json.loads(stored["header"].tobytes().decode()))

    def _checkpoint(self) -> Progress | None:
        file = self.place(CHECKPOINT)
        if not self._has(CHECKPOINT):
            return None
        names = ("header", "weights", "velocity", "squares", "average", "step")
        try:
            stored = read_arrays(file, names, is_stored=True)
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
        header: dict[str, Any] = {"identity": asdict(progress.identity), "metrics": metrics, "exposures": exposures}
        header["choices"] = self._own_bound_to
        if progress.keys is not None:
            # Of rounds that were added after the run had ended, and its key was destroyed, it is another.
            write_keys(self.path, progress.keys)
            header["key"] = progress.keys.check
        self._keep_identity(progress.identity)
        # Who took part must be known again after a crash, to charge for it; so it is kept before the round counts.
        keep_budgets(self.path, progress.exposures[-1])
        # The log before the checkpoint: after a crash it may say a round too many, which is done again, never too few.
        self._grow_log([{"run": self._named(progress.identity), **line} for line in exposures])
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        write_arrays(self.place(CHECKPOINT), {"header": text, **vars(progress.state)}, OWNERS_FILE)
        self._tell(progress.metrics)

    def _tell(self, metrics: Iterable[RoundMetrics]) -> None:
        lines = [json.dumps(asdict(entry)) + "\n" for entry in metrics]
        write_bytes(self.place(METRICS), "".join(lines).encode(), OWNERS_FILE)

    def _named(self, identity: Identity) -> dict[str, Any]:
        """What every line of the log says of its run: what may be shown of its identity, and the configuration."""
        return {**identity.shown, "config": self._bound_to}

    def _keep_identity(self, identity: Identity) -> None:
        """Keep which people the run is of, from before its first round counts; raise if it is of others."""
        file, text = self.place(IDENTITY), json.dumps(asdict(identity))
        if not file.exists():
            write_bytes(file, text.encode(), OWNERS_FILE)
        elif self._text(IDENTITY) != text:
            raise DataError(f"{file} is of another run than this; start again in a new folder")

    def _grow_log(self, entries: list[dict[str, Any]]) -> None:
        """Write the log anew; what it said before must be its beginning."""
        lines, before = [json.dumps(entry) for entry in entries], self._lines(EXPOSURES)
        if lines[: len(before)] != before:
            raise DataError(f"{self.path / EXPOSURES} is of another run than this; start again in a new folder")
        write_bytes(self.path / EXPOSURES, "".join(line + "\n" for line in lines).encode())

    def _lines(self, name: str) -> list[str]:
        return self._text(name).splitlines() if self._has(name) else []

    def _text(self, name: str) -> str:
        file = self.place(name)
        try:
            return read_regular(file).decode("utf-8")
        except _UNREADABLE as error:
            raise DataError(f"{file} cannot be read: {error}") from None

    def keep_model(self, weights: F64, about: Mapping[str, Any], certified: Mapping[str, Any] | None = None) -> None:
        """Write the model with what is said and certified about it; first the metrics, if a kill left some out."""
        reached = self._checkpoint()
        if reached is not None and len(self._lines(METRICS)) < len(reached.metrics):
            self._tell(reached.metrics)
        # A model and a certificate that are there belong together, whenever this is stopped.
        self.place(CERTIFICATE).unlink(missing_ok=True)
        write_model(self.place(MODEL), weights, about)
        run = json.loads(self._lines(EXPOSURES)[0])["run"]
        said = {"model": dict(about), "model_sha256": digest_of_weights(weights)}
        content = {"run": run, "rounds": about.get("rounds"), "certified": certified, **said}
        _write_json(self.place(CERTIFICATE), content)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary, which says that the run is over: what is made of the run has to be there before.

        The key of its noise is destroyed.
        """
        _write_json(self.place(SUMMARY), summary, OWNERS_FILE)
        destroy_run_key(self.path)

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
        file = self.place(MODEL)
        if not self.has_model:
            raise DataError(f"{self.path} has no model yet: finish the run first, with --resume {self.path}")
        weights, about = read_model(file)
        if about is not None and about.get("terms_sha256") != self.charged()[0].terms:
            raise DataError(f"{file} is the model of another run than {EXPOSURES} is the log of")
        self._check_model(weights, about)
        return weights, about

    def _check_model(self, weights: F64, about: Mapping[str, Any] | None) -> None:
        """Raise unless the model is the one that the run ended with, by its certificate."""
        name = CERTIFICATE if self.is_sorted else SUMMARY
        # An earlier layout has the model's digest in the summary, but in federations.
        said = self._json(name) if self._has(name) else {}
        if self.is_sorted or "model_sha256" in said:
            if said.get("model_sha256") != digest_of_weights(weights):
                raise DataError(f"{self.place(MODEL)} is not the model that the run ended with, by its {name}")
        if not self.is_sorted:
            return
        if said.get("model") != about or said.get("run") != json.loads(self._lines(EXPOSURES)[0])["run"]:
            raise DataError(f"{self.place(CERTIFICATE)} is not that of {MODEL} and {EXPOSURES}")

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
        # Before runs said so, noise always followed from a seed; in a federation devices have always drawn their own.
        is_seeded = truth("seeded", basis.get("seeded", "receipts_key" not in self.config["choices"]))
        schema = self.schema
        caveats = () if schema is None else schema.caveats
        return by_round, replace(accountant.guarantee, caveats=caveats, is_seeded=is_seeded)

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
        if reached is not None and reached.identity.shown != identity.shown:
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
            config = runs[0].pop("config", "") if self.is_sorted else self._bound_to
            identity = Identity(**runs[0])
            self._check_config(identity, config)
            return identity, self._exposures(entries)
        except (*_UNREADABLE, AttributeError) as error:
            raise DataError(f"{file} is not the log of a run: {error}") from None

    def _check_config(self, identity: Identity, bound: str) -> None:
        """Raise unless the configuration is the one that the log was written under."""
        if bound == self._bound_to:
            return
        # Where it is about what the guarantee rests on, say what.
        check_same(dict(self.config["basis"]), dict(json.loads(identity.basis)), str(self.path / CONFIG))
        raise DataError(f"{self.path / CONFIG} is not that of its log: it was changed after the run had begun")

    def _rounds_told(self) -> int:
        """How many rounds there were, going by metrics and summary; 0 without either."""
        told = [self._json(name) for name in (SUMMARY, CERTIFICATE) if self._has(name)]
        try:
            return max([int(each["rounds"]) for each in told] + [len(self._lines(METRICS))])
        except _UNREADABLE as error:
            raise DataError(f"{self.place(SUMMARY)} is damaged: {error}") from None

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self._text(name)))
        except _UNREADABLE as error:
            raise DataError(f"{self.place(name)} is damaged: {error}") from None

    def _exposures(self, lines: Iterable[Mapping[str, Any]]) -> tuple[Exposure, ...]:
        # Rounds with the same participants name the same file, which is read once.
        read = cache(partial(read_budgets, self.path))
        return tuple(Exposure.from_dict(line, read(str(line["budgets_sha256"]))) for line in lines)


def _owners(config: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """All that was chosen, by the owner's file; ValueError if what may be shown says otherwise."""
    full = configured({**config, **own})
    for name, value in config["choices"].items():
        if name not in full["choices"] or full["choices"][name] != value:
            raise ValueError(f"{name} is {full['choices'].get(name)!r} here, and {value!r} in {CONFIG}")
    return {name: full[name] for name in ("choices", "data", "data_dir")}


def _digest_of(config: Any) -> str:
    """What the configuration is known again by."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _write_json(path: Path, content: dict[str, Any], mode: int | None = None) -> None:
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode(), mode)
