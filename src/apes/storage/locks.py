"""Locks between processes, on a file beside what they guard; whoever dies lets go."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apes.errors import DataError


def lock(path: Path, *, wait: bool = False, busy: str | None = None) -> int:
    """Lock what lies at ``path`` until the descriptor that is returned is closed, or the process ends.

    ``busy`` is what to say where another process holds the lock.

    Raises:
        DataError: If another process holds the lock, unless that is to be waited for.
    """
    # Here: Windows, which does not have it, can do all that needs no lock.
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error}") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        os.close(held)
        is_busy = isinstance(error, BlockingIOError)
        if is_busy and busy is not None:
            raise DataError(busy) from None
        problem = "is in use by another process; stop it first" if is_busy else f"cannot be locked: {error}"
        raise DataError(f"{path} {problem}") from None
    return held


@contextmanager
def held(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock on what lies at ``path``, where there are locks; DataError, ``busy``, if another process does."""
    try:
        number = lock(path, busy=busy)
    except ModuleNotFoundError:
        # Windows, which has no such locks.
        yield
        return
    try:
        yield
    finally:
        os.close(number)
