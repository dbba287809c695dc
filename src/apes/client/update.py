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
from numpy.typing import NDArray

from apes.compiled import compiled, compiled_reordering
from apes.errors import ParameterError
from apes.parameters import positive, whole, within
from apes.population import UserBlock


class PreparedUpdate(Protocol):
    """Updates of a block of users, to be written out part by part."""

    def coordinates(self, start: int, stop: int, scratch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Coordinates start .. stop - 1 of every user, unclipped: array (users, stop - start).

        The array may lie in ``scratch`` (flat, at least as large): it is good until scratch is used again.
        """
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
        _check_labels(block, weights)
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
        _check_labels(block, weights)
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


def _check_labels(block: UserBlock, weights: NDArray[np.float32]) -> None:
    # The compiled loops index by label.
    if block.labels.max() >= weights.shape[0]:
        raise ParameterError(f"labels must be in [0, {weights.shape[0] - 1}], got {block.labels.max()}")


@dataclass(frozen=True, eq=False)
class _RowCombination:
    block: UserBlock
    coefficients: NDArray[np.float32]

    def coordinates(self, start: int, stop: int, scratch: NDArray[np.float32]) -> NDArray[np.float32]:
        users = self.block.offsets.size - 1
        out = scratch[: users * (stop - start)].reshape(users, stop - start)
        write_out(self.block.features, self.coefficients, self.block.offsets, start, out)
        return out


@compiled_reordering
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
            _logits(features[first + i], weights, logits[i])
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


@compiled_reordering
def _logits(x: NDArray[np.float32], weights: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Scores of one row; classes in fives, so that a feature is loaded once for five of them."""
    classes, size = weights.shape[0], weights.shape[1] - 1
    for c in range(0, classes - 4, 5):
        w0, w1, w2, w3, w4 = weights[c], weights[c + 1], weights[c + 2], weights[c + 3], weights[c + 4]
        t0 = t1 = t2 = t3 = t4 = np.float32(0)
        for p in range(size):
            t0 += x[p] * w0[p]
            t1 += x[p] * w1[p]
            t2 += x[p] * w2[p]
            t3 += x[p] * w3[p]
            t4 += x[p] * w4[p]
        out[c], out[c + 1], out[c + 2], out[c + 3], out[c + 4] = t0, t1, t2, t3, t4
    for c in range(classes - classes % 5, classes):
        w = weights[c]
        t = np.float32(0)
        for p in range(size):
            t += x[p] * w[p]
        out[c] = t
    for c in range(classes):
        out[c] += weights[c, size]


@compiled
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


@compiled_reordering
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
        rows = features[offsets[user] : offsets[user + 1]]
        own = coefficients[offsets[user] : offsets[user + 1]]
        coordinate = start
        while coordinate < stop:
            c = coordinate // (size + 1)
            bias = c * (size + 1) + size
            low = coordinate - c * (size + 1)
            _combine(rows, own, c, low, out[user, coordinate - start : min(stop, bias) - start])
            if bias < stop:
                total = np.float32(0)
                for i in range(own.shape[0]):
                    total += own[i, c]
                out[user, bias - start] = total
            coordinate = bias + 1


@compiled_reordering
def _combine(
    rows: NDArray[np.float32], coefficients: NDArray[np.float32], c: int, low: int, out: NDArray[np.float32]
) -> None:
    """Write sum_i a_i x_i; rows in threes, so that the sum is loaded and stored a third as often."""
    m, high = rows.shape[0], low + out.size
    out[:] = np.float32(0)
    for i in range(0, m - 2, 3):
        a0, a1, a2 = coefficients[i, c], coefficients[i + 1, c], coefficients[i + 2, c]
        x0, x1, x2 = rows[i, low:high], rows[i + 1, low:high], rows[i + 2, low:high]
        for p in range(out.size):
            out[p] += a0 * x0[p] + a1 * x1[p] + a2 * x2[p]
    for i in range(m - m % 3, m):
        a, x = coefficients[i, c], rows[i, low:high]
        for p in range(out.size):
            out[p] += a * x[p]
