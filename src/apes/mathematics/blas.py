"""BLAS on one thread: with more of them its sums come in another order, and other bits."""

from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits


def quiet_blas() -> AbstractContextManager[object]:
    """Keep BLAS to one thread; others would also go on spinning after a call, on the cores that users' blocks need."""
    limit: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limit
