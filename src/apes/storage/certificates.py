"""Certificates in files: when they end, said in words, and a month before."""

import datetime
from pathlib import Path

from cryptography import x509

from apes.errors import DataError

WARNING = datetime.timedelta(days=30)
"""How long before its end a certificate is warned of."""
_REMEDY = "renew with: apes federation renew FOLDER"


def read_certificates(file: Path) -> list[x509.Certificate]:
    """All certificates in a PEM file, whatever else it holds; at least one."""
    try:
        return parse_certificates(file.read_bytes(), file)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def parse_certificates(data: bytes, file: Path) -> list[x509.Certificate]:
    """All certificates in what a PEM file held."""
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def last_end(file: Path) -> datetime.datetime:
    """When the last of a file's certificates ends, UTC: where there are several, each of them will do."""
    return max(certificate.not_valid_after_utc for certificate in read_certificates(file))


def about_end(whose: str, end: datetime.datetime) -> str | None:
    """What is to be said of a certificate's end; None if it is more than a month away."""
    now = datetime.datetime.now(datetime.UTC)
    if end - now > WARNING:
        return None
    return f"{whose} certificate {'ended' if has_ended(end) else 'ends'} on {end:%Y-%m-%d %H:%M} UTC; {_REMEDY}"


def has_ended(end: datetime.datetime) -> bool:
    """Whether a certificate is no longer good for anything."""
    return end <= datetime.datetime.now(datetime.UTC)


def check_end(whose: str, file: Path) -> str | None:
    """Raise if what is in a file has ended; return a warning if it will within a month."""
    said = about_end(whose, end := last_end(file))
    if said is not None and has_ended(end):
        raise DataError(said)
    return said
