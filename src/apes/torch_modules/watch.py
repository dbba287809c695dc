"""A watch over a module and its loss: whatever one of them keeps from one user's rows would reach the next user's."""

import zlib
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from apes.errors import ParameterError
from apes.torch_modules.reach import Words, walk


class Watch:
    """Remembers how things are, and refuses to go on once they are otherwise."""

    def __init__(self, **watched: Any) -> None:
        self._watched = watched
        self._before = self._now()
        # Kept, so that no other object can take one's place in memory and be taken for it.
        self._kept = [value for name, root in watched.items() for _, _, value in walk(root, name, _WORDS)]

    def check(self) -> None:
        """Raise if anything changed since; names it."""
        for before, now in zip_longest(self._before, self._now(), fillvalue=("module", "")):
            if before != now:
                raise ParameterError(
                    f"{now[0] or before[0]} changes as it runs, so that one user's rows would reach another's update: "
                    "keep nothing between calls (compute it in __init__, or anew every time)"
                )

    def _now(self) -> list[tuple[str, str]]:
        return [(place, word) for name, root in self._watched.items() for place, word, _ in walk(root, name, _WORDS)]


def _which(value: Any) -> str:
    """Which array or tensor it is, and whether it was written to."""
    if isinstance(value, np.ndarray):
        return f"{id(value)} {zlib.crc32(value.tobytes())}"
    # What was made in inference mode has no version; it is another object every time.
    return f"{id(value)} {0 if torch.is_inference(value) else value._version}"


_WORDS = Words(_which, lambda code: str(id(code)))
