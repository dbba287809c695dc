"""Compilation of inner loops: one place for numba's options, with the functions' own types kept.

Compiled functions release the interpreter lock, so that blocks of users run on all cores, and are cached on disk.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar, cast

from numba import njit
from threadpoolctl import ThreadpoolController

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function with strict floating-point arithmetic."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def compiled_reordering(function: F) -> F:
    """Compile a function whose sums may be reordered and fused, as vector instructions need.

    The order is fixed when the function is compiled: the same input gives the same bits, whichever block it is in.
    """
    return cast(F, njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})(function))


def inlined(function: F) -> F:
    """Compile a small function into its callers."""
    return cast(F, njit(inline="always", error_model="numpy")(function))


def quiet_blas() -> AbstractContextManager[object]:
    """Keep BLAS to one thread: with more, its sums come in another order, and they spin on the users' cores."""
    return cast(AbstractContextManager[object], _libraries().limit(limits=1, user_api="blas"))


# Looking for them takes two milliseconds.
_libraries = cache(ThreadpoolController)
