"""The same bits: what results must have in common, and which layer is to blame if they have not."""

from itertools import zip_longest

import torch

from apes.errors import ParameterError
from apes.torch_modules.layers import named


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two float32 tensors are equal to the last bit."""
    # As integers: NaN does not equal itself, and zeros of both signs are equal.
    return bool(torch.equal(left.view(torch.int32), right.view(torch.int32)))


def are_close(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are the same but for roundings."""
    largest = float(right.nan_to_num().abs().max()) if right.numel() else 0.0
    return bool(torch.allclose(left, right, rtol=1e-3, atol=1e-4 * largest, equal_nan=True))


def check_repeats(module: torch.nn.Module, rows: torch.Tensor) -> None:
    """Raise if a module gives other outputs for the same rows the second time; names the first layer that does."""
    for first, second in zip_longest(_outputs_by_layer(module, rows), _outputs_by_layer(module, rows)):
        if first is None or second is None or not torch.equal(first[1].nan_to_num(), second[1].nan_to_num()):
            place = named(module, (first or second)[0])
            raise ParameterError(f"module: {place} gives other outputs every time: remove what is random in it")


def _outputs_by_layer(module: torch.nn.Module, rows: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Outputs of all layers, innermost first."""
    found: list[tuple[str, torch.Tensor]] = []

    def note(name: str, output: object) -> None:
        if isinstance(output, torch.Tensor):
            found.append((name, output.clone()))

    handles = [
        layer.register_forward_hook(lambda *parts, name=name: note(name, parts[-1]))
        for name, layer in module.named_modules()
    ]
    try:
        module(rows)
    finally:
        for handle in handles:
            handle.remove()
    return found
