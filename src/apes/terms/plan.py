"""The plan: terms, schedule and seed in one list of choices, for whoever trains."""

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from apes.checks import whole
from apes.defaults import FRAMEWORK, NORM
from apes.errors import ParameterError
from apes.terms.mechanism import Mechanism
from apes.terms.schedule import Schedule
from apes.terms.terms import Terms


@dataclass(frozen=True)
class Plan:
    """Every public choice of a training. None means: what suits the other choices.

    Without ``clip``, ``levels``, ``calibration`` and people's own targets, a plan for ``apes`` is *open*: reports are
    one bit per coordinate of updates within a norm, and clip bound and cap on budgets are found for the people who
    train, so that all rounds together cost anybody the target, 1 by default (`apes.terms.fitting`).

    Attributes:
        framework, clip, levels, norm, cap, sparsifier, keep, rounds, delta, target_epsilon, mechanism: What users agree
            to; see `apes.Terms`.
        learning_rate, momentum, decay, averaging, calibration, optimizer, last_step: What the analyzer does with
            estimates; see `apes.Schedule`.
        seed: That the noise follows from, in [0, 2^64), for reproduction: the guarantee then holds only as long as the
            seed stays secret, and says so. None: the noise is under a secret key from the operating system.
    """

    framework: str = FRAMEWORK
    rounds: int | None = None
    clip: float | None = None
    levels: int | str | None = None
    norm: float | None = None
    cap: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    decay: float | None = None
    averaging: float | None = None
    calibration: str | None = None
    optimizer: str | None = None
    last_step: float | None = None
    sparsifier: str | None = None
    keep: float | None = None
    delta: float | None = None
    target_epsilon: float | str | None = None
    seed: int | None = None
    mechanism: Mechanism | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            whole("seed", self.seed, 0, 2**64 - 1)
        # Making them checks how the schedule fits the terms.
        self._terms(**self._placeholder).calibrator(self.schedule.calibration)

    @property
    def is_open(self) -> bool:
        """Whether clip bound and cap are yet to be found for the people who train."""
        chosen = (self.clip, self.levels, self.mechanism, self.calibration)
        return self.framework == FRAMEWORK and chosen == (None,) * 4 and not isinstance(self.target_epsilon, str)

    @cached_property
    def terms(self) -> Terms:
        """What users agree to; an open plan has none yet."""
        if self.is_open:
            raise ParameterError("clip must be given, or found for the people who train (apes.fitted); got None")
        return self._terms()

    @cached_property
    def schedule(self) -> Schedule:
        """What the analyzer does with estimates."""
        return Schedule(**{field.name: getattr(self, field.name) for field in fields(Schedule)})

    def as_dict(self) -> dict[str, Any]:
        """The choices as plain values, for a file; a stranger's mechanism by its digest."""
        own = None if self.mechanism is None else self.mechanism.digest
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"mechanism": own}

    @property
    def _placeholder(self) -> dict[str, Any]:
        """Stands for what an open plan leaves open."""
        return {"norm": NORM if self.norm is None else self.norm, "clip": 1.0} if self.is_open else {}

    def _terms(self, **changes: Any) -> Terms:
        chosen = {field.name: getattr(self, field.name) for field in fields(Terms)} | changes
        # What is left out is what Terms leave out.
        defaults = [name for name in ("clip", "rounds") if chosen[name] is None]
        return Terms(**{name: value for name, value in chosen.items() if name not in defaults})


def schedule_digest(schedule: Schedule) -> str:
    """Tells what the analyzer does from anything else that it might do."""
    return ", ".join(f"{name}={value!r}" for name, value in asdict(schedule).items())
