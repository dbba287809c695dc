"""The shuffler's certificate while it runs: whoever connects after a renewal gets the new one; nobody is hung up on."""

import ssl
from pathlib import Path

from apes.errors import DataError
from apes.storage.certificates import about_end, check_end, last_end
from apes.storage.json_logs import log

WHOSE = "the shuffler's"


def follow_files(first: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Have a server's context serve what the files hold, at every new connection.

    Files that do not belong together, or cannot be read, are left alone, and what was served before goes on.

    Raises:
        DataError: If the certificate has ended: nobody would connect.
    """
    warning = check_end(WHOSE, certificate)
    if warning is not None:
        log("certificate", message=warning)
    newest, seen = first, _state(certificate, key)

    # Called in every handshake, with a name or without.
    def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal newest, seen
        if (state := _state(certificate, key)) != seen:
            seen, newest = state, _renewed(newest, certificate, key)
        connection.context = newest

    first.sni_callback = choose


def _renewed(before: ssl.SSLContext, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
        log("certificate", ends=f"{last_end(certificate):%Y-%m-%d}", message=about_end(WHOSE, last_end(certificate)))
    except (OSError, DataError) as error:
        # One of two files may be new and the other not yet: then it is tried again at the next change.
        log("certificate-refused", kind=type(error).__name__)
        return before
    return context


def _state(*files: Path) -> tuple[tuple[int, int, int], ...] | None:
    """What tells a file from another that took its place; None while one is missing."""
    try:
        return tuple((found.st_ino, found.st_mtime_ns, found.st_size) for found in (file.stat() for file in files))
    except OSError:
        return None
