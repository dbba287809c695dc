"""Connecting to a Dask scheduler: whoever answers in its place is refused in one line, within seconds."""

import gc
import logging
import socket
import sys
from urllib.parse import urlsplit

from apes.errors import WorkersError
from apes.training.crews.dask_cluster import ANSWER, DaskCluster

# What is in the first words of everybody who speaks for Dask, and how long these are at the most, in bytes.
_PASSWORD, _LONGEST_GREETING = b"pickle-protocol", 1 << 16


def connect(address: str) -> DaskCluster:
    """The cluster of a scheduler that answers."""
    from distributed import Client

    try:
        _check_certificates(address)
        _check_speaks(address)
        # What it logs of a connection that is lost is said once more, as the error.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        client = Client(address, timeout=ANSWER, set_as_default=False)
    # Whoever speaks something like Dask's language may make it fail in any way.
    except Exception as error:
        said = nobody_answers(address, "a Dask scheduler (`dask scheduler`)", error)
        _let_go(error)
        raise WorkersError(said) from None
    return DaskCluster(client, is_own=True)


def _let_go(error: Exception) -> None:
    """Let go of a client that never began, which the error holds: as it ends, it complains on its own."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda complaint: None
    try:
        error.__traceback__ = error.__cause__ = error.__context__ = None
        gc.collect()
    finally:
        sys.unraisablehook = hook


def _check_certificates(address: str) -> None:
    """Raise a ValueError if an address asks for certificates, and Dask was not told which."""
    from distributed.security import Security

    if urlsplit(address).scheme == "tls" and Security().get_connection_args("client").get("ssl_context") is None:
        raise ValueError("tls needs Dask's settings distributed.comm.tls.ca-file, .client.cert and .client.key")


def _check_speaks(address: str) -> None:
    """Raise an OSError unless somebody is there who speaks first, as schedulers do, and in their words.

    Dask itself waits for ever for one who takes a connection and says nothing, and makes room for as many bytes as a
    stranger's first eight say. Under TLS nobody speaks first.
    """
    place = urlsplit(address)
    if place.scheme != "tcp":
        return
    with socket.create_connection((place.hostname, place.port), timeout=ANSWER) as probe:
        said = b""
        while _PASSWORD not in said:
            try:
                more = probe.recv(_LONGEST_GREETING)
            except TimeoutError:
                more = b""
            said += more
            if not more or len(said) > _LONGEST_GREETING:
                raise ConnectionError("whoever is there does not speak as Dask does" if said else "nothing was said")


def nobody_answers(address: str, what: str, error: object) -> str:
    """What to say of an address where nobody is."""
    said = str(error).strip() or type(error).__name__
    return f"cluster must be the address of {what} that answers within {ANSWER:g} s, got {address!r}: {said}"
