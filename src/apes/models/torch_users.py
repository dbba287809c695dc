"""Updates of some users at once in torch: the gradient of each user's mean loss, or what local steps change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.func import functional_call, grad, vmap

from apes.errors import ParameterError
from apes.models.logistic import FedProx

Loss: TypeAlias = Callable[[Any, Any], Any]
Parameters: TypeAlias = dict[str, torch.Tensor]
# Rows that go through the module at once for one user: bounds the memory of their activations.
MOST_ROWS = 256


@dataclass(frozen=True, eq=False)
class Users:
    """Rows of some users, each padded to equally many.

    Attributes:
        rows: (users, rows, ...), float32.
        targets: (users, rows), int64 classes or float32.
        shares: (users, rows): 1 / m for the m rows that a user has, 0 for padding.
    """

    rows: torch.Tensor
    targets: torch.Tensor
    shares: torch.Tensor

    def __getitem__(self, who: Any) -> "Users":
        """Some of the users, in a given order."""
        return Users(self.rows[who], self.targets[who], self.shares[who])


@dataclass(frozen=True, eq=False)
class RowLoss:
    """A module with its loss, as a function of parameters and one row.

    The module sees a batch of one row, so that no row depends on another.
    """

    module: torch.nn.Module
    loss: Loss

    def outputs(self, parameters: Parameters, row: torch.Tensor) -> torch.Tensor:
        """What the module says about one row, a batch of one."""
        # A copy: a module that works in place must not change what the next local step sees.
        outputs = functional_call(self.module, parameters, (row[None].clone(),))
        if not isinstance(outputs, torch.Tensor):
            raise ParameterError(f"module must return a tensor, got {type(outputs).__name__}")
        return outputs

    def of_outputs(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss of one row: one number."""
        shape = outputs.shape if target.is_floating_point() else (1,)
        value = self.loss(outputs, target.reshape(shape))
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            got = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise ParameterError(f"loss must give one number for a batch of one row, got {got}")
        return value.reshape(())

    def of_user(
        self, parameters: Parameters, rows: torch.Tensor, targets: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """A user's mean loss, or the part of it that some of the user's rows make."""

        def of_row(row: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.of_outputs(self.outputs(parameters, row), target)

        return (vmap(of_row)(rows, targets) * shares).sum()

    def updates(self, parameters: Parameters, users: Users, local: FedProx | None) -> torch.Tensor:
        """Updates of all users, (users, d), in the order of the parameters."""
        found = self._gradients(parameters, users) if local is None else self._changes(parameters, users, local)
        return torch.cat([value.reshape(len(users.rows), -1) for value in found.values()], dim=1)

    def _gradients(self, parameters: Parameters, users: Users, of_each: int | None = None) -> Parameters:
        """Gradients at parameters that are common to all users, or each user's own (``of_each`` 0)."""
        gradient = vmap(grad(self.of_user), in_dims=(of_each, 0, 0, 0))
        parts = [slice(start, start + MOST_ROWS) for start in range(0, users.rows.shape[1], MOST_ROWS)]
        total = gradient(parameters, *_rows(users, parts[0]))
        for part in parts[1:]:
            more = gradient(parameters, *_rows(users, part))
            total = {name: value + more[name] for name, value in total.items()}
        return dict(total)

    def _changes(self, parameters: Parameters, users: Users, local: FedProx) -> Parameters:
        """Global minus local parameters after full-batch steps with a proximal term.

        A step of rate r moves the change a = w_global - w_local to (1 - r mu) a + r gradient(w_global - a).
        """
        rate, shrink = local.learning_rate, 1 - local.learning_rate * local.mu
        changes = {name: rate * value for name, value in self._gradients(parameters, users).items()}
        for _ in range(local.epochs - 1):
            own = {name: value - changes[name] for name, value in parameters.items()}
            steps = self._gradients(own, users, 0)
            changes = {name: shrink * value + rate * steps[name] for name, value in changes.items()}
        return changes


def _rows(users: Users, part: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return users.rows[:, part], users.targets[:, part], users.shares[:, part]
