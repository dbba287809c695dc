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

from apes.checks import positive, whole, within
from apes.errors import ParameterError
from apes.models.local_steps import local_coefficients, write_out
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
