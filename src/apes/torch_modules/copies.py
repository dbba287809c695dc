"""Copies of a module, one per thread at a time: running one with other parameters puts them into it for a moment."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Copies:
    """Lends copies of a module, makes them as needed and keeps them; a pickled one has none."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._spare: list[torch.nn.Module] = []

    def __getstate__(self) -> dict[str, object]:
        return {"_module": self._module, "_spare": []}

    @contextmanager
    def lend(self) -> Iterator[torch.nn.Module]:
        """A copy that nobody else has."""
        try:
            own = self._spare.pop()
        except IndexError:
            own = copy.deepcopy(self._module)
        yield own
        # Not if it was left by an error: it may have stopped half-way.
        self._spare.append(own)
