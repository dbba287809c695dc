"""What a torch module has to be to be trained: its parameters, and what comes out for one row."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch.func import vmap
from torch.nn import functional

from apes.checks import finite
from apes.errors import ParameterError
from apes.models.logistic import FedProx
from apes.models.torch_users import Loss, Parameters, RowLoss, Users
from apes.torch_modules.layers import naming_the_layer


def trained(module: torch.nn.Module) -> Parameters:
    """The parameters that are trained, detached, by name; or an error that names the one that cannot be."""
    names: dict[int, str] = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        if names.setdefault(id(value), name) != name:
            both = f"{names[id(value)]!r} and {name!r}"
            raise ParameterError(f"module must not have tied parameters, got {both}: use one layer at both places")
        if value.dtype != torch.float32:
            raise ParameterError(f"module must have float32 parameters, got {name!r} of {value.dtype}: call .float()")
        finite(name, value.detach().numpy())
    found = {name: value.detach().clone() for name, value in module.named_parameters() if value.requires_grad}
    if not found:
        of = "only frozen ones (requires_grad)" if names else "none"
        raise ParameterError(f"module must have parameters to train, got {of} in {type(module).__name__}")
    return found


def check_loss(loss: Loss) -> None:
    """Raise for what is not a loss, for one that would be trained itself, and for weights that would do nothing."""
    if not callable(loss):
        raise ParameterError(f"loss must be callable as loss(outputs, targets), got {type(loss).__name__}")
    if isinstance(loss, torch.nn.Module) and any(value.requires_grad for value in loss.parameters()):
        remedy = "put them into the module, or freeze them (loss.requires_grad_(False))"
        raise ParameterError(f"loss must have no parameters to train, got {type(loss).__name__}: {remedy}")
    weighted, names = getattr(loss, "keywords", {}), ("weight", "reduction")
    if isinstance(loss, torch.nn.CrossEntropyLoss | torch.nn.NLLLoss):
        weighted = {name: getattr(loss, name) for name in names}
    elif getattr(loss, "func", None) not in (functional.cross_entropy, functional.nll_loss):
        return
    if weighted.get("weight") is not None and weighted.get("reduction", "mean") == "mean":
        why = "the mean over a batch of one row divides by the row's own weight"
        raise ParameterError(f"loss must have reduction='sum' with weights of classes, got 'mean': {why}")


def check_row(
    row_loss: RowLoss, parameters: Parameters, shape: tuple[int, ...], is_class: bool, local: FedProx | None
) -> int:
    """Run one row of zeros through module, loss and gradient; return how many numbers come out."""
    row, kind = torch.zeros((1, 1, *shape)), torch.int64 if is_class else torch.float32
    with naming_the_layer(row_loss.module):
        outputs = vmap(lambda each: row_loss.outputs(parameters, each))(row[0])[0]
        _check_outputs(tuple(outputs.shape), is_class)
    with naming_the_layer(row_loss.module, "loss:"):
        row_loss.updates(parameters, Users(row, torch.zeros((1, 1), dtype=kind), torch.ones((1, 1))), local)
    return int(outputs.numel())


def _check_outputs(shape: tuple[int, ...], is_class: bool) -> None:
    if is_class and (len(shape) != 2 or shape[0] != 1 or shape[1] < 2):
        raise ParameterError(
            f"module must give a score per class for a row, shape (1, classes), got {shape}; real targets are floats"
        )
    if not is_class and shape not in ((1,), (1, 1)):
        raise ParameterError(f"module must give one number per row for real-valued targets, (1, 1), got shape {shape}")


def check_labels(labels: NDArray[Any], classes: int) -> None:
    """Raise unless all labels are classes that the module knows: torch's kernels index by them."""
    if labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < classes:
        got = f"{labels.min()} to {labels.max()}" if labels.dtype.kind in "iu" else labels.dtype
        raise ParameterError(f"labels must be in [0, {classes - 1}], the module's outputs, got {got}")
