"""The terms of a federation: what every party agrees to before anything runs, and how they are told apart."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from apes.accounting.accountant import Accountant
from apes.checks import whole
from apes.client.device import DeviceClient
from apes.errors import DataError, ParameterError
from apes.mathematics.thresholds import MAX_LEVELS
from apes.models.logistic import LogisticRegression
from apes.storage.settings import from_plain, read_settings, write_settings
from apes.terms.plan import Plan


@dataclass(frozen=True)
class Terms:
    """Public choices of a federation: a plan, and the shape of the model.

    In a federation everybody's budget is their own: ``plan.budgets`` only says what the organiser expects, and
    ``plan.data``, ``plan.split`` and ``plan.seed`` only say what a trial is made of.

    Attributes:
        plan: The plan; one with a certificate and coded reports.
        features: Numbers of an example, at least 1.
        classes: Classes, in [2, 256].
    """

    plan: Plan
    features: int
    classes: int

    def __post_init__(self) -> None:
        whole("features", self.features, 1)
        whole("classes", self.classes, 2, 256)
        self.client()

    @classmethod
    def read(cls, path: Path) -> "Terms":
        """Read terms from a file.

        Raises:
            DataError: If it does not hold terms.
        """
        raw = read_settings(path, _PlainTerms)
        plan = from_plain(raw.plan, Plan, f"{path}, plan")
        try:
            return cls(plan, raw.features, raw.classes)
        except ParameterError as error:
            raise DataError(f"{path}: {error}") from None

    def write(self, path: Path) -> None:
        """Write the terms to a file."""
        write_settings(path, self)

    @property
    def fingerprint(self) -> str:
        """Digest of every choice, 64 hexadecimal digits: what reports are bound to."""
        text = json.dumps(["apes terms 1", asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def model(self) -> LogisticRegression:
        """What is trained."""
        return LogisticRegression(self.features, self.classes)

    @property
    def dimensions(self) -> int:
        """Coordinates of a report."""
        return self.model.dimensions

    @property
    def coordinates_from_data(self) -> int:
        """Coordinates of a report that a round charges for."""
        return self.plan.coordinates_from_data(self.dimensions)

    @property
    def levels(self) -> int:
        """Levels of a report."""
        return self.plan.coded_levels or MAX_LEVELS

    def client(self) -> DeviceClient:
        """What a device runs."""
        return self.plan.device_client(self.dimensions)

    def accountant(self) -> Accountant:
        """What charges the rounds, for whoever took part; the target is for the caller to keep."""
        coordinates, delta = self.coordinates_from_data, self.plan.central_delta
        chosen, rounds = self.plan.chosen_first(self.dimensions), self.plan.rounds
        return Accountant(coordinates, delta, self.levels, expected_rounds=rounds, chosen=chosen)


@dataclass(frozen=True)
class _PlainTerms:
    plan: dict[str, object]
    features: int
    classes: int
