"""A frozen torch module as a feature map, so that only a head on top of it is trained."""

import json
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch.func import vmap

from apes.checks import positive
from apes.data.scale import ROW_NORM
from apes.errors import ParameterError
from apes.mathematics.arrays import F32
from apes.torch_modules.bits import are_close, check_repeats, same_bits
from apes.torch_modules.copies import copied
from apes.torch_modules.digest import content_digest
from apes.torch_modules.layers import check_layers, naming_the_layer
from apes.torch_modules.one_thread import aligned, one_thread
from apes.torch_modules.rows import checked_shape, shaped
from apes.torch_modules.watch import Watch

_ROWS_AT_ONCE = 64
# Rows of a trial that go through alone, too.
_ALONE = 3


class Frozen:
    """A torch module in eval mode with all its parameters and buffers as they are: public, the same for everybody.

    The module must not have been trained on the users' data. It is copied, and runs on the CPU. It sees every row as a
    batch of one, many at once by ``torch.func.vmap`` where that gives the same bits at every place, else one by one: so
    no row can see another, and what a module would keep from one row for the next is refused.

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
        # Layers are looked at in the mode that they run in.
        modes = {layer: layer.training for layer in module.modules()}
        try:
            check_layers(module.eval())
        finally:
            for layer, mode in modes.items():
                layer.training = mode
        self._module = copied(module, "module").eval().requires_grad_(False)
        self._input_shape, self._norm = checked_shape(input_shape), None if norm is None else positive("norm", norm)
        choices = {"input_shape": self._input_shape, "norm": self._norm}
        self._digest = json.dumps(["frozen", choices | content_digest(self._module, "module")], sort_keys=True)
        self._rows_at_once: dict[tuple[int, ...], int] = {}
        self._lock, self._watch = Lock(), Watch(module=self._module)
        if self._input_shape is not None:
            self(np.zeros((1, *self._input_shape), dtype=np.float32))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_watch")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock(), _watch=Watch(module=state["_module"]))

    @property
    def digest(self) -> str:
        """Code, layers, all parameters and buffers, scale; and torch's version, which rules the bits."""
        return self._digest

    def __call__(self, rows: F32) -> F32:
        """Features of some rows, one float32 row per row."""
        rows = shaped(rows, self._input_shape)
        with one_thread(), torch.no_grad():
            with self._lock:
                if rows.shape[1:] not in self._rows_at_once:
                    self._rows_at_once[rows.shape[1:]] = self._try(rows.shape[1:])
            size = self._rows_at_once[rows.shape[1:]]
            starts = range(0, len(rows), size)
            parts = [self._watched(_batch(rows[start : start + size], size)) for start in starts]
            return np.asarray(torch.cat(parts)[: len(rows)].numpy())

    def _watched(self, rows: torch.Tensor) -> torch.Tensor:
        """Features of real rows: an error names the layer, and nothing may be kept of them."""
        try:
            found = self._features(self._module, rows)
        except ParameterError:
            raise
        # A stranger's module may raise anything.
        except Exception:
            own = copied(self._module, "module")
            with naming_the_layer(own):
                found = self._features(own, rows)
        self._watch.check()
        return found

    def _features(self, module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
        def of_row(row: torch.Tensor) -> torch.Tensor:
            # A copy: the module may work in place.
            return _checked(module(row[None].clone()), 1).reshape(-1)

        return self._scaled((vmap(of_row)(rows) if len(rows) > 1 else of_row(rows[0])[None]).float())

    def _scaled(self, features: torch.Tensor) -> torch.Tensor:
        if self._norm is None:
            return features
        # In float64, so that squares do not overflow; a row of zeros stays one.
        lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True, dtype=torch.float64)
        return features * torch.where(lengths > 0, self._norm / lengths, 0.0).float()

    def _try(self, shape: tuple[int, ...]) -> int:
        """Rows to run at once: as many as are the same bits at every place; refuses a module that is no map of rows."""
        rows = torch.rand((_ROWS_AT_ONCE, *shape), generator=torch.Generator().manual_seed(1))
        own = copied(self._module, "module")
        watch = Watch(module=own)
        with naming_the_layer(own):
            check_repeats(own, rows[:2].clone())
            alone = torch.cat([self._features(own, row) for row in rows[:_ALONE].split(1)])
            together = _checked(own(rows[:_ALONE].clone()), _ALONE).reshape(_ALONE, -1).float()
            if not torch.isfinite(together).all() or not together.shape[1]:
                raise ParameterError(f"module must give finite features, got {together.flatten()[:3].tolist()}")
            if not are_close(alone, self._scaled(together)):
                raise ParameterError("module must treat each row by itself, got other features in other company")
        watch.check()
        return _ROWS_AT_ONCE if self._is_steady(own, rows, alone) else 1

    def _is_steady(self, module: torch.nn.Module, rows: torch.Tensor, alone: torch.Tensor) -> bool:
        """Whether many rows at once give what one gives, and the same bits at every place."""
        try:
            expected = self._features(module, rows)
            orders = torch.arange(_ROWS_AT_ONCE).roll(1), torch.arange(_ROWS_AT_ONCE).flip(0)
            is_same = all(same_bits(self._features(module, rows[order]), expected[order]) for order in orders)
        # What looks at its rows, to branch on them, say, cannot run on many at once.
        except Exception:
            return False
        return is_same and are_close(alone, expected[:_ALONE])


def _checked(outputs: Any, rows: int) -> torch.Tensor:
    """What a module returned, if it has an entry of real numbers for each row."""
    if not isinstance(outputs, torch.Tensor) or outputs.ndim < 1 or len(outputs) != rows or outputs.is_complex():
        is_tensor = isinstance(outputs, torch.Tensor)
        got = f"{outputs.dtype} of shape {tuple(outputs.shape)}" if is_tensor else type(outputs).__name__
        raise ParameterError(f"module must return a tensor with an entry per row, {rows}, got {got}")
    return outputs


def _batch(rows: F32, size: int) -> torch.Tensor:
    """Rows in a batch of one size; the places that are left hold them again."""
    return aligned(rows[np.arange(size) % len(rows)])
