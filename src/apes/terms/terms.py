"""Terms: what a device agrees to, and what is charged for it. The only thing with a digest on the wire."""

# long: one class, beside its choices every stage that follows from them.

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from apes.accounting.accountant import Accountant
from apes.accounting.composition.exact import SMALLEST_DELTA
from apes.accounting.cost import MOST_ROUNDS, Cost
from apes.accounting.exposure import Exposure
from apes.accounting.personal import own_cohorts
from apes.analyzer.calibrator import Calibrator
from apes.budgets import read_column
from apes.checks import offering, one_of, positive, positive_array, unused, whole, within
from apes.client.client import Client, DeviceClient
from apes.client.one_bit import DeviceRandomizer
from apes.client.sparsifier import DeviceSparsifier
from apes.defaults import CLIP, FRAMEWORK, ROUNDS_NOT_OPEN, default_delta
from apes.errors import ParameterError
from apes.mathematics.arrays import F64, Bools
from apes.mathematics.randomness import SimulationSource
from apes.mathematics.thresholds import MAX_LEVELS
from apes.models.model import Model
from apes.shuffler.shuffle import Adder, Collector, LevelCounter, Permuter
from apes.terms.frameworks import FRAMEWORKS, Framework
from apes.terms.mechanism import Mechanism, Reports, foreign
from apes.terms.sparsification import Sparsification


