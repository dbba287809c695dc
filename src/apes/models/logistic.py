"""Multinomial logistic regression: the model of the paper's experiments, on a fast road of its own.

Updates are combinations of the user's own rows, update = sum_i a_i x_i^T with a coefficient a_i per row and class. So
an update is prepared once (the coefficients) and then written out for whichever coordinates are asked for; local steps
cost little more than one gradient, because they move the coefficients and see the rows only through their Gram matrix.

Coordinates are laid out class after class: ``features`` weights, then the bias.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from apes.checks import positive, whole, within
from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64
from apes.models.local_steps import local_coefficients, write_out
from apes.models.model import WeightArray
from apes.population import Examples, KnownRows, UserBlock

_ONE_GRADIENT = (1, 1.0, 0.0)


@dataclass(frozen=True)
class FedProx:
    """Local steps instead of a gradient: users report w_global - w_local after full-batch steps with a proximal term.

    Args:
        epochs: Local steps, at least 1.
        learning_rate: Local learning rate, in (0, inf).
        mu: Weight of the proximal term ``(mu / 2) |w - w_global|^2``, in [0, 10^3].
    """

    epochs: int = 10
    learning_rate: float = 1.0
    mu: float = 0.01

    def __post_init__(self) -> None:
        whole("local_epochs", self.epochs, 1)
        positive("local_learning_rate", self.learning_rate)
        within("mu", self.mu, 0, 1e3)


@dataclass(frozen=True)
class LogisticRegression:
    """Softmax regression with a bias per class.

    Args:
        features: Inputs, at least 1.
        classes: Outputs, in [2, 65536].
        local: Local steps, or None for Algorithm 1: the gradient of the user's mean cross-entropy.
    """

    features: int
    classes: int
    local: FedProx | None = None

    def __post_init__(self) -> None:
        whole("features", self.features, 1)
        whole("classes", self.classes, 2, 65536)

    @classmethod
    def of(
        cls, people: KnownRows, local: FedProx | None = None, *, features: Callable[[F32], F32] | None = None
    ) -> "LogisticRegression":
        """The model that fits these people's rows and classes, seen through a feature map if there is one."""
        size = people.features if features is None else features(people.block(0, 1).features).shape[1]
        return cls(size, people.classes, local)

    @property
    def dimensions(self) -> int:
        """Number of coordinates d = classes (features + 1)."""
        return self.classes * (self.features + 1)

    @property
    def is_difference(self) -> bool:
        """Whether users report differences of models."""
        return self.local is not None

    @property
    def digest(self) -> str:
        """Name and every choice."""
        return json.dumps(["logistic-regression", asdict(self)], sort_keys=True)

    @property
    def stride(self) -> float:
        """How far a round of clipped updates moves it best, on rows of norm 9 (tuned on the embedded digits)."""
        return 5.0

    @property
    def layout(self) -> tuple[WeightArray, ...]:
        """Class after class: a weight per feature, then the bias."""
        return (WeightArray("weights", (self.classes, self.features + 1), ("class", "feature, the bias last")),)

    def start(self) -> F64:
        """The model before training: all zeros."""
        return np.zeros(self.dimensions)

    def shaped(self, weights: F64 | F32) -> F32:
        """The flat weights as float32, (classes, features + 1)."""
        return weights.astype(np.float32).reshape(self.classes, self.features + 1)

    def prepare(self, weights: F32, block: UserBlock) -> "RowCombination":
        """Coefficients of every user's update in the user's rows."""
        self._check(block)
        coefficients = np.empty((block.labels.size, self.classes), dtype=np.float32)
        local = self.local
        steps = _ONE_GRADIENT if local is None else (local.epochs, local.learning_rate, local.mu)
        shaped = self.shaped(weights)
        local_coefficients(shaped, block.features, block.labels, block.offsets, *steps, coefficients)
        return RowCombination(block, coefficients)

    def updates(self, weights: F32, block: UserBlock) -> F32:
        """Updates of a block of users, whole."""
        scratch = np.empty(block.budgets.size * self.dimensions, dtype=np.float32)
        return self.prepare(weights, block).coordinates(0, self.dimensions, scratch)

    def evaluate(self, weights: F64, examples: Examples) -> tuple[float | None, float]:
        """Return accuracy in [0, 1] and mean cross-entropy in nats."""
        w, labels = self.shaped(weights), examples.labels
        logits = (examples.features @ w[:, :-1].T + w[:, -1]).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        log_norm = np.log(np.exp(logits).sum(axis=1))
        own = logits[np.arange(labels.size), labels]
        return float((logits.argmax(axis=1) == labels).mean()), float((log_norm - own).mean())

    def outputs(self, weights: F64, rows: F32) -> F64:
        """Scores of every class, for each of some rows."""
        slopes, intercepts = self.coefficients(weights)
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise ParameterError(f"rows must have {self.features} numbers each, got shape {rows.shape}")
        return np.asarray(rows.astype(np.float64) @ slopes.T + intercepts)

    def coefficients(self, weights: F64) -> tuple[F64, F64]:
        """Weights (classes, features) and biases (classes,): a row's scores are weights @ row + biases."""
        shaped = weights.reshape(self.classes, self.features + 1)
        return shaped[:, :-1], shaped[:, -1]

    def _check(self, block: UserBlock) -> None:
        # The compiled loops index by label and feature without looking.
        check_rows(block, self.features)
        if not np.issubdtype(block.labels.dtype, np.integer):
            raise ParameterError(f"labels must be classes to train logistic regression, got {block.labels.dtype}")
        for label in (block.labels.min(), block.labels.max()):
            if not 0 <= label < self.classes:
                raise ParameterError(f"labels must be in [0, {self.classes - 1}], got {label}")


def check_rows(block: UserBlock, features: int) -> None:
    """Raise unless every row of a block has as many numbers as there are features."""
    if block.features.ndim != 2 or block.features.shape[1] != features:
        raise ParameterError(f"features must be rows of {features} numbers, got shape {block.features.shape}")


@dataclass(frozen=True, eq=False)
class RowCombination:
    """Updates that are combinations of each user's own rows, lengthened by a 1: a coefficient per row and output."""

    block: UserBlock
    coefficients: F32
    writes_all: ClassVar[bool] = True

    def coordinates(self, start: int, stop: int, scratch: F32) -> F32:
        """Coordinates start .. stop - 1 of every user."""
        users = self.block.offsets.size - 1
        out = scratch[: users * (stop - start)].reshape(users, stop - start)
        write_out(self.block.features, self.coefficients, self.block.offsets, start, out)
        return out
