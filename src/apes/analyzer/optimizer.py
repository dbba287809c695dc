"""The server's step: from an estimate of the mean update to the next model. Costs no privacy."""

from dataclasses import dataclass

import numpy as np

from apes.checks import one_of, positive, whole, within
from apes.mathematics.arrays import F64
from apes.messages import Estimate

METHODS = ("momentum", "adam", "yogi")
# Weight of the past in the running mean of squares, and what is added to its root (Reddi et al., arXiv:2003.00295).
_SQUARES, _FLOOR = 0.99, 1e-3


@dataclass(frozen=True, eq=False)
class ServerState:
    """Where the analyzer stands after a round."""

    weights: F64  # the model that is broadcast
    velocity: F64  # running mean of the estimates (momentum)
    squares: F64  # running mean of their squares (adam, yogi; else zeros)
    average: F64  # of the models so far, weighted towards the late ones
    step: int  # rounds taken

    @classmethod
    def start(cls, weights: F64) -> "ServerState":
        """The state before the first round."""
        return cls(weights, np.zeros_like(weights), np.zeros_like(weights), weights, 0)


@dataclass(frozen=True)
class ServerOptimizer:
    """Gradient step with optional momentum, coordinates scaled by their size, steps that shrink, averaging.

    The running mean of the estimates is corrected for its start, so the size of a step does not depend on momentum.
    """

    learning_rate: float  # alpha of the first round, in (0, inf)
    momentum: float = 0.0  # weight of the past in the running mean of estimates, in [0, 0.999]
    decay: float = 0.0  # in [0, 10^3]: the step of round t (from 0) is alpha / (1 + decay t)
    averaging: float = 0.0  # 0 hands out the last model; a in (0, 100] the average with weights growing like t^a
    method: str = "momentum"  # or adam, yogi: every coordinate's step is divided by the root of its mean square
    last_step: float = 1.0  # in (0, 1]: the share of alpha that is left in the last round, falling evenly until then
    rounds: int = 1  # how many there will be, for ``last_step``

    def __post_init__(self) -> None:
        positive("learning_rate", self.learning_rate)
        one_of("optimizer", self.method, METHODS)
        within("momentum", self.momentum, 0, 0.999)
        within("decay", self.decay, 0, 1e3)
        positive("last_step", self.last_step, 1)
        within("averaging", self.averaging, 0, 100)
        whole("rounds", self.rounds, 1)

    def apply(self, state: ServerState, estimate: Estimate) -> ServerState:
        """Return the state after one step against the estimated mean update."""
        step = state.step + 1
        velocity = self.momentum * state.velocity + (1 - self.momentum) * estimate.mean
        direction, squares = velocity / (1 - self.momentum**step), self._squares(state.squares, estimate.mean)
        if self.method != "momentum":
            direction = direction / (np.sqrt(squares / (1 - _SQUARES**step)) + _FLOOR)
        weights = state.weights - self.rate(state.step) * direction
        # Running average with weight proportional to t^a: the t-th model enters with a share (a + 1) / (t + a).
        share = (self.averaging + 1) / (step + self.averaging)
        return ServerState(weights, velocity, squares, state.average + share * (weights - state.average), step)

    def model(self, state: ServerState) -> F64:
        """The model to hand out: the average if averaging is on, else the last one."""
        return state.average if self.averaging > 0 else state.weights

    def rate(self, done: int) -> float:
        """The step after so many rounds."""
        passed = min(1.0, done / max(self.rounds - 1, 1))
        return self.learning_rate / (1 + self.decay * done) * (1 - (1 - self.last_step) * passed)

    def _squares(self, before: F64, mean: F64) -> F64:
        """Running mean of squares; yogi's moves by a share of the new square only, so that it forgets slowly."""
        if self.method == "momentum":
            return before
        new = mean * mean
        if self.method == "adam":
            return _SQUARES * before + (1 - _SQUARES) * new
        return before - (1 - _SQUARES) * np.sign(before - new) * new
