"""Layers that cannot be trained privately user by user, or frozen: each is named, with the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from apes.errors import ParameterError

_RANDOM_POOLS = torch.nn.FractionalMaxPool2d, torch.nn.FractionalMaxPool3d


def check_layers(module: torch.nn.Module) -> None:
    """Raise for what is not a module, and for layers whose rows depend on other rows, on chance, or on the past."""
    if not isinstance(module, torch.nn.Module):
        raise ParameterError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise ParameterError(f"module: layer {name!r} is compiled by torch.jit: hand over the plain module")
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(value, UninitializedParameter | UninitializedBuffer):
            raise ParameterError(f"module must have all its parameters, got a lazy {name!r}: run one row through first")
        if value.layout != torch.strided:
            raise ParameterError(f"module must have dense parameters, got {name!r} of {value.layout}: call .to_dense()")
        if value.device.type != "cpu":
            raise ParameterError(f"module must be on the CPU, got {name!r} on {value.device}: call module.cpu() first")
    for name, layer in module.named_modules():
        fault = _fault(layer)
        if fault is not None:
            raise ParameterError(f"module: {named(module, name)} {fault}")


def _fault(layer: torch.nn.Module) -> str | None:
    """What is wrong with one layer, and the remedy; None where nothing is."""
    if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
        return "mixes rows of a batch: use torch.nn.GroupNorm, or its fixed running statistics (layer.eval())"
    if isinstance(layer, _NormBase) and layer.training and layer.track_running_stats:
        return "keeps statistics of the data: use track_running_stats=False, or freeze it (layer.eval())"
    is_dropout = isinstance(layer, _DropoutNd) and layer.p > 0
    if layer.training and (is_dropout or isinstance(layer, torch.nn.RReLU)):
        return "draws random numbers: remove it, or switch it off (layer.eval())"
    return "draws random numbers: use another pooling" if isinstance(layer, _RANDOM_POOLS) else None


def named(module: torch.nn.Module, name: str) -> str:
    """A layer, for a message: its name within the module, and its kind."""
    kind = type(module.get_submodule(name)).__name__
    return f"layer {name!r} ({kind})" if name else f"the module itself ({kind})"


@contextmanager
def naming_the_layer(module: torch.nn.Module, outside: str = "") -> Iterator[None]:
    """Turn what a layer raises, or does to its buffers, into an error that names it; for one thread's own copy.

    What is raised outside of the module is put down to ``outside``, if that is given.
    """
    within: list[str] = []
    handles = []
    for name, layer in module.named_modules():
        handles.append(layer.register_forward_pre_hook(lambda *_, name=name: within.append(name)))
        handles.append(layer.register_forward_hook(lambda *_: [within.pop(), None][1]))
    before = {name: value.clone() for name, value in module.named_buffers()}
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:  # a stranger's forward may raise anything
        _check_buffers(module, before)
        place = outside if outside and not within else f"module: {named(module, within[-1] if within else '')}"
        raise ParameterError(f"{place} {_reason(error)}") from error
    finally:
        for handle in handles:
            handle.remove()
    _check_buffers(module, before)


def _check_buffers(module: torch.nn.Module, before: dict[str, torch.Tensor]) -> None:
    for name, value in module.named_buffers():
        old = before.get(name)
        if old is None or old.shape != value.shape or not torch.equal(old.nan_to_num(), value.nan_to_num()):
            place = named(module, name.rpartition(".")[0])
            raise ParameterError(f"module: {place} changes its buffer {name!r}: use a layer without memory")


def _reason(error: Exception) -> str:
    """What torch said, in one line; what is said often, in plain words."""
    said = " ".join(str(error).split())
    if "randomness" in said:
        return "draws random numbers: remove it, or switch it off (layer.eval())"
    if "inplace" in said or "in-place" in said or said.startswith("output with shape"):
        return f"works in place, which cannot be done for many users at once: write it out of place ({said[:120]})"
    return f"cannot run on rows for many users at once: {said[:240] or type(error).__name__}"
