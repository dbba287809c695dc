"""A stranger's mechanism, as our stages see it."""

from dataclasses import dataclass

from apes.analyzer.calibrator import Calibrator
from apes.client.foreign import ForeignRandomizer
from apes.client.randomizer import Randomizer
from apes.errors import ParameterError
from apes.terms.mechanism import Mechanism
from apes.terms.sparsification import Sparsification


@dataclass(frozen=True)
class ForeignReports:
    """Checks what a mechanism says of itself, and hands the rest on."""

    mechanism: Mechanism

    def __post_init__(self) -> None:
        why = self.mechanism.why_not_certified
        if not isinstance(why, str) or not why:
            raise ParameterError(
                f"{self.name}.why_not_certified must say why no guarantee is certified: only Clip-Laplace has a proved "
                f"curve here; got {why!r}"
            )

    @property
    def name(self) -> str:
        """The class."""
        return type(self.mechanism).__name__

    @property
    def clip(self) -> float:
        """C."""
        return self.mechanism.clip

    @property
    def levels(self) -> int | None:
        """K, or None."""
        return self.mechanism.levels

    @property
    def digest(self) -> str:
        """As the mechanism says."""
        return self.mechanism.digest

    @property
    def why_not_certified(self) -> str:
        """As the mechanism says."""
        return self.mechanism.why_not_certified

    def randomizer(self) -> Randomizer:
        """The mechanism on clipped updates."""
        return ForeignRandomizer(self.mechanism)

    def calibrator(self, calibration: str | None, sparsification: Sparsification | None) -> Calibrator:
        """The mechanism's own."""
        if calibration is not None:
            raise ParameterError(f"calibration must be left out: {self.name} has its own; got {calibration!r}")
        return self.mechanism
