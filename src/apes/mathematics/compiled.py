"""Compilation of inner loops: one place for numba's options, with the functions' own types kept.

Compiled functions release the interpreter lock, so that blocks of users run on all cores, and are cached on disk.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar, cast

from llvmlite.binding import get_host_cpu_name
from numba import njit
from numba.core import codegen, config
from numba.core.registry import cpu_target
from threadpoolctl import ThreadpoolController

F = TypeVar("F", bound=Callable[..., Any])
# Their clock does not fall with wide vectors, as that of older ones did, for which LLVM keeps all of them to 256 bits.
_WIDE = ("icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids")


def _use_whole_vectors() -> None:
    """Let compiled loops have all of 512-bit vectors, unless somebody chose otherwise: a tenth less time per round.

    It holds for the process, from its first compiled function on; what loops were compiled for is `processor`.
    """
    settings, host = cast(Any, config), cast(Any, codegen)
    if settings.CPU_NAME is None and settings.CPU_FEATURES is None and get_host_cpu_name() in _WIDE:
        features = host.get_host_cpu_features()
        if "+avx512vl" in features:
            settings.CPU_FEATURES = f"{features},-prefer-256-bit"


_use_whole_vectors()


@cache
def processor() -> str:
    """What loops are compiled for: where it is the same, so is the order in which they sum."""
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    return f"{triple} {name} {features}"


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


def unfolded(function: F) -> F:
    """Compile a function into its callers as `inlined` does, but in LLVM: in a tenth of the time where it is long."""
    return cast(F, njit(forceinline=True, error_model="numpy")(function))


class _Quiet:
    """Who keeps BLAS quiet now, and how to let it go again."""

    def __init__(self) -> None:
        self.lock, self.count = Lock(), 0
        self.limit: AbstractContextManager[object] | None = None


_quiet = _Quiet()


@contextmanager
def quiet_blas() -> Iterator[None]:
    """Keep BLAS to one thread: with more, its sums come in another order, and they spin on the users' cores.

    The setting belongs to the process, in which others of our threads may be inside as well (a cluster's worker may
    have several): only the last one out puts it back.
    """
    with _quiet.lock:
        if _quiet.count == 0:
            _quiet.limit = cast(AbstractContextManager[object], _libraries().limit(limits=1, user_api="blas"))
            _quiet.limit.__enter__()
        _quiet.count += 1
    try:
        yield
    finally:
        with _quiet.lock:
            _quiet.count -= 1
            if _quiet.count == 0 and _quiet.limit is not None:
                _quiet.limit.__exit__(None, None, None)


# Looking for them takes two milliseconds.
_libraries = cache(ThreadpoolController)
