"""The terms of a federation as a file: what every party agrees to before anything runs."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from apes.client.client import DeviceClient
from apes.errors import DataError, ParameterError
from apes.mathematics.thresholds import MAX_LEVELS
from apes.models.logistic import FedProx, LogisticRegression
from apes.storage.settings import from_plain, read_settings, write_settings
from apes.terms.terms import Terms


@dataclass(frozen=True)
class FederationTerms:
    """Terms and the model that they are about. Everybody's budget is their own: it is not in here."""

    terms: Terms  # with a certificate, coded reports and an explicit delta
    model: LogisticRegression

    def __post_init__(self) -> None:
        self.client()
        if self.terms.delta is None:
            raise ParameterError("delta must be given in a federation: its size is not known beforehand; got None")

    @classmethod
    def read(cls, path: Path) -> "FederationTerms":
        """Read terms from a file."""
        raw = read_settings(path, _PlainTerms)
        local = raw.model.get("local")
        steps = None if local is None else from_plain(local, FedProx, f"{path}, model, local")
        terms = from_plain(raw.terms, Terms, f"{path}, terms")
        model = from_plain(raw.model | {"local": steps}, LogisticRegression, f"{path}, model")
        try:
            return cls(terms, model)
        except ParameterError as error:
            raise DataError(f"{path}: {error}") from None

    def write(self, path: Path) -> None:
        """Write the terms to a file."""
        plain = asdict(self.terms)
        del plain["mechanism"]
        write_settings(path, _PlainTerms(plain, asdict(self.model)))

    @property
    def digest(self) -> str:
        """Digest of every choice, 64 hexadecimal digits: what reports are bound to."""
        return self.terms.digest(self.model)

    @property
    def rounds(self) -> int:
        """Rounds of a run."""
        return self.terms.rounds

    @property
    def dimensions(self) -> int:
        """Coordinates of a report."""
        return self.model.dimensions

    @property
    def charged(self) -> int:
        """Coordinates of a report that a round charges for."""
        return self.terms.charged(self.dimensions)

    @property
    def levels(self) -> int:
        """Levels of a report."""
        return self.terms.reports.levels or MAX_LEVELS

    def client(self) -> DeviceClient:
        """What a device runs."""
        return self.terms.device_client(self.model)


@dataclass(frozen=True)
class _PlainTerms:
    terms: dict[str, Any]
    model: dict[str, Any]

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, dict):
                raise ParameterError(f"{name} must hold an object, got {value!r}")
        # A stranger's mechanism is code, which no file holds.
        if "mechanism" in self.terms:
            raise ParameterError("terms: unknown field 'mechanism'")
