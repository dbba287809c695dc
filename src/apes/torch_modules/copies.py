"""Copies of a module and its loss, one per thread at a time: running one puts other parameters into it for a moment."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from apes.errors import ParameterError
from apes.torch_modules.watch import Watch

T = TypeVar("T")


def copied(value: T, name: str) -> T:
    """A copy that nobody else has; raises, with its name, where there can be none."""
    try:
        return copy.deepcopy(value)
    # What is inside may refuse in any way.
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ParameterError(f"{name} must be one that copy.deepcopy can copy, got {said}") from None


@dataclass(frozen=True, eq=False)
class Copy:
    """A module and its loss, which nobody else runs, and a watch over both."""

    module: torch.nn.Module
    loss: Callable[..., Any]
    watch: Watch


class Copies:
    """Lends copies, makes them as needed and keeps them; a pickled one has none."""

    def __init__(self, module: torch.nn.Module, loss: Callable[..., Any]) -> None:
        self._original = module, loss
        self._spare: list[Copy] = []

    def __getstate__(self) -> dict[str, object]:
        return {"_original": self._original, "_spare": []}

    @contextmanager
    def lend(self) -> Iterator[Copy]:
        """A copy that nobody else has, unchanged by whoever had it before.

        Raises:
            ParameterError: If running it changed it; names what changed.
        """
        try:
            own = self._spare.pop()
        except IndexError:
            module, loss = copied(self._original, "module")
            own = Copy(module, loss, Watch(module=module, loss=loss))
        yield own
        # Not if it was left by an error: it may have stopped half-way.
        own.watch.check()
        self._spare.append(own)
