"""Text that tells a torch module or a loss from any other: code, settings, numbers, and all else that it reaches."""

import hashlib
import inspect
from typing import Any

import numpy as np
import torch

from apes.torch_modules.reach import Words, walk


def content_digest(root: Any, name: str) -> dict[str, str]:
    """What a module or loss computes, in two words: the same in every process with the same code and the same torch.

    Raises:
        ParameterError: For an attribute that cannot be told from others; names it.
    """
    digest = hashlib.sha256()
    for place, word, _ in walk(root, name, _WORDS):
        digest.update(f"{place}\0{word}\n".encode())
    return {"torch": ".".join(torch.__version__.split(".")[:2]), name: digest.hexdigest()}


def _code(code: Any) -> str:
    """Qualified name, and the SHA-256 of the source; of the compiled code too where several may share a line."""
    name = f"{code.__module__}.{code.__qualname__}"
    try:
        text = inspect.getsource(code).encode()
    except (OSError, TypeError):
        text = b""
    if inspect.isfunction(code) and (not text or code.__name__ == "<lambda>"):
        text += _compiled(code.__code__)
    return f"{name} {hashlib.sha256(text).hexdigest()}"


def _compiled(code: Any) -> bytes:
    """A function's instructions, names and constants, those of functions inside it too."""
    constants = (sorted(value, key=repr) if isinstance(value, frozenset) else value for value in code.co_consts)
    inner = (_compiled(value) if inspect.iscode(value) else repr(value).encode() for value in constants)
    return b"\0".join([code.co_code, repr(code.co_names).encode(), *inner])


def _content(value: Any) -> str:
    if isinstance(value, np.ndarray):
        kind, shape, data = value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes()
    else:
        plain = value.detach().cpu().contiguous()
        kind, shape = f"{value.dtype} {value.requires_grad}", tuple(value.shape)
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{type(value).__name__} {kind} {shape} {hashlib.sha256(data).hexdigest()}"


_WORDS = Words(_content, _code)
