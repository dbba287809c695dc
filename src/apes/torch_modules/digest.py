"""Text that tells a torch module from any other: its classes' code, its layers' settings, its numbers."""

import hashlib
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

_PLAIN = bool | int | float | str | None


def module_digest(module: torch.nn.Module) -> dict[str, Any]:
    """What a module computes, as plain values: the same in every process with the same code and the same torch."""
    layers = dict(module.named_modules())
    kinds = {kind for layer in layers.values() for kind in type(layer).__mro__ if issubclass(kind, torch.nn.Module)}
    return {
        "torch": ".".join(torch.__version__.split(".")[:2]),
        "classes": sorted(_code_digest(kind) for kind in kinds),
        # Addresses differ from process to process.
        "module": re.sub(r"0x[0-9a-f]+", "0x", repr(module)),
        "settings": {name: _settings(layer) for name, layer in layers.items()},
        "parameters": [[name, list(value.shape), value.requires_grad] for name, value in module.named_parameters()],
        "state": _state_sha256(module),
    }


def callable_digest(function: Callable[..., Any]) -> Any:
    """A loss as plain values: name, code, arguments that are bound to it."""
    if isinstance(function, torch.nn.Module):
        return module_digest(function)
    if isinstance(function, partial):
        bound = {name: _plain(value) for name, value in function.keywords.items()}
        return [callable_digest(function.func), [_plain(value) for value in function.args], bound]
    if not hasattr(function, "__qualname__"):
        return [_code_digest(type(function)), {name: _plain(value) for name, value in sorted(vars(function).items())}]
    cells = [_plain(cell.cell_contents) for cell in getattr(function, "__closure__", None) or ()]
    defaults = [_plain(value) for value in getattr(function, "__defaults__", None) or ()]
    return [_code_digest(function), cells, defaults]


def _code_digest(code: Any) -> str:
    """Qualified name; with the SHA-256 of its source, or of its compiled code where there is none, if not torch's."""
    name = f"{code.__module__}.{code.__qualname__}"
    if name.startswith("torch."):
        return name
    try:
        text = inspect.getsource(code).encode()
    except (OSError, TypeError):
        functions = [value for _, value in sorted(vars(code).items())] if inspect.isclass(code) else [code]
        text = b"".join(_compiled(value.__code__) for value in functions if hasattr(value, "__code__"))
    return f"{name} {hashlib.sha256(text).hexdigest()}"


def _compiled(code: Any) -> bytes:
    """A function's instructions, names and constants, those of functions inside it too."""
    constants = (sorted(value, key=repr) if isinstance(value, frozenset) else value for value in code.co_consts)
    inner = (_compiled(value) if inspect.iscode(value) else repr(value).encode() for value in constants)
    return b"\0".join([code.co_code, repr(code.co_names).encode(), *inner])


def _settings(layer: torch.nn.Module) -> dict[str, Any]:
    """Plain attributes of one layer, those that its repr may leave out."""
    own = {name: _plain(value) for name, value in vars(layer).items() if not name.startswith("_")}
    return {name: value for name, value in sorted(own.items()) if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(_bytes(value)).hexdigest()
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return value if isinstance(value, _PLAIN) else type(value).__qualname__


def _state_sha256(module: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def _bytes(value: torch.Tensor) -> bytes:
    return bytes(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
