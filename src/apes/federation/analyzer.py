"""The analyzer's run: which round is next, what to broadcast, what to make of a release. Knows nothing of Flower."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apes.accounting.guarantee import NEIGHBOURS
from apes.checks import positive, whole
from apes.errors import DataError, ProtocolError
from apes.federation.shuffler_client import ShufflerClient
from apes.federation.terms import Terms
from apes.storage.arrays import read_arrays
from apes.storage.files import write_whole
from apes.storage.settings import read_settings, read_token
from apes.training.analysis import Analysis, Progress, TestSet
from apes.training.run_folder import RunFolder
from apes.wire.release import Release


@dataclass(frozen=True)
class AnalyzerSettings:
    """Settings of the analyzer; paths are relative to their file's folder.

    Attributes:
        run: The run, in hexadecimal.
        shuffler: Where the shuffler is, ``https://...``.
        nodes: How many SuperNodes to wait for before the first round, at least 1.
        round_seconds: How long to wait for reports in a round, in (0, 86400].
        terms: File with the terms.
        token: File with the token for the shuffler.
        authority: Certificate that the shuffler's must be signed by, PEM.
        test: NumPy archive with public ``images`` and ``labels`` that the model is judged by.
        folder: Where checkpoint, metrics and model go.
        keep_sealed: Whether to keep every round's sealed reports, which the analyzer cannot open.
    """

    run: str
    shuffler: str
    nodes: int
    round_seconds: float = 600.0
    terms: str = "terms.json"
    token: str = "token"
    authority: str = "authority.pem"
    test: str = "test.npz"
    folder: str = "run"
    keep_sealed: bool = False

    def __post_init__(self) -> None:
        whole("nodes", self.nodes, 1)
        positive("round_seconds", self.round_seconds, 86400)


class AnalyzerRun:
    """A run of the analyzer, durable after every round.

    Args:
        file: The settings.

    Raises:
        DataError: If something is missing or damaged.
    """

    def __init__(self, file: Path) -> None:
        self.settings = read_settings(file, AnalyzerSettings)
        folder = file.parent
        self.terms = Terms.read(folder / self.settings.terms)
        self._folder = _run_folder(folder / self.settings.folder, self.terms)
        self.folder = self._folder.path
        self._accountant = self.terms.accountant()
        self._analysis = Analysis(
            self.terms.plan, self.terms.model, _read_test(folder / self.settings.test, self.terms), self._accountant
        )
        token = read_token(folder / self.settings.token)
        self._shuffler = ShufflerClient(self.settings.shuffler, token, folder / self.settings.authority)
        self._budgets: NDArray[np.float64] | None = None
        self.progress = self._resume()
        self._began = time.perf_counter()

    @property
    def number(self) -> int:
        """Number of the round that is next."""
        return self.progress.rounds + 1

    @property
    def is_done(self) -> bool:
        """Whether there is no further round: all are over, or the next would exceed the target."""
        target = self.terms.plan.target_epsilon
        if self.progress.rounds >= self.terms.plan.rounds:
            return True
        return target is not None and self._budgets is not None and self._accountant.after(self._budgets) > target

    @property
    def weights(self) -> NDArray[np.float32]:
        """The model to broadcast."""
        return self.terms.model.shaped(self.progress.state.weights)

    @property
    def batch(self) -> Path:
        """File for this round's sealed reports."""
        return self._folder.path / "rounds" / f"{self.number:06d}.sealed"

    def begin_round(self) -> bool:
        """Start the clock of a round; False if the shuffler had released it already, which concludes it."""
        self._began = time.perf_counter()
        release = self._shuffler.release(self.settings.run, self.number)
        if release is None:
            return True
        self._conclude(release)
        return False

    def close_round(self) -> None:
        """Have the batch file shuffled and make the step.

        Raises:
            CohortTooSmall: If too few of its reports count; the round is still open.
        """
        self._conclude(self._shuffler.close_round(self.settings.run, self.number, self.batch))

    def finish(self) -> None:
        """Write the model and what it cost."""
        last, events = self.progress.metrics[-1], self.progress.events
        summary = {
            "run": self.settings.run,
            "terms": self.terms.fingerprint,
            "rounds": self.progress.rounds,
            "participants_by_round": [event.users for event in events],
            "accuracy": last.accuracy,
            "loss": last.loss,
            "accuracy_by_round": [entry.accuracy for entry in self.progress.metrics],
            "certified": {
                "epsilon": last.epsilon,
                "delta": self._accountant.delta,
                "epsilon_by_round": [entry.epsilon for entry in self.progress.metrics],
                "neighbours": NEIGHBOURS,
                "level": "user, all coordinates of all rounds, from those who took part",
            },
        }
        self._folder.finish(self._analysis.model(self.progress), summary)

    def _conclude(self, release: Release) -> None:
        expected = (self.settings.run, self.number, self.terms.fingerprint, (self.terms.dimensions, self.terms.levels))
        if (release.run, release.round, release.terms, release.batch.counts.shape) != expected:
            raise ProtocolError(f"the shuffler's release is not that of round {self.number} under these terms")
        progress = self._analysis.conclude(self.progress, release.batch, self._began)
        batch = self.batch
        try:
            # Who took part must be known again after a crash, to charge for it; so it is kept before the round counts.
            self._keep_budgets(progress.events[-1].budgets_sha256, release.batch.budgets)
            self._folder.save(progress)
        except OSError as error:
            raise DataError(
                f"{self.folder} cannot be written, so round {self.number} does not count yet: {error}"
            ) from None
        self.progress, self._budgets = progress, release.batch.budgets
        if not self.settings.keep_sealed:
            batch.unlink(missing_ok=True)

    def _resume(self) -> Progress:
        progress = self._folder.load()
        if progress is None:
            return self._analysis.start()
        for event in progress.events:
            self._budgets = self._read_budgets(event.budgets_sha256)
            self._accountant.charge(self._budgets)
        return progress

    def _keep_budgets(self, name: str, budgets: NDArray[np.float64]) -> None:
        path = self._budgets_file(name)
        if not path.exists():
            write_whole(path, lambda file: np.save(file, np.sort(budgets)))

    def _read_budgets(self, name: str) -> NDArray[np.float64]:
        path = self._budgets_file(name)
        try:
            budgets: NDArray[np.float64] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} cannot be read, so what was spent is not known: {error}") from None
        return budgets

    def _budgets_file(self, name: str) -> Path:
        return self._folder.path / "budgets" / f"{name}.npy"


def _run_folder(path: Path, terms: Terms) -> RunFolder:
    if not (path / "config.json").exists():
        return RunFolder.create(path, terms.plan, "held by the federation's vaults")
    folder = RunFolder.open(path)
    if folder.plan != terms.plan:
        raise DataError(f"{path} holds a run of another plan; choose another folder")
    return folder


def _read_test(path: Path, terms: Terms) -> TestSet:
    images, labels = read_arrays(path, ("images", "labels")).values()
    if images.ndim != 2 or images.shape[1] != terms.features or labels.shape != images.shape[:1] or not labels.size:
        raise DataError(f"{path} must hold images of {terms.features} numbers and a label each, got {images.shape}")
    return TestSet(images.astype(np.float32), labels.astype(np.uint8))
