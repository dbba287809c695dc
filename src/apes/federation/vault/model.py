"""The model in a vault: tried on the users' rows before anybody asks, and silent about them ever after."""

from dataclasses import replace

import numpy as np

from apes.errors import DataError
from apes.federation.vault.holdings import Holdings
from apes.mathematics.arrays import F32, F64
from apes.models.model import Model, check_model, prepare_updates
from apes.population import Examples, UserBlock
from apes.storage.json_logs import RareLog


def check_fit(model: Model, holdings: Holdings, where: str) -> None:
    """Raise unless the model runs on all that a vault holds; ``where`` it is from."""
    fitting = 0
    try:
        weights = check_model(model).astype(np.float32)
        for block in holdings.blocks():
            prepare_updates(model, weights, block)
            fitting += block.budgets.size
    # A stranger's model may raise anything.
    except Exception as error:
        raise DataError(f"{where} does not fit the model, from user {fitting + 1} on: {error}") from None


class Discreet:
    """An installed model as a vault runs it.

    Guarantee:
        Whatever weights a server sends and whatever the model does with them, there is an update for every user, which
        depends on that user's rows alone. Where the model fails on a user's rows, that user's update is zero, and only
        the vault's own log knows: an error that data decide about is data.
    """

    def __init__(self, model: Model) -> None:
        self._model, self._failures = model, RareLog("model-failed")
        self.dimensions, self.digest = model.dimensions, model.digest

    def start(self) -> F64:
        """The model before training."""
        return self._model.start()

    def updates(self, weights: F32, block: UserBlock) -> F32:
        """Updates of a block of users; where all together fail, each for itself."""
        try:
            return self._updates(weights, block)
        except Exception:
            return np.concatenate([self._of_one(weights, _alone(block, user)) for user in range(block.budgets.size)])

    def evaluate(self, weights: F64, examples: Examples) -> tuple[float | None, float]:
        """What the model says."""
        return self._model.evaluate(weights, examples)

    def _of_one(self, weights: F32, block: UserBlock) -> F32:
        try:
            return self._updates(weights, block)
        except Exception as error:
            self._failures.count(type(error).__name__)
            return np.zeros((1, weights.size), dtype=np.float32)

    def _updates(self, weights: F32, block: UserBlock) -> F32:
        # Copies: budgets decide about the noise, and weights are other users' as well.
        own, budgets = weights.copy(), block.budgets.copy()
        prepared = prepare_updates(self._model, own, replace(block, budgets=budgets), is_checked=False)
        return prepared.coordinates(0, weights.size, np.empty(budgets.size * weights.size, dtype=np.float32))


def _alone(block: UserBlock, user: int) -> UserBlock:
    """One user of a block."""
    rows, one = slice(block.offsets[user], block.offsets[user + 1]), slice(user, user + 1)
    offsets = block.offsets[user : user + 2] - block.offsets[user]
    return UserBlock(block.first_user + user, block.budgets[one], block.features[rows], block.labels[rows], offsets)
