"""The schedule: what the analyzer does with estimates. Post-processing: nobody's privacy depends on it."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from apes.analyzer.optimizer import ServerOptimizer
from apes.models.model import Model
from apes.terms.terms import Terms

# The running mean over a few rounds steadies the step on every data set tried; the step is capped where the noise that
# a round adds to a weight would exceed 0.018, which is close to the best at every noise level from 0.0045 to 0.057 on
# MNIST and on digits.
_LARGEST_STEP = 4.0
_NOISE_PER_ROUND = 0.018
_MOMENTUM = 0.8
# Updates of norm R are nearly all clipped to it, so that the step in units of R is how far a round moves the model. It
# is shortened where the noise of all coordinates together is more than half of R, and falls to a third (tuned on the
# embedded digits, at total epsilons of 0.25, 0.5 and 1).
_STRIDE = 0.5
_QUIET = 0.5
_LAST_STEP = 0.3
# Coordinates that are divided by their own size move by about the step itself.
_SCALED_STEP = 0.01


@dataclass(frozen=True)
class Schedule:
    """How the analyzer reads batches and steps. None means: what suits the noise and the model.

    Attributes:
        learning_rate: The step. By default as large as the noise allows, at most 4 (differences of models: 1); with a
            norm R the model's ``stride`` / R (0.5 / R where it has none), or less under much noise; for adam and yogi
            0.01.
        optimizer: ``momentum`` (the default), ``adam`` or ``yogi``.
        last_step: Share of the step that is left in the last round (1; 0.3 with a norm).
        momentum, decay, averaging: See `apes.analyzer.optimizer.ServerOptimizer`.
        calibration: ``inverse`` (the paper's) or ``likelihood`` (coded reports), for Clip-Laplace frameworks; by
            default whichever suits the noise.
    """

    learning_rate: float | None = None
    momentum: float | None = None
    decay: float | None = None
    averaging: float | None = None
    calibration: str | None = None
    optimizer: str | None = None
    last_step: float | None = None

    def __post_init__(self) -> None:
        self.steps()

    def steps(self, terms: Terms | None = None, model: Model | None = None, noise: float = 1.0) -> ServerOptimizer:
        """How the analyzer steps.

        Args:
            terms: What users agree to: the bound of updates, and how many rounds there are.
            model: What is trained.
            noise: Standard error of one coordinate's estimate, known from the public budgets.
        """
        given = asdict(self) | {"method": self.optimizer}
        names = ("learning_rate", "momentum", "decay", "averaging", "method", "last_step")
        chosen = {name: given[name] for name in names if given[name] is not None}
        is_difference = bool(getattr(model, "is_difference", False))
        defaults: dict[str, Any] = {
            "learning_rate": self._step(terms, model, noise, is_difference),
            "momentum": 0.0 if is_difference else _MOMENTUM,
            "last_step": 1.0 if terms is None or terms.norm is None else _LAST_STEP,
            "rounds": 1 if terms is None else terms.rounds,
        }
        return ServerOptimizer(**(defaults | chosen))

    def _step(self, terms: Terms | None, model: Model | None, noise: float, is_difference: bool) -> float:
        """The default step."""
        if self.optimizer not in (None, "momentum"):
            return _SCALED_STEP
        if is_difference:
            return min(1.0, _NOISE_PER_ROUND / max(noise, 1e-300))
        if terms is not None and terms.norm is not None:
            dimensions = 1 if model is None else model.dimensions
            shorter = min(1.0, _QUIET * terms.norm / max(noise * math.sqrt(dimensions), 1e-300))
            return float(getattr(model, "stride", _STRIDE)) * shorter / terms.norm
        return min(_LARGEST_STEP, _NOISE_PER_ROUND / max(noise, 1e-300))
