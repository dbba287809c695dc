"""The terms of a federation as a file: what every party agrees to before anything runs."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apes.accounting.cost import Cost
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import cover_of
from apes.accounting.words import judged, protects
from apes.checks import whole
from apes.data.table.schema import Schema
from apes.errors import ApesError, DataError, ParameterError
from apes.features.feature_map import FeatureMap
from apes.features.named import PIXELS, named_features
from apes.federation.agreed_model import AgreedModel, plain_model, read_model
from apes.mathematics.arrays import F64
from apes.mathematics.thresholds import MAX_LEVELS
from apes.shuffler.service.policy import MOST_DIMENSIONS, Limits
from apes.storage.settings import from_plain, read_settings, write_settings
from apes.terms.terms import Terms


@dataclass(frozen=True)
class FederationTerms:
    """Terms, the model that they are about, and which cohorts count. Everybody's budget is their own: not in here."""

    terms: Terms  # with a certificate, coded reports and an explicit delta
    model: AgreedModel
    limits: Limits  # that the shuffler keeps; so nobody hides among fewer, or louder, than these
    features: str = PIXELS  # public map that users apply to their rows first, by name
    schema: Schema | None = None  # how rows of tables are encoded, where users have tables

    def __post_init__(self) -> None:
        whole("dimensions", self.dimensions, 1, MOST_DIMENSIONS)
        self.terms.device_stages(self.dimensions)
        if self.feature_map() is not None and self.schema is not None:
            raise ParameterError(f"features must be {PIXELS} beside a schema of tables, got {self.features!r}")
        if self.terms.delta is None:
            raise ParameterError("delta must be given in a federation: its size is not known beforehand; got None")
        self.target  # noqa: B018 - checks it

    @classmethod
    def read(cls, path: Path) -> "FederationTerms":
        """Read terms from a file; nothing that they name is imported."""
        raw = read_settings(path, _PlainTerms)
        terms = from_plain(raw.terms, Terms, f"{path}, terms")
        model = read_model(raw.model, f"{path}, model")
        limits = from_plain(raw.limits, Limits, f"{path}, limits")
        try:
            schema = None if raw.schema is None else Schema.from_dict(raw.schema)
            return cls(terms, model, limits, raw.features, schema)
        except ApesError as error:
            raise DataError(f"{path}: {error}") from None

    def write(self, path: Path) -> None:
        """Write the terms to a file."""
        write_settings(path, self._plain())

    def _plain(self) -> "_PlainTerms":
        plain = asdict(self.terms)
        del plain["mechanism"]
        schema = None if self.schema is None else self.schema.as_dict()
        return _PlainTerms(plain, plain_model(self.model), asdict(self.limits), self.features, schema)

    @property
    def digest(self) -> str:
        """Digest of every choice, 64 hexadecimal digits: what reports are bound to."""
        features = self.feature_map()
        made_of = self.terms.reports.digest, self.model.digest, "" if features is None else features.digest
        parts = ["apes federation 3", asdict(self._plain()), *made_of]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=float).encode()).hexdigest()

    @property
    def taken(self) -> Limits:
        """Which budgets the shuffler takes: those within the limits, as the cap leaves them."""
        cap, limits = math.inf if self.terms.cap is None else self.terms.cap, self.limits
        taken = min(limits.smallest_budget, cap), min(limits.largest_budget, cap)
        return replace(limits, smallest_budget=taken[0], largest_budget=taken[1])

    def applied(self, budgets: ArrayLike) -> F64:
        """Budgets of users, checked, as they are used and charged for."""
        applied = self.terms.applied(budgets)
        self.taken.check(applied)
        return applied

    @cached_property
    def worst(self) -> Exposure:
        """The round that the limits allow and that hides least: the smallest cohort, everybody at the largest budget.

        The smallest cohort is of honest people: those who may collude are in a round beside it, and hide nobody. Every
        other cohort hides better: more people do, smaller budgets do, and a smaller budget of one's own needs
        less hiding (docs/proofs.md, 4).
        """
        worst = np.full(self.taken.smallest_cohort, self.taken.largest_budget)
        return self.terms.exposure(0, worst, self.dimensions)

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
    def epsilon(self) -> float:
        """Certified central epsilon of a whole run for everybody, at the terms' delta, whoever takes part in what.

        The target, which the shuffler enforces, or less; infinite where there is neither.
        """
        delta = self.terms.central_delta(1)
        certified = self.granted.epsilon(delta)
        if self.target is None:
            return certified
        certified = min(certified, self.target)
        # The limit's certificate takes a second; where the target protects, it need not be asked for.
        return certified if protects(certified, delta) else min(certified, self.limit.epsilon(delta))

    @property
    def granted(self) -> Cost:
        """What a whole run may cost anybody: by the target, which the shuffler enforces; without one, the limit."""
        if self.target is None:
            return self.limit
        limit: Cost = self.terms.accountant(1, settled=False).limit
        return limit

    def check_protects(self, *, allowed: bool) -> None:
        """Raise if the terms protect nobody, unless that is allowed."""
        epsilon, delta = self.epsilon, self.terms.central_delta(1)
        if not (allowed or protects(epsilon, delta)):
            raise ParameterError(
                "allow_no_protection must be given to begin a federation under these terms, which certify "
                f"{judged(epsilon, delta)}. By default a plan is fitted to a target: leave clip, levels and framework "
                "out, or name a target_epsilon; delta is small enough where there are many users, or where it is given"
            )

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

    def feature_map(self) -> FeatureMap | None:
        """What users apply to their rows first; None if nothing."""
        return named_features(self.features)


@dataclass(frozen=True)
class _PlainTerms:
    terms: dict[str, Any]
    model: dict[str, Any]
    limits: dict[str, Any]
    features: str
    schema: dict[str, Any] | None

    def __post_init__(self) -> None:
        for name in ("terms", "model", "limits"):
            if not isinstance(getattr(self, name), dict):
                raise ParameterError(f"{name} must hold an object, got {getattr(self, name)!r}")
        if not isinstance(self.schema, dict | None):
            raise ParameterError(f"schema must hold an object or null, got {self.schema!r}")
        # A stranger's mechanism is code, which no file holds.
        if "mechanism" in self.terms:
            raise ParameterError("terms: unknown field 'mechanism'")