@dataclass(frozen=True)
class Terms:
    """What users agree to before anything runs. None means: what suits the other choices.

    Attributes:
        framework: ``non-private``, ``ldp-min``, ``pldp``, ``unis``, ``apes``, ``s-apes``, ``s-apes-threshold``,
            ``s-apes-first``.
        clip: C, bound of every coordinate of an update, in (0, inf).
        levels: Levels K of a coded report in [2, 256] or ``continuous``; for Clip-Laplace frameworks.
        norm: R, bound of an update's L2 norm, in (0, inf), in the unit of C; for ``apes`` with two levels, the default
            then. None bounds coordinates alone.
        cap: Largest local budget that is used, in (0, inf): whoever has more uses this much. None lets everybody use
            their own.
        sparsifier: ``top-b``, ``random-b``, ``threshold`` or ``top-b-first``, for the S-APES frameworks.
        keep: Fraction of coordinates a sparsifier keeps, in (0, 1] (0.2; ``top-b-first``: 0.05); a threshold is set at
            (1 - keep) C.
        rounds: Rounds of training T, in [1, 1000000].
        delta: Delta of the certified central guarantee, in [1e-100, 0.5] (default 1 / 10 n).
        target_epsilon: No round takes place after which the certified epsilon of a user would exceed it. Or everybody
            has an own one, and whoever would exceed it is left out of further rounds: ``own:FACTOR``, so many times the
            own budget; ``file:PATH`` or ``file:PATH:COLUMN``, a column of a file in the order of the users.
        mechanism: A stranger's mechanism, shuffled, in place of the framework's; None for the framework's own.
    """

    framework: str = FRAMEWORK
    clip: float = CLIP
    levels: int | str | None = None
    norm: float | None = None
    cap: float | None = None
    sparsifier: str | None = None
    keep: float | None = None
    rounds: int = ROUNDS_NOT_OPEN
    delta: float | None = None
    target_epsilon: float | str | None = None
    mechanism: Mechanism | None = None

    def __post_init__(self) -> None:
        one_of("framework", self.framework, list(FRAMEWORKS))
        positive("clip", self.clip)
        whole("rounds", self.rounds, 1, MOST_ROUNDS)
        if self.cap is not None:
            positive("cap", self.cap)
        if self.kind.sparsifier is None:
            unused({"sparsifier": self.sparsifier, "keep": self.keep}, f"{self.framework} does not sparsify")
        else:
            unused({"norm": self.norm}, f"{self.framework} sparsifies")
        if self.mechanism is not None:
            asked = ("clip", "levels", "digest", "why_not_certified", "draw", "estimate", "standard_error")
            offering("mechanism", self.mechanism, *asked)
            unused({"levels": self.levels, "norm": self.norm}, "the mechanism has its own")
            if self.framework != "apes" or self.clip != self.mechanism.clip:
                must = f"framework must be apes and clip the mechanism's {self.mechanism.clip!r} with an own mechanism"
                raise ParameterError(f"{must}, got {self.framework!r} and {self.clip!r}")
        if self.why_not_certified is not None:
            options = {"delta": self.delta, "target_epsilon": self.target_epsilon}
            unused(options, f"nothing central is certified, {self.why_not_certified}")
        if self.delta is not None:
            within("delta", self.delta, SMALLEST_DELTA, 0.5)
        if not isinstance(self.target_epsilon, str | None):
            positive("target_epsilon", self.target_epsilon)
        self._own_target  # noqa: B018 - checks it

    @property
    def kind(self) -> Framework:
        """The framework's description."""
        return FRAMEWORKS[self.framework]

    @cached_property
    def reports(self) -> Reports:
        """The mechanism, as the stages see it."""
        if self.mechanism is not None:
            return foreign(self.mechanism)
        return self.kind.mechanism(self.clip, self.levels, self.norm)

    @cached_property
    def sparsification(self) -> Sparsification | None:
        """What makes reports sparse, before or after perturbation; None if nothing does."""
        strategy = self.kind.sparsifier if self.sparsifier is None else self.sparsifier
        return None if strategy is None else Sparsification.with_default(strategy, self.keep)

    @property
    def why_not_certified(self) -> str | None:
        """Why no central guarantee is certified under these terms; None if one is."""
        if self.reports.why_not_certified is not None:
            return f"{self.framework}: {self.reports.why_not_certified}"
        return None if self.sparsification is None else self.sparsification.why_not_certified

    def digest(self, model: Model, features: str = "") -> str:
        """SHA-256 of the terms with the model and the feature map (its digest): what reports are bound to."""
        choices = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "mechanism"}
        parts = ["apes terms 3", choices, self.reports.digest, model.digest, features]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=float).encode()).hexdigest()

    def applied(self, budgets: ArrayLike) -> F64:
        """Budgets, checked, as cap and framework apply the users' own."""
        own = np.minimum(positive_array("budgets", budgets), math.inf if self.cap is None else self.cap)
        return np.full_like(own, own.min()) if self.kind.smallest_budget_for_all else own

    def client(self, model: Model, dimensions: int) -> Client:
        """What every simulated user runs, under a model of as many coordinates as are charged, whatever it says now."""
        chosen = None if self.sparsification is None else self.sparsification.sparsifier(dimensions)
        return Client(model, self.reports.randomizer, chosen, self._top_b_first(dimensions))

    def device_client(self, model: Model) -> DeviceClient:
        """What a real device runs; see `device_stages`."""
        return DeviceClient(model, *self.device_stages(model.dimensions))

    def device_stages(self, dimensions: int) -> tuple[DeviceRandomizer, DeviceSparsifier | None, int | None]:
        """What a real device does to an update; refused if nothing central is certified or reports are continuous."""
        if self.why_not_certified is not None:
            raise ParameterError(f"framework must be one with a certificate on devices: {self.why_not_certified}")
        thin, randomizer = self.sparsification, self.reports.randomizer
        if not isinstance(randomizer, DeviceRandomizer):
            raise ParameterError(f"levels must be in [2, {MAX_LEVELS}] on devices, got {self.levels!r}")
        return randomizer, None if thin is None else thin.on_device(dimensions), self._top_b_first(dimensions)

    def calibrator(self, calibration: str | None = None) -> Calibrator:
        """How the analyzer reads a batch."""
        return self.reports.calibrator(calibration, self.sparsification)

    def collector(
        self,
        users: int,
        dimensions: int,
        source: SimulationSource,
        threads: int = 1,
        *,
        only_sums: bool = False,
        span: range | None = None,
    ) -> Collector:
        """What gathers a round's reports, or those of a span of users; ``only_sums`` as for `apes.train`."""
        levels = self.reports.levels
        if not self.kind.shuffled or (only_sums and levels is None):
            return Adder(users, dimensions, source, span)
        if levels is not None:
            return LevelCounter(users, dimensions, levels, source, span)
        return Permuter(users, dimensions, source, threads=threads, span=span)

    def charged(self, dimensions: int) -> int:
        """Coordinates that are charged for: where two updates' reports can differ (docs/proofs.md, 9 and 10)."""
        return dimensions if self.sparsification is None else self.sparsification.charged(dimensions)

    def exposure(self, number: int, budgets: F64, dimensions: int) -> Exposure:
        """What round ``number`` reveals, as the accountant has to know it: of these participants, no data."""
        return Exposure(
            budgets,
            self.charged(dimensions),
            self.reports.levels,
            top_b_first=self._top_b_first(dimensions),
            round=number,
            dimensions=dimensions,
            mechanism=self.reports.name,
            clip=self.reports.randomizer.clip,
            shuffled=self.kind.shuffled,
            sparsifier=None if self.sparsification is None else self.sparsification.strategy,
            why_not_certified=self.why_not_certified,
            norm=self.norm,
        )

    def central_delta(self, users: int) -> float:
        """Delta of the certified central guarantee, for so many users."""
        return default_delta(users) if self.delta is None else self.delta

    def accountant(self, users: int, *, settled: bool, limit: Cost | None = None, keep: bool = False) -> Accountant:
        """The gate of a run under these terms, for about so many users; ``keep``: whether they keep their budgets."""
        target, delta = None if isinstance(self.target_epsilon, str) else self.target_epsilon, self.central_delta(users)
        limit = limit if target is None else None  # what a target allows is a limit itself
        return Accountant(
            delta, expected_rounds=self.rounds, target=target, settled=settled, limit=limit, keep_budgets=keep
        )

    def targets(self, budgets: F64, brought: ArrayLike | None = None, *, of_table: bool = False) -> F64 | None:
        """Everybody's own target, in the order of the users; None where there are none.

        Args:
            budgets: Of all users.
            brought: Targets that the people brought along (`Population.targets`), if they did: those count then.
            of_table: Whether they are people of a table: by their ids, without those who judge, so in no file's order.
        """
        if brought is not None:
            if (why := self.why_not_certified) is not None:
                raise ParameterError(f"targets must be left out: nothing central is certified, {why}")
            unused({"target_epsilon": self.target_epsilon}, "people have targets of their own")
            return positive_array("targets", brought)
        kind, own = self._own_target
        if kind == "file" and of_table:
            must = "target_epsilon must be a number or own:FACTOR for people of a table (or People(targets=...))"
            raise ParameterError(f"{must}: a file's order is not theirs; got {self.target_epsilon!r}")
        of_file = read_column("targets", own, budgets.size) if kind == "file" else None
        return float(own) * budgets if kind == "own" else of_file

    def cohorts(self, budgets: F64, dimensions: int, targets: F64 | None = None) -> tuple[Bools, ...]:
        """Who takes part, round after round: everybody, or whoever is within the own target, until nobody is."""
        if targets is None:
            return (np.ones(budgets.size, dtype=bool),) * self.rounds
        return _kept_cohorts(self, budgets.tobytes(), targets.tobytes(), dimensions)

    @cached_property
    def _own_target(self) -> tuple[str, str]:
        """``own`` and FACTOR, or ``file`` and the place, where targets are everybody's own."""
        if not isinstance(self.target_epsilon, str):
            return "", ""
        kind, _, rest = self.target_epsilon.partition(":")
        with suppress(ValueError):
            if (kind == "file" and rest) or (kind == "own" and 0 < float(rest) < math.inf):
                return kind, rest
        forms = "a number, own:FACTOR with FACTOR in (0, inf), file:PATH or file:PATH:COLUMN"
        raise ParameterError(f"target_epsilon must be {forms}; got {self.target_epsilon!r}")

    def _top_b_first(self, dimensions: int) -> int | None:
        return None if self.sparsification is None else self.sparsification.top_b_first(dimensions)


# It may take most of a minute, and whoever keeps a folder asks before a run and in it.
@lru_cache(maxsize=1)
def _kept_cohorts(terms: Terms, budgets: bytes, targets: bytes, dimensions: int) -> tuple[Bools, ...]:
    own = np.frombuffer(budgets)
    exposure, delta = partial(terms.exposure, 0, dimensions=dimensions), terms.central_delta(own.size)
    cohorts = tuple(own_cohorts(own, np.frombuffer(targets), delta, terms.rounds, exposure))
    for users in cohorts:
        users.flags.writeable = False
    return cohorts
