"""The analyzer's run: which round is next, what to broadcast, what to make of a release. Knows nothing of Flower."""

import hashlib
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.accounting.roster import read_as
from apes.checks import positive, whole
from apes.errors import ApesError, DataError, ParameterError, ProtocolError
from apes.features.feature_map import seen_through
from apes.federation.agreed_model import check_examples, own_model
from apes.federation.installed import InstalledModel, check_package
from apes.federation.receipts import Charging, certify_by_receipts, check_cohort
from apes.federation.shuffler_client import ShufflerClient, TargetReached
from apes.federation.terms import FederationTerms
from apes.messages import CountedBatch
from apes.models.model import Model, check_model
from apes.population import Examples
from apes.report.facts import Certified
from apes.report.report import write_report
from apes.storage.arrays import read_arrays
from apes.storage.settings import read_key, read_settings, read_token
from apes.terms.plan import schedule_digest
from apes.terms.schedule import Schedule
from apes.training.basis import basis_of
from apes.training.model_file import about_model
from apes.training.run import Identity, Progress, Run
from apes.training.run_files import CONFIG, remove_halves
from apes.training.run_folder import RunFolder
from apes.wire.announcement import Announcement
from apes.wire.release import Release


@dataclass(frozen=True)
class AnalyzerSettings:
    """What the analyzer runs; paths are relative to the folder of the settings' own file."""

    run: str  # in hexadecimal
    shuffler: str  # where it is, ``https://...``
    receipts_key: str  # Ed25519 public key that the shuffler signs receipts with, 64 hexadecimal digits
    nodes: int  # nodes to wait for before the first round, at least 1
    round_seconds: float = 600.0  # how long to wait for reports in a round, in (0, 86400]
    terms: str = "terms.json"
    schedule: str = "schedule.json"
    token: str = "token"  # for the shuffler
    key: str = "analyzer.key"  # Ed25519 private key that announcements are signed with, 32 bytes
    authority: str = "authority.pem"  # certificate that the shuffler's must be signed by
    test: str = "test.npz"  # public ``features`` and ``labels`` that the model is judged by
    folder: str = "run"  # where checkpoint, metrics and model go
    keep_sealed: bool = False  # whether to keep every round's sealed reports, which the analyzer cannot open
    model: str | None = None  # ``module:attribute`` that the analyzer installed; None for a model that is built in

    def __post_init__(self) -> None:
        if self.model is not None:
            check_package("model", self.model)
        whole("nodes", self.nodes, 1)
        positive("round_seconds", self.round_seconds, 86400)


