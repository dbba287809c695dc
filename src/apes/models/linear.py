"""Linear regression with squared loss, on the same road as logistic regression: updates combine the user's own rows.

Coordinates are the weights of the features, then the bias.
"""

import json
from dataclasses import asdict, dataclass

import numpy as np

from apes.checks import positive, whole
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64
from apes.mathematics.compiled import compiled_reordering
from apes.models.logistic import RowCombination, check_rows
from apes.models.model import PreparedUpdate, WeightArray
from apes.population import Examples, KnownRows, UserBlock

# Rows are about 9 long, targets in [-1, 1]: with predictions so much smaller than a class's scores, steps of 4 to 20,
# meant for softmax regression on such rows, suit squared loss on them too (the best of 1/5 to 1/1000 on made-up data).
_GAIN = 1 / 20


@dataclass(frozen=True)
class LinearRegression:
    """A real-valued target from a row x: gain (<w, x> + b), learned by its squared error.

    Args:
        features: Inputs, at least 1.
        gain: How much the output moves per unit of score, in (0, inf). An update is the gradient of the user's mean
            squared error, divided by 2 gain: clipping sees the same, and steps need not be smaller than elsewhere.
    """

    features: int
    gain: float = _GAIN

    def __post_init__(self) -> None:
        whole("features", self.features, 1)
        positive("gain", self.gain)

    @classmethod
    def of(cls, people: KnownRows) -> "LinearRegression":
        """The model that fits these people's rows."""
        return cls(people.features)

    @property
    def dimensions(self) -> int:
        """Number of coordinates d = features + 1."""
        return self.features + 1

    @property
    def stride(self) -> float:
        """How far a round of clipped updates moves it best, on rows of norm up to 9 (tried on synthetic rows)."""
        return 3.0

    @property
    def digest(self) -> str:
        """Name and every choice."""
        return json.dumps(["linear-regression", asdict(self)], sort_keys=True)

    @property
    def layout(self) -> tuple[WeightArray, ...]:
        """A weight per feature, then the bias; predictions are ``gain`` times their sum."""
        return (
            WeightArray(f"weights, to be multiplied by {self.gain:g}", (self.dimensions,), ("feature, the bias last",)),
        )

    def start(self) -> F64:
        """The model before training: all zeros."""
        return np.zeros(self.dimensions)

    def prepare(self, weights: F32, block: UserBlock) -> PreparedUpdate:
        """Coefficients of every user's update in the user's rows."""
        check_rows(block, self.features)
        if block.labels.dtype != np.float32:
            raise ParameterError(f"labels must be real-valued to train linear regression, got {block.labels.dtype}")
        coefficients = np.empty((block.labels.size, 1), dtype=np.float32)
        _residuals(weights, block.features, block.labels, block.offsets, self.gain, coefficients)
        return RowCombination(block, coefficients)

    def updates(self, weights: F32, block: UserBlock) -> F32:
        """Updates of a block of users, whole."""
        scratch = np.empty(block.budgets.size * self.dimensions, dtype=np.float32)
        return self.prepare(weights, block).coordinates(0, self.dimensions, scratch)

    def evaluate(self, weights: F64, examples: Examples) -> tuple[float | None, float]:
        """Return no accuracy, and the mean squared error, in the unit of the labels squared."""
        errors = self.outputs(weights, examples.features)[:, 0] - examples.labels
        return None, float((errors * errors).mean())

    def constant_loss(self, examples: Examples) -> float:
        """Mean squared error of always answering the mean of the labels."""
        return float(examples.labels.astype(np.float64).var())

    def outputs(self, weights: F64, rows: F32) -> F64:
        """The prediction for each of some rows, (rows, 1)."""
        slopes, intercepts = self.coefficients(weights)
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise ParameterError(f"rows must have {self.features} numbers each, got shape {rows.shape}")
        return np.asarray(rows.astype(np.float64) @ slopes.T + intercepts)

    def coefficients(self, weights: F64) -> tuple[F64, F64]:
        """Slopes (1, features) and intercept (1,): a row's prediction is slopes @ row + intercept."""
        return self.gain * weights[None, :-1], self.gain * weights[-1:]


@compiled_reordering
# parameters: compiled loops take arrays and words; numba does not know our objects.
def _residuals(weights: F32, features: F32, labels: F32, offsets: I64, gain: float, out: F32) -> None:
    """Prediction minus target of every row, divided by the number of the user's rows."""
    for user in range(offsets.size - 1):
        share = np.float32(1 / (offsets[user + 1] - offsets[user]))
        for i in range(offsets[user], offsets[user + 1]):
            row, score = features[i], weights[weights.size - 1]
            for p in range(row.size):
                score += row[p] * weights[p]
            out[i, 0] = share * (np.float32(gain) * score - labels[i])
