"""A frozen torch module as a feature map, so that only a head on top of it is trained."""

import copy
import json
from threading import Lock
from typing import Any

import numpy as np
import torch

from apes.checks import positive
from apes.data.scale import ROW_NORM
from apes.errors import ParameterError
from apes.mathematics.arrays import F32
from apes.torch_modules.bits import check_repeats, same_bits
from apes.torch_modules.digest import module_digest
from apes.torch_modules.layers import check_layers, naming_the_layer
from apes.torch_modules.one_thread import aligned, one_thread
from apes.torch_modules.rows import checked_shape, shaped

_ROWS_AT_ONCE = 64


class Frozen:
    """A torch module in eval mode with all its parameters and buffers as they are: public, the same for everybody.

    The module must not have been trained on the users' data. It is copied, and runs on the CPU; a row's features are
    the same bits in whichever company, for which rows go through in batches of one size, or one by one where the
    places of a batch differ.

    Args:
        module: Takes a batch of rows and returns a tensor with an entry per row, which is flattened.
        input_shape: Shape of one row as the module takes it; by default as users have it.
        norm: L2 norm that every row of features is scaled to, in (0, inf); None leaves them as they are.
    """

    def __init__(
        self, module: torch.nn.Module, input_shape: tuple[int, ...] | None = None, norm: float | None = ROW_NORM
    ) -> None:
        if not isinstance(module, torch.nn.Module):
            raise ParameterError(f"module must be a torch.nn.Module, got {type(module).__name__}")
        self._module = copy.deepcopy(module).eval().requires_grad_(False)
        check_layers(self._module)
        self._input_shape, self._norm = checked_shape(input_shape), None if norm is None else positive("norm", norm)
        choices = {"input_shape": self._input_shape, "norm": self._norm}
        self._digest = json.dumps(["frozen", choices | module_digest(self._module)], sort_keys=True)
        self._rows_at_once: dict[tuple[int, ...], int] = {}
        self._lock = Lock()
        if self._input_shape is not None:
            self(np.zeros((1, *self._input_shape), dtype=np.float32))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    @property
    def digest(self) -> str:
        """Code, layers, all parameters and buffers, scale; and torch's version, which rules the bits."""
        return self._digest

    def __call__(self, rows: F32) -> F32:
        """Features of some rows, one float32 row per row."""
        rows = shaped(rows, self._input_shape)
        with one_thread(), torch.inference_mode():
            with self._lock:
                if rows.shape[1:] not in self._rows_at_once:
                    self._rows_at_once[rows.shape[1:]] = self._try(rows.shape[1:])
            size = self._rows_at_once[rows.shape[1:]]
            starts = range(0, len(rows), size)
            parts = [self._features(_batch(rows[start : start + size], size)) for start in starts]
            return np.asarray(torch.cat(parts)[: len(rows)].numpy())

    def _features(self, rows: torch.Tensor) -> torch.Tensor:
        outputs = self._module(rows)
        if not isinstance(outputs, torch.Tensor) or outputs.ndim < 1 or len(outputs) != len(rows):
            got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, torch.Tensor) else type(outputs).__name__
            raise ParameterError(f"module must return a tensor with an entry per row, {len(rows)}, got {got}")
        features = outputs.reshape(len(rows), -1).float()
        if self._norm is None:
            return features
        # In float64, so that squares do not overflow; a row of zeros stays one.
        lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=torch.float64)
        return features * torch.where(lengths > 0, self._norm / lengths, 0.0).float()

    def _try(self, shape: tuple[int, ...]) -> int:
        """Rows to run at once: as many as are the same bits at every place; refuses a module that is no map of rows."""
        rows = torch.rand((_ROWS_AT_ONCE, *shape), generator=torch.Generator().manual_seed(1))
        with naming_the_layer(self._module):
            check_repeats(self._module, rows[:2])
            expected = self._features(rows)
            few = torch.cat([self._features(row) for row in rows[:3].split(1)])
            if not torch.allclose(few, expected[:3], rtol=1e-3, atol=1e-4 * float(expected.abs().max())):
                raise ParameterError("module must treat each row by itself, got other features in other company")
            orders = torch.arange(_ROWS_AT_ONCE).roll(1), torch.arange(_ROWS_AT_ONCE).flip(0)
            is_steady = all(same_bits(self._features(rows[order]), expected[order]) for order in orders)
        return _ROWS_AT_ONCE if is_steady else 1


def _batch(rows: F32, size: int) -> torch.Tensor:
    """Rows in a batch of one size; the places that are left hold them again."""
    return aligned(rows[np.arange(size) % len(rows)])