class AnalyzerRun:
    """A run of the analyzer from its settings, durable after every round."""

    def __init__(self, file: Path) -> None:
        self.settings, folder = read_settings(file, AnalyzerSettings), file.parent
        self.terms = FederationTerms.read(folder / self.settings.terms)
        schedule = read_settings(folder / self.settings.schedule, Schedule)
        self.folder = folder / self.settings.folder
        self._charging = Charging.under(self.terms, self.settings.run, self.settings.receipts_key)
        self._folder = _run_folder(self.folder, self.terms, self._charging)
        model, test = self._own_model(), _read_test(folder / self.settings.test, self.terms)
        check_examples(model, test, str(folder / self.settings.test))
        self._model, self._run = model, self._resumed(schedule, model, test)
        self._receipts = self._charging.receipts(self.folder)
        self._key = read_key(folder / self.settings.key, Ed25519PrivateKey.from_private_bytes)
        token = read_token(folder / self.settings.token)
        self._shuffler = ShufflerClient(self.settings.shuffler, token, folder / self.settings.authority)
        self._began, self._refused = time.perf_counter(), ""

    @property
    def progress(self) -> Progress:
        """What was reached."""
        return self._run.progress

    @property
    def number(self) -> int:
        """Number of the round that is next."""
        return self.progress.rounds + 1

    @property
    def is_done(self) -> bool:
        """Whether there is no further round: all are over, or the shuffler refused one that would pass the target."""
        return self._run.is_done or self._refused != ""

    @property
    def batch(self) -> Path:
        """File for this round's sealed reports."""
        return self.folder / "rounds" / f"{self.number:06d}.sealed"

    @property
    def weights(self) -> bytes:
        """What is announced and broadcast in this round: little-endian float32 numbers."""
        return self.progress.state.weights.astype("<f4").tobytes()

    @property
    def announcement(self) -> bytes:
        """This round's announcement, signed: the same bytes whenever it is asked for, also after a crash."""
        return self._announced().signed(self._key)

    def _announced(self) -> Announcement:
        run, terms = bytes.fromhex(self.settings.run), bytes.fromhex(self.terms.digest)
        weights = hashlib.sha256(self.weights).digest()
        return Announcement(run, self.number, terms, weights, self._receipts.before(self.number))

    def begin_round(self) -> bool:
        """Start the clock of a round and announce it; False if it had been released already, which concludes it."""
        self._began, run = time.perf_counter(), self.settings.run
        if not self._receipts.has_roster:
            self._receipts.keep_roster(self._shuffler.roster(run))
        release = self._shuffler.release(run, self.number)
        if release is not None:
            self._conclude(release)
            return False
        # The shuffler first: vaults answer one announcement of a round, and it has to be the one that counts.
        self._shuffler.announce(run, self.number, self.announcement)
        return True

    def close_round(self) -> None:
        """Have the batch file shuffled and make the step; or end the run, if the round would pass the target.

        `CohortTooSmall` leaves the round open.
        """
        try:
            self._conclude(self._shuffler.close_round(self.settings.run, self.number, self.batch))
        except TargetReached as error:
            self._refused = str(error)
            self._drop_sealed()

    def finish(self) -> None:
        """Write the model and what it cost, by the shuffler's receipts; if there is none, why."""
        self._drop_sealed()
        metrics, receipts = self.progress.metrics, self._receipts.first(self.progress.rounds)
        summary: dict[str, Any] = {"run": self.settings.run, "terms": self.terms.digest, "rounds": len(metrics)}
        if not metrics:
            summary["refused"] = f"not even one round keeps within target_epsilon: {self._refused}"
            self._folder.finish(summary)
            return
        summary |= {
            "participants_by_round": [receipt.users for receipt in receipts],
            "accuracy": metrics[-1].accuracy,
            "loss": metrics[-1].loss,
            "baseline": metrics[-1].baseline,
            "beats_baseline": metrics[-1].judged.beats_baseline,
            "test_rows": metrics[-1].test_rows,
            "accuracy_by_round": [entry.accuracy for entry in metrics],
        }
        # What the receipts prove, whatever was charged on the way.
        by_round, guarantee = certify_by_receipts(self._folder, self.terms, self._charging)
        summary["certified"] = guarantee.as_dict(by_round)
        schema = None if isinstance(self.terms.model, InstalledModel) else self.terms.schema
        about = about_model(self._model, guarantee, self.terms.digest, rounds=len(metrics), schema=schema)
        self._folder.keep_model(self._run.model(), about, summary["certified"])
        participants = summary["participants_by_round"]
        write_report(self._folder, Certified(guarantee, by_round, participants=participants))
        # Last: whoever watches the run stops this process once there is a summary, and never starts it again.
        self._folder.finish(summary)

    def _conclude(self, release: Release) -> None:
        receipt, roster = release.receipt, self._receipts.roster().budgets
        expected = (self.settings.run, self.number, self.terms.digest, self._announced().digest.hex())
        if (receipt.run, receipt.round, receipt.terms, receipt.announcement) != expected:
            raise ProtocolError(f"the shuffler's release is not that of round {self.number} as it was announced")
        enrolled = check_cohort(self.terms, receipt, roster)
        self._receipts.keep(receipt)
        budgets = read_as(enrolled, receipt.users)
        self._run.charge(budgets, self._charging.budgets(roster, receipt))
        self._run.conclude(CountedBatch(release.counts, budgets), self._began)
        try:
            self._folder.save(self.progress)
        except OSError as error:
            problem = f"round {receipt.round} does not count yet: {error}"
            raise DataError(f"{self.folder} cannot be written, so {problem}") from None
        self._drop_sealed()

    def _drop_sealed(self) -> None:
        """Keep no sealed reports that were not to be kept, nor what somebody who was killed has left of them."""
        for batch in [] if self.settings.keep_sealed else self.batch.parent.glob("*.sealed*"):
            batch.unlink(missing_ok=True)

    def _own_model(self) -> Model:
        try:
            return own_model(self.terms.model, self.settings.model)
        except ApesError as error:
            raise DataError(f"the analyzer's settings do not fit its terms: {error}") from None

    def _resumed(self, schedule: Schedule, model: Model, test: Examples) -> Run:
        identity = Identity(self.terms.digest, schedule_digest(schedule), name=self._charging.people)
        try:
            reached = self._folder.load()
            of, limit = (self.terms.terms, schedule, model, identity), self.terms.limit
            return Run(*of, start=check_model(model), users=1, test=test, cohorts=None, limit=limit, resume=reached)
        except ParameterError as error:
            raise DataError(f"{self.folder} holds another run; choose another folder: {error}") from None


def _run_folder(path: Path, terms: FederationTerms, charging: Charging) -> RunFolder:
    if (path / CONFIG).exists():
        earlier = RunFolder.open(path)
        earlier.check_goes_on()
        remove_halves(path)
        return earlier
    choices, data = asdict(charging), "held by the federation's vaults"
    # Who takes part is chosen on the way, by who answers and by whoever asks: only a limit is a guarantee then.
    accountant = terms.terms.accountant(1, settled=False, limit=terms.limit)
    # From a schema `apes predict` makes the model that goes with it: not one of a stranger's.
    schema = None if isinstance(terms.model, InstalledModel) else terms.schema
    return RunFolder.create(
        path, choices, basis_of(accountant, terms.rounds, None, is_seeded=False), data=data, schema=schema
    )


def _read_test(path: Path, terms: FederationTerms) -> Examples:
    """Public examples, as the model sees them."""
    rows, labels = read_arrays(path, ("features", "labels")).values()
    if rows.ndim < 2 or labels.shape != rows.shape[:1] or not labels.size:
        raise DataError(f"{path} must hold rows and a label each, got {rows.shape} and {labels.shape}")
    try:
        return seen_through(terms.feature_map(), Examples(rows.astype(np.float32), labels))
    except ParameterError as error:
        raise DataError(f"{path}: {error}") from None
