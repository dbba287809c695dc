"""The schedule: what the analyzer does with estimates. Post-processing: nobody's privacy depends on it."""

from dataclasses import asdict, dataclass

from apes.analyzer.optimizer import ServerOptimizer

# The running mean over a few rounds steadies the step on every data set tried; the step is capped where the noise that
# a round adds to a weight would exceed 0.018, which is close to the best at every noise level from 0.0045 to 0.057 on
# MNIST and on digits.
_LARGEST_STEP = 4.0
_NOISE_PER_ROUND = 0.018
_MOMENTUM = 0.8


@dataclass(frozen=True)
class Schedule:
    """How the analyzer reads batches and steps. None means: what suits the noise and the model.

    Attributes:
        learning_rate: The step; by default as large as the noise allows, at most 4 (differences of models: 1).
        momentum, decay, averaging: See `apes.analyzer.optimizer.ServerOptimizer`.
        calibration: ``inverse`` (the paper's) or ``likelihood`` (coded reports), for Clip-Laplace frameworks; by
            default whichever suits the noise.
    """

    learning_rate: float | None = None
    momentum: float | None = None
    decay: float | None = None
    averaging: float | None = None
    calibration: str | None = None

    def __post_init__(self) -> None:
        self.optimizer(1.0)

    def optimizer(self, noise: float, *, is_difference: bool = False) -> ServerOptimizer:
        """How the analyzer steps.

        Args:
            noise: Standard error of one coordinate's estimate, known from the public budgets.
            is_difference: Whether updates are differences of models rather than gradients.
        """
        largest, momentum = (1.0, 0.0) if is_difference else (_LARGEST_STEP, _MOMENTUM)
        defaults = {"learning_rate": min(largest, _NOISE_PER_ROUND / max(noise, 1e-300)), "momentum": momentum}
        chosen = {name: value for name, value in asdict(self).items() if name != "calibration" and value is not None}
        return ServerOptimizer(**(defaults | chosen))
