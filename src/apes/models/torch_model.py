"""A torch module as a model to train: per-user gradients or local steps, for whole blocks of users at once."""

import copy
import json
from dataclasses import asdict
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import vmap

from apes.errors import ParameterError
from apes.mathematics.arrays import F32, F64, I64
from apes.models.logistic import FedProx
from apes.models.model import WeightArray
from apes.models.torch_checks import check_labels, check_loss, check_row, trained
from apes.models.torch_layout import Layout, find_layout, padded
from apes.models.torch_users import Loss, Parameters, RowLoss, Users
from apes.population import Examples, UserBlock
from apes.torch_modules.copies import Copies, copied
from apes.torch_modules.digest import content_digest
from apes.torch_modules.layers import check_layers, naming_the_layer
from apes.torch_modules.one_thread import aligned, one_thread
from apes.torch_modules.rows import checked_shape, shaped

_ROWS_AT_ONCE = 256
# How far the parameters of a trial are from the start: some layers begin with zeros, which would hide any difference.
_TRIAL_DISTANCE = 0.1


class TorchModel:
    """A module whose trainable parameters, in the order of ``named_parameters``, are the model's coordinates.

    The module is copied: what happens to it later changes nothing here. It runs on the CPU, on batches of one row (many
    rows and users at once, by ``torch.func``), each layer in the mode in which it is.

    Args:
        module: Its parameters are float32 and finite, none is tied to another. Those without ``requires_grad``, and all
            buffers, stay as they are.
        loss: Called as ``loss(outputs, targets)`` for a batch of one row, gives one number: as
            ``torch.nn.functional.cross_entropy`` does, or ``mse_loss``. Targets are int64 of shape (1,) for classes,
            float32 in the shape of the outputs for real values. Copied, too; neither may keep anything between calls.
            Weights of classes want ``reduction="sum"``: a mean over one row divides by the row's own weight.
        local: Local steps, so that users report differences of models; None for the gradient of the user's mean loss.
        input_shape: Shape of one row as the module takes it; by default as users have it.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        *,
        local: FedProx | None = None,
        input_shape: tuple[int, ...] | None = None,
    ) -> None:
        check_layers(module)
        check_loss(loss)
        if local is not None and not isinstance(local, FedProx):
            raise ParameterError(f"local must be None or an apes.FedProx, got {type(local).__name__}")
        self._module, own_loss, self._local = copied(module, "module"), copied(loss, "loss"), local
        self._input_shape = checked_shape(input_shape)
        start = trained(self._module)
        self._shapes = {name: value.shape for name, value in start.items()}
        self._start: F32 = torch.cat([value.reshape(-1) for value in start.values()]).numpy()
        made_of = content_digest(self._module, "module") | content_digest(own_loss, "loss")
        choices = {"local": local and asdict(local), "input_shape": self._input_shape}
        self._digest = json.dumps(["torch", choices | made_of], sort_keys=True)
        self._module.requires_grad_(False)
        self._copies = Copies(self._module, own_loss)
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self._checked: dict[tuple[Any, ...], int] = {}
        self._lock = Lock()
        if self._input_shape is not None:
            self.outputs(self._start, np.zeros((1, *self._input_shape), dtype=np.float32))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    @property
    def dimensions(self) -> int:
        """Number of coordinates d: trainable parameters."""
        return self._start.size

    @property
    def is_difference(self) -> bool:
        """Whether users report differences of models."""
        return self._local is not None

    @property
    def digest(self) -> str:
        """Code, layers, starting parameters, loss, local steps; and torch's version, which rules the bits."""
        return self._digest

    @property
    def layout(self) -> tuple[WeightArray, ...]:
        """Parameters of the module, in its own order."""
        return tuple(WeightArray(name, tuple(shape)) for name, shape in self._shapes.items())

    def start(self) -> F64:
        """The parameters as they were in the module."""
        return self._start.astype(np.float64)

    def updates(self, weights: F32, block: UserBlock) -> F32:
        """Updates of a block of users, (users, d).

        Raises:
            ParameterError: For rows, labels or layers that do not fit; names the layer.
        """
        rows, lengths = shaped(block.features, self._input_shape), np.diff(block.offsets)
        out = np.empty((lengths.size, self.dimensions), dtype=np.float32)
        goals = np.array([padded(int(length)) for length in lengths])
        with one_thread(), self._copies.lend() as own:
            parameters, row_loss = self._named(weights), RowLoss(own.module, own.loss)
            targets = self._targets(row_loss, rows, block.labels)
            own.watch.check()
            for goal in np.unique(goals).tolist():
                alike = np.flatnonzero(goals == goal)
                layout = self._layout(row_loss, goal, rows.shape[1:], targets.dtype)
                for count, size in layout.groups(alike.size):
                    who, alike = alike[:count], alike[count:]
                    users = _padded_users(rows, targets, block.offsets, np.resize(who, size), layout.rows)
                    out[who] = self._of_group(row_loss, parameters, users)[:count]
                    # Before the next group: nothing of one user's may reach another's update.
                    own.watch.check()
        return out

    def evaluate(self, weights: F64, examples: Examples) -> tuple[float | None, float]:
        """Return accuracy in [0, 1] for classes, None for real-valued targets, and the mean loss."""
        rows = shaped(examples.features, self._input_shape)
        with one_thread(), self._copies.lend() as own:
            row_loss = RowLoss(own.module, own.loss)
            targets = self._targets(row_loss, rows, examples.labels)
            outputs = self._outputs(row_loss, weights, rows)
            losses = vmap(row_loss.of_outputs)(outputs, aligned(targets)).numpy()
        is_right = None if targets.dtype == np.float32 else outputs.flatten(1).argmax(dim=1).numpy() == targets
        return None if is_right is None else float(is_right.mean()), float(losses.mean(dtype=np.float64))

    def constant_loss(self, examples: Examples) -> float | None:
        """Mean loss of always answering the mean of the labels; None for classes, or more outputs than one."""
        rows = shaped(examples.features, self._input_shape)
        with one_thread(), self._copies.lend() as own:
            row_loss = RowLoss(own.module, own.loss)
            targets = self._targets(row_loss, rows, examples.labels)
            outputs = self._outputs(row_loss, self._start, rows)
            if targets.dtype != np.float32 or outputs.flatten(1).shape[1] != 1:
                return None
            constant = torch.full_like(outputs, float(targets.mean(dtype=np.float64)))
            losses = vmap(row_loss.of_outputs)(constant, aligned(targets)).numpy()
        return float(losses.mean(dtype=np.float64))

    def outputs(self, weights: F64 | F32, rows: NDArray[Any]) -> F32:
        """What the module says about some rows, one row of numbers per row."""
        with one_thread(), self._copies.lend() as own, naming_the_layer(own.module):
            found = self._outputs(RowLoss(own.module, own.loss), weights, shaped(rows, self._input_shape))
        return np.asarray(found.flatten(1).detach().numpy())

    def state_dict(self, weights: F64 | F32) -> dict[str, torch.Tensor]:
        """The trained module's state, for ``module.load_state_dict``; what is not trained is as it was."""
        return copy.deepcopy(dict(self._module.state_dict())) | self._named(weights)

    def _named(self, weights: F64 | F32) -> Parameters:
        """Flat weights as parameters by name."""
        if getattr(weights, "shape", None) != (self.dimensions,):
            got = getattr(weights, "shape", type(weights).__name__)
            raise ParameterError(f"weights must be {self.dimensions} numbers, got {got}")
        flat = aligned(np.asarray(weights, dtype=np.float32))
        parts = flat.split([shape.numel() for shape in self._shapes.values()])
        return {name: part.reshape(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}

    def _of_group(self, row_loss: RowLoss, parameters: Parameters, users: Users) -> F32:
        """Updates of a group of users; an error that real rows bring about names the layer too."""
        try:
            return np.asarray(row_loss.updates(parameters, users, self._local).detach().numpy())
        # A stranger's module and loss may raise anything.
        except Exception:
            with naming_the_layer(row_loss.module, "loss:"):
                return np.asarray(row_loss.updates(parameters, users, self._local).detach().numpy())

    def _outputs(self, row_loss: RowLoss, weights: F64 | F32, rows: F32) -> torch.Tensor:
        """Outputs of all rows, each a batch of one: (rows, 1, ...)."""
        parameters = self._named(weights)
        of_rows = vmap(lambda row: row_loss.outputs(parameters, row))
        return torch.cat([of_rows(part) for part in aligned(rows).split(_ROWS_AT_ONCE)])

    def _targets(self, row_loss: RowLoss, rows: F32, labels: NDArray[Any]) -> NDArray[Any]:
        """Labels as the loss takes them, once the module is known to fit them and rows of this shape."""
        is_class = not np.issubdtype(labels.dtype, np.floating)
        kind = rows.shape[1:], is_class
        with self._lock:
            if kind not in self._checked:
                self._checked[kind] = check_row(row_loss, self._named(self._start), *kind, self._local)
        if is_class:
            check_labels(labels, self._checked[kind])
        return labels.astype(np.int64 if is_class else np.float32)

    def _layout(self, row_loss: RowLoss, goal: int, shape: tuple[int, ...], kind: np.dtype[Any]) -> Layout:
        """How users with so many rows are put together; tried once."""
        with self._lock:
            key = goal, shape, kind.name
            if key not in self._layouts:
                self._layouts[key] = self._try(row_loss, goal, shape, kind)
            return self._layouts[key]

    def _try(self, row_loss: RowLoss, goal: int, shape: tuple[int, ...], kind: np.dtype[Any]) -> Layout:
        random, classes = torch.Generator().manual_seed(1), self._checked[shape, kind == np.int64]
        away = torch.randn(self.dimensions, generator=random).numpy()
        parameters = self._named(self._start + np.float32(_TRIAL_DISTANCE) * away)

        def make(*size: int) -> Users:
            reals, labels = torch.randn(size, generator=random), torch.randint(classes, size, generator=random)
            targets = labels if kind == np.int64 else reals
            return Users(torch.rand((*size, *shape), generator=random), targets, torch.full(size, 1 / size[1]))

        compute = partial(row_loss.updates, parameters, local=self._local)
        with naming_the_layer(row_loss.module, "loss:"):
            return find_layout(goal, self.dimensions, make, compute)


def _padded_users(rows: F32, targets: NDArray[Any], offsets: I64, who: NDArray[np.intp], length: int) -> Users:
    """These users' rows, each padded with the user's own first row to ``length``; padding has no share."""
    own = np.arange(length) < (offsets[who + 1] - offsets[who])[:, None]
    index = offsets[who][:, None] + np.where(own, np.arange(length), 0)
    shares = (own / own.sum(axis=1, keepdims=True)).astype(np.float32)
    return Users(aligned(rows[index]), aligned(targets[index]), aligned(shares))
