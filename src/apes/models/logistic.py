"""Multinomial logistic regression: the model of the paper's experiments."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apes.checks import whole


@dataclass(frozen=True)
class LogisticRegression:
    """Softmax regression with a bias a class; coordinates are laid out class after class.

    Args:
        features: Inputs, at least 1.
        classes: Outputs, at least 2.
    """

    features: int
    classes: int

    def __post_init__(self) -> None:
        whole("features", self.features, 1)
        whole("classes", self.classes, 2)

    @property
    def dimensions(self) -> int:
        """Number of coordinates d = classes (features + 1)."""
        return self.classes * (self.features + 1)

    def start(self) -> NDArray[np.float64]:
        """The model before training: all zeros."""
        return np.zeros(self.dimensions)

    def shaped(self, weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """The flat weights as users get them: float32, (classes, features + 1)."""
        return weights.astype(np.float32).reshape(self.classes, self.features + 1)

    def evaluate(
        self, weights: NDArray[np.float64], images: NDArray[np.float32], labels: NDArray[np.uint8]
    ) -> tuple[float, float]:
        """Return accuracy in [0, 1] and mean cross-entropy in nats."""
        w = self.shaped(weights)
        logits = (images @ w[:, :-1].T + w[:, -1]).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        log_norm = np.log(np.exp(logits).sum(axis=1))
        own = logits[np.arange(labels.size), labels]
        return float((logits.argmax(axis=1) == labels).mean()), float((log_norm - own).mean())
