"""Certificates that others serve: why a connection failed, or will in a month, in words."""

import contextlib
import datetime
import socket
import ssl

from cryptography import x509

from apes.storage.certificates import about_end

_SECONDS = 10.0
# OpenSSL's number for a certificate whose time is over.
_HAS_EXPIRED = 10


def why_refused(error: BaseException, whose: str, host: str, port: int) -> str | None:
    """Say that the certificate of a server has ended, if that is why it could not be talked to; None if it is not.

    Args:
        error: What connecting raised; what caused that is looked at as well.
        whose: The server in words, ``the shuffler's``.
        host: Where it is: the date comes from the certificate that it serves, of which nothing else is believed.
        port: There.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code == _HAS_EXPIRED:
            end = _served_end(host, port)
            return f"{whose} or the authority's certificate has ended" if end is None else about_end(whose, end)
        cause = cause.__cause__ or cause.__context__
    return None


def warning_of(connection: ssl.SSLObject | ssl.SSLSocket | None, whose: str) -> str | None:
    """Warn of a connection's server if its certificate ends within a month; None if it has hung up by now."""
    if connection is None:
        return None
    # By position: httpx hands out OpenSSL's own object, which knows no names.
    shown = connection.getpeercert(True)
    return None if shown is None else about_end(whose, x509.load_der_x509_certificate(shown).not_valid_after_utc)


def _served_end(host: str, port: int) -> datetime.datetime | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError, ValueError), socket.create_connection((host, port), _SECONDS) as plain:
        with context.wrap_socket(plain) as connection:
            shown = connection.getpeercert(binary_form=True)
            return None if shown is None else x509.load_der_x509_certificate(shown).not_valid_after_utc
    return None
