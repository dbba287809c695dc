"""One thread inside torch: with more, its sums come in another order, and the users' blocks have all cores already."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray


class _Inside:
    """How many blocks are inside torch now, and how many threads it had before the first of them."""

    def __init__(self) -> None:
        self.lock, self.count, self.before = Lock(), 0, 1


_inside = _Inside()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread per operation; blocks on several threads of ours may be inside at once.

    One part of torch's setting belongs to the calling thread, another to the process. So every block sets it when it
    comes in, and only the last one out puts it back.
    """
    with _inside.lock:
        if _inside.count == 0:
            _inside.before = torch.get_num_threads()
        _inside.count += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _inside.lock:
            _inside.count -= 1
            if _inside.count == 0:
                torch.set_num_threads(_inside.before)


def aligned(values: NDArray[np.generic]) -> torch.Tensor:
    """A copy in torch's own memory, which begins at a multiple of 64 bytes.

    NumPy's begins anywhere, and matrix products choose their order of summation by where their arguments lie.
    """
    # Through a writable view: torch warns of any other, even though it is only read here.
    return torch.tensor(values) if not values.flags.writeable else torch.from_numpy(values).clone()
