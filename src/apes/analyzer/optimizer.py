"""The server's step: from an estimate of the mean update to the next model. Costs no privacy."""

from dataclasses import dataclass

import numpy as np

from apes.checks import positive, within
from apes.mathematics.arrays import F64
from apes.messages import Estimate


@dataclass(frozen=True, eq=False)
class ServerState:
    """Where the analyzer stands after a round."""

    weights: F64  # the model that is broadcast
    velocity: F64  # running mean of the estimates (momentum)
    average: F64  # of the models so far, weighted towards the late ones
    step: int  # rounds taken

    @classmethod
    def start(cls, weights: F64) -> "ServerState":
        """The state before the first round."""
        return cls(weights, np.zeros_like(weights), weights, 0)


@dataclass(frozen=True)
class ServerOptimizer:
    """Gradient step with optional momentum, step decay and averaging.

    The running mean of the estimates is corrected for its start, so the size of a step does not depend on momentum.
    """

    learning_rate: float  # alpha of the first round, in (0, inf)
    momentum: float = 0.0  # weight of the past in the running mean of estimates, in [0, 0.999]
    decay: float = 0.0  # in [0, 10^3]: the step of round t (from 0) is alpha / (1 + decay t)
    averaging: float = 0.0  # 0 hands out the last model; a in (0, 100] the average with weights growing like t^a

    def __post_init__(self) -> None:
        positive("learning_rate", self.learning_rate)
        within("momentum", self.momentum, 0, 0.999)
        within("decay", self.decay, 0, 1e3)
        within("averaging", self.averaging, 0, 100)

    def apply(self, state: ServerState, estimate: Estimate) -> ServerState:
        """Return the state after one step against the estimated mean update."""
        step = state.step + 1
        velocity = self.momentum * state.velocity + (1 - self.momentum) * estimate.mean
        direction = velocity / (1 - self.momentum**step)
        rate = self.learning_rate / (1 + self.decay * state.step)
        weights = state.weights - rate * direction
        # Running average with weight proportional to t^a: the t-th model enters with a share (a + 1) / (t + a).
        share = (self.averaging + 1) / (step + self.averaging)
        return ServerState(weights, velocity, state.average + share * (weights - state.average), step)

    def model(self, state: ServerState) -> F64:
        """The model to hand out: the average if averaging is on, else the last one."""
        return state.average if self.averaging > 0 else state.weights
