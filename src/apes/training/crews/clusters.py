"""Addresses of clusters: which kind one is of, and whether anybody is there."""

import importlib.util
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from apes.errors import ParameterError, WorkersError
from apes.training.crews.dask_connection import connect, nobody_answers
from apes.training.crews.hands import Hands
from apes.training.crews.ray_cluster import LOCAL, RayCluster
from apes.training.crews.spread import Means

_DASK, _RAY = ("tcp", "tls"), ("ray",)
# Seconds that a machine has to take a connection.
_ANSWER = 5.0


def check_address(address: str) -> None:
    """Raise unless an address is of a kind that is known."""
    if isinstance(address, str) and address == LOCAL:
        return
    forms = f"tcp://HOST:PORT (Dask), ray://HOST:PORT or {LOCAL}"
    try:
        parts = urlsplit(address)
        is_known = parts.scheme in (*_DASK, *_RAY) and bool(parts.hostname) and parts.port is not None
    except (ValueError, TypeError, AttributeError):
        is_known = False
    if not is_known:
        raise ParameterError(f"cluster must be {forms}; got {address!r}")


def connected(address: str) -> Means:
    """The workers of a cluster, all of our version; refused within seconds if nobody answers."""
    if urlsplit(address).scheme in _DASK:
        _need(("distributed",), "cluster")
        _knock(address, "a Dask scheduler (`dask scheduler`)")
        return connect(address)
    _need(("ray",), "ray")
    if address != LOCAL:
        _knock(address, "a Ray cluster's client server (`ray start --head --ray-client-server-port PORT`)")
    hall = RayCluster(address)
    try:
        size = hall.size
    except BaseException:
        hall.close()
        raise
    return Hands(hall, size)


def _need(modules: Sequence[str], extra: str) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise WorkersError(f"cluster needs {name}, which is not installed: pip install 'apes-fl[{extra}]'")


def _knock(address: str, what: str) -> None:
    """Raise unless somebody takes a connection: what comes next may wait for minutes."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_ANSWER).close()
    # A name that cannot be one is a ValueError.
    except (OSError, ValueError) as error:
        raise WorkersError(nobody_answers(address, what, error)) from None
