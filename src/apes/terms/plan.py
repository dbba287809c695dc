"""The plan: terms, schedule and seed in one list of choices, for whoever trains."""

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from apes.checks import whole
from apes.terms.mechanism import Mechanism
from apes.terms.schedule import Schedule
from apes.terms.terms import Terms


@dataclass(frozen=True)
class Plan:
    """Every public choice of a training. None means: what suits the other choices.

    Attributes:
        framework, clip, levels, norm, sparsifier, keep, rounds, delta, target_epsilon, mechanism: What users agree to;
            see `apes.Terms`.
        learning_rate, momentum, decay, averaging, calibration: What the analyzer does with estimates; see
            `apes.Schedule`.
        seed: Of the simulation, in [0, 2^64).
    """

    framework: str = "apes"
    rounds: int = 40
    clip: float = 0.1
    levels: int | str | None = None
    norm: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    decay: float | None = None
    averaging: float | None = None
    calibration: str | None = None
    sparsifier: str | None = None
    keep: float | None = None
    delta: float | None = None
    target_epsilon: float | str | None = None
    seed: int = 1
    mechanism: Mechanism | None = None

    def __post_init__(self) -> None:
        whole("seed", self.seed, 0, 2**64 - 1)
        # Making it checks how the schedule fits the terms.
        self.terms.calibrator(self.schedule.calibration)

    @cached_property
    def terms(self) -> Terms:
        """What users agree to."""
        return Terms(**self._chosen(Terms))

    @cached_property
    def schedule(self) -> Schedule:
        """What the analyzer does with estimates."""
        return Schedule(**self._chosen(Schedule))

    def as_dict(self) -> dict[str, Any]:
        """The choices as plain values, for a file; a stranger's mechanism by its digest."""
        own = None if self.mechanism is None else self.mechanism.digest
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"mechanism": own}

    def _chosen(self, kind: type[Terms] | type[Schedule]) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(kind)}


def schedule_digest(schedule: Schedule, seed: int) -> str:
    """Tells what the analyzer does from anything else that it might do."""
    return ", ".join(f"{name}={value!r}" for name, value in (asdict(schedule) | {"seed": seed}).items())
