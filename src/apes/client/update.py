"""What a user's data says about the model: Algorithm 1's gradient, or the FedProx difference.

For multinomial logistic regression both are combinations of the user's own rows, update = sum_i a_i x_i^T with a
coefficient a_i for each row and class. So an update is prepared once (the coefficients) and then written out for
whichever coordinates are asked for; local steps cost little more than one gradient, because they move the
coefficients and see the rows only through their Gram matrix.

Coordinates are laid out class after class: `features` weights, then the bias.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apes.parameters import positive, whole, within
from apes.population import UserBlock


class PreparedUpdate(Protocol):
    """Updates of a block of users, to be written out part by part."""

    def coordinates(self, start: int, stop: int) -> NDArray[np.float32]:
        """Coordinates start .. stop - 1 of every user, unclipped: array (users, stop - start)."""
        ...


class Updater(Protocol):
    """Computes updates in the direction of the gradient: the analyzer steps against them."""

    def prepare(self, weights: NDArray[np.float32], block: UserBlock) -> PreparedUpdate:
        """Prepare the updates of a block of users at the model ``weights`` (classes, features + 1)."""
        ...


@dataclass(frozen=True)
class GradientUpdate:
    """Algorithm 1: the gradient of the user's mean cross-entropy at the global model."""

    def prepare(self, weights: NDArray[np.float32], block: UserBlock) -> PreparedUpdate:
        """Coefficients (softmax - one-hot) / rows of the user."""
        coefficients = np.empty((block.labels.size, weights.shape[0]), dtype=np.float32)
        local_coefficients(weights, block.features, block.labels, block.offsets, 1, 1.0, 0.0, coefficients)
        return _RowCombination(block, coefficients)


@dataclass(frozen=True)
class FedProxUpdate:
    """The model difference w_global - w_local after full-batch local steps with a proximal term.

    Args:
        epochs: Local steps, at least 1.
        learning_rate: Local learning rate, in (0, inf).
        mu: Weight of the proximal term (mu / 2) |w - w_global|^2, in [0, 10^3].
    """

    epochs: int = 10
    learning_rate: float = 1.0
    mu: float = 0.01

    def __post_init__(self) -> None:
        whole("local_epochs", self.epochs, 1)
        positive("local_learning_rate", self.learning_rate)
        within("mu", self.mu, 0, 1e3)

    def prepare(self, weights: NDArray[np.float32], block: UserBlock) -> PreparedUpdate:
        """Coefficients of w_global - w_local in the user's rows."""
        coefficients = np.empty((block.labels.size, weights.shape[0]), dtype=np.float32)
        local_coefficients(
            weights,
            block.features,
            block.labels,
            block.offsets,
            self.epochs,
            self.learning_rate,
            self.mu,
            coefficients,
        )
        return _RowCombination(block, coefficients)


@dataclass(frozen=True, eq=False)
class _RowCombination:
    block: UserBlock
    coefficients: NDArray[np.float32]

    def coordinates(self, start: int, stop: int) -> NDArray[np.float32]:
        out = np.empty((self.block.offsets.size - 1, stop - start), dtype=np.float32)
        write_out(self.block.features, self.coefficients, self.block.offsets, start, out)
        return out


# Reassociation lets the dot products vectorise. The order of the sums is then fixed by the compiler for one row,
# so results do not depend on which block a user is in.
@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def local_coefficients(
    weights: NDArray[np.float32],
    features: NDArray[np.float32],
    labels: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    epochs: int,
    learning_rate: float,
    mu: float,
    out: NDArray[np.float32],
) -> None:
    """Coefficients of (w_global - w_local) in each user's rows after ``epochs`` full-batch steps.

    With w_local = w_global - sum_i a_i (x_i, 1)^T, a step of rate r on the mean loss and the proximal term is
    a <- (1 - r mu) a + (r / m) (softmax(z) - one-hot), z_i = z_i(w_global) - sum_k <(x_i, 1), (x_k, 1)> a_k.
    """
    classes, width = weights.shape
    size = width - 1
    rate, shrink = np.float32(learning_rate), np.float32(1 - learning_rate * mu)
    for user in range(offsets.size - 1):
        first, last = offsets[user], offsets[user + 1]
        m = last - first
        logits = np.empty((m, classes), dtype=np.float32)
        for i in range(m):
            x = features[first + i]
            for c in range(classes):
                w = weights[c]
                total = np.float32(0)
                for p in range(size):
                    total += x[p] * w[p]
                logits[i, c] = total + w[size]
        gram = np.empty((m, m), dtype=np.float32)
        if epochs > 1:
            for i in range(m):
                for k in range(i + 1):
                    x, y = features[first + i], features[first + k]
                    total = np.float32(1)
                    for p in range(size):
                        total += x[p] * y[p]
                    gram[i, k] = gram[k, i] = total
        a = out[first:last]
        a[:] = np.float32(0)
        for epoch in range(epochs):
            moved = logits.copy()
            if epoch > 0:
                for i in range(m):
                    for k in range(m):
                        for c in range(classes):
                            moved[i, c] -= gram[i, k] * a[k, c]
            for i in range(m):
                _softmax_residual(moved[i], labels[first + i])
                for c in range(classes):
                    a[i, c] = shrink * a[i, c] + rate / np.float32(m) * moved[i, c]


@njit
def _softmax_residual(logits: NDArray[np.float32], label: int) -> None:
    """Replace logits by softmax(logits) - one-hot(label)."""
    top = logits.max()
    total = np.float32(0)
    for c in range(logits.size):
        logits[c] = np.exp(logits[c] - top)
        total += logits[c]
    for c in range(logits.size):
        logits[c] = logits[c] / total
    logits[label] -= np.float32(1)


@njit(nogil=True, cache=True)
def write_out(
    features: NDArray[np.float32],
    coefficients: NDArray[np.float32],
    offsets: NDArray[np.int64],
    start: int,
    out: NDArray[np.float32],
) -> None:
    """Write coordinates start .. start + width - 1 of every user's combination of rows into ``out``."""
    size = features.shape[1]
    stop = start + out.shape[1]
    for user in range(offsets.size - 1):
        coordinate = start
        while coordinate < stop:
            c = coordinate // (size + 1)
            bias = c * (size + 1) + size
            end = min(stop, bias)
            target = out[user, coordinate - start : end - start]
            target[:] = np.float32(0)
            low = coordinate - c * (size + 1)
            total = np.float32(0)
            for i in range(offsets[user], offsets[user + 1]):
                a = coefficients[i, c]
                total += a
                row = features[i, low : low + target.size]
                for p in range(target.size):
                    target[p] += a * row[p]
            if bias < stop:
                out[user, bias - start] = total
            coordinate = bias + 1
