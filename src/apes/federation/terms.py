"""The terms of a federation as a file: what every party agrees to before anything runs."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from apes.accounting.exposure import Cost, Exposure
from apes.accounting.guarantee import cover_of
from apes.client.client import DeviceClient
from apes.errors import DataError, ParameterError
from apes.mathematics.thresholds import MAX_LEVELS
from apes.models.logistic import FedProx, LogisticRegression
from apes.shuffler.service.policy import Limits
from apes.storage.settings import from_plain, read_settings, write_settings
from apes.terms.terms import Terms


@dataclass(frozen=True)
class FederationTerms:
    """Terms, the model that they are about, and which cohorts count. Everybody's budget is their own: not in here."""

    terms: Terms  # with a certificate, coded reports and an explicit delta
    model: LogisticRegression
    limits: Limits  # that the shuffler keeps; so nobody hides among fewer, or louder, than these

    def __post_init__(self) -> None:
        self.client()
        if self.terms.delta is None:
            raise ParameterError("delta must be given in a federation: its size is not known beforehand; got None")
        self.target  # noqa: B018 - checks it

    @classmethod
    def read(cls, path: Path) -> "FederationTerms":
        """Read terms from a file."""
        raw = read_settings(path, _PlainTerms)
        local = raw.model.get("local")
        steps = None if local is None else from_plain(local, FedProx, f"{path}, model, local")
        terms = from_plain(raw.terms, Terms, f"{path}, terms")
        model = from_plain(raw.model | {"local": steps}, LogisticRegression, f"{path}, model")
        limits = from_plain(raw.limits, Limits, f"{path}, limits")
        try:
            return cls(terms, model, limits)
        except ParameterError as error:
            raise DataError(f"{path}: {error}") from None

    def write(self, path: Path) -> None:
        """Write the terms to a file."""
        plain = asdict(self.terms)
        del plain["mechanism"]
        write_settings(path, _PlainTerms(plain, asdict(self.model), asdict(self.limits)))

    @property
    def digest(self) -> str:
        """Digest of every choice, 64 hexadecimal digits: what reports are bound to."""
        parts = ["apes federation 1", self.terms.digest(self.model), asdict(self.limits)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=float).encode()).hexdigest()

    @cached_property
    def worst(self) -> Exposure:
        """The round that the limits allow and that hides least: the smallest cohort, everybody at the largest budget.

        Every other cohort hides better: more people do, smaller budgets do, and a smaller budget of one's own needs
        less hiding (docs/proofs.md, 4).
        """
        return self.terms.exposure(0, np.full(self.limits.smallest_cohort, self.limits.largest_budget), self.dimensions)

    @cached_property
    def limit(self) -> Cost:
        """What a whole run costs anybody at most, whoever takes part in which round, and whoever chooses that."""
        accountant = self.terms.accountant(1, settled=False)
        shifts = accountant.cost(self.worst).times(self.rounds)
        # Another cohort may be covered by more uses of a smaller curve; all that is set aside has room for those.
        return Cost(shifts.mu_squared, cover_of(accountant.delta))

    @property
    def target(self) -> float | None:
        """Largest epsilon of anybody, which the shuffler enforces; people's own targets are their vaults' to keep."""
        if isinstance(self.terms.target_epsilon, str):
            got = repr(self.terms.target_epsilon)
            raise ParameterError(f"target_epsilon must be a number in a federation: vaults keep own limits; got {got}")
        return self.terms.target_epsilon

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
    limits: dict[str, Any]

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, dict):
                raise ParameterError(f"{name} must hold an object, got {value!r}")
        # A stranger's mechanism is code, which no file holds.
        if "mechanism" in self.terms:
            raise ParameterError("terms: unknown field 'mechanism'")
