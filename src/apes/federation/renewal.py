"""Renewal: new certificates for shuffler and SuperLink, and for the authority itself, by the authority's key.

Certificate and key of a server are one file, so that a crash leaves the old pair or the new one. The authority keeps
its key: whoever trusts its old certificate trusts servers with new ones until the old one ends, and files of
certificates hold both, so that there is no day on which everybody has to change at once.
"""

import datetime
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from apes.errors import DataError
from apes.federation.keys import LIFE, Authority, write_secret
from apes.federation.members import check_owner
from apes.federation.trial.layout import Layout
from apes.storage.certificates import check_end, has_ended, read_certificates
from apes.storage.files import write_bytes
from apes.storage.locks import lock

AUTHORITY_KEY = "authority.key"
"""Name of the authority's private key in the folder of who invited."""
PAIR = "tls.pem"
"""Name of a server's certificate and private key, one file."""
AUTHORITY = "authority.pem"
"""Name of what is trusted: certificates of the authority, all with its one key."""


@dataclass(frozen=True)
class Renewed:
    """When the certificates end now, UTC, by whose they are."""

    shuffler: str
    superlink: str
    authority: str


def renew(folder: Path, *, authority: bool = False, life: datetime.timedelta = LIFE) -> Renewed:
    """Give shuffler and SuperLink new certificates; if asked, first the authority.

    Killed at any moment, it leaves pairs that work, old ones or new ones; start it again.
    """
    layout = Layout(folder)
    check_owner(layout.shuffler)
    held = lock(folder / AUTHORITY_KEY)
    try:
        issuer = _authority(layout)
        if authority:
            issuer = issuer.renewed(life)
            _trust(layout, issuer)
        check_end("the authority's", layout.invitation / AUTHORITY)
        for server in (layout.shuffler, layout.superlink):
            write_pair(server / PAIR, issuer, _host(server / PAIR), life)
    finally:
        os.close(held)
    return Renewed(_end(layout.shuffler / PAIR), _end(layout.superlink / PAIR), _said(issuer.ends))


def write_pair(file: Path, authority: Authority, host: str, life: datetime.timedelta = LIFE) -> None:
    """Write certificate and private key of a server on ``host``; both appear, or neither."""
    certificate, key = authority.issue(host, life)
    write_secret(file, key + certificate)


def certificate_warnings(layout: Layout) -> list[str]:
    """Warnings of certificates that end within a month; raises if one has ended."""
    files = {
        "the authority's": layout.analyzer / AUTHORITY,
        "the shuffler's": layout.shuffler / PAIR,
        "the SuperLink's": layout.superlink / PAIR,
    }
    return [said for whose, file in files.items() if (said := check_end(whose, file)) is not None]


def _authority(layout: Layout) -> Authority:
    file = layout.folder / AUTHORITY_KEY
    try:
        key = load_pem_private_key(file.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}, the authority's key, cannot be read: {error}") from None
    newest = max(read_certificates(layout.invitation / AUTHORITY), key=lambda found: found.not_valid_after_utc)
    if not isinstance(key, EllipticCurvePrivateKey) or newest.public_key() != key.public_key():
        raise DataError(f"{file} is not the key of {layout.invitation / AUTHORITY}")
    return Authority(key, newest)


def _trust(layout: Layout, authority: Authority) -> None:
    """Have everybody here trust the new certificate, and old ones until they end."""
    old = [found for found in read_certificates(layout.invitation / AUTHORITY) if not has_ended(_ends(found))]
    both = authority.certificate() + b"".join(found.public_bytes(Encoding.PEM) for found in old)
    # In a trial, devices are here as well; elsewhere their owners take it from the invitation.
    devices = sorted((layout.folder / "devices").glob(f"**/{AUTHORITY}"))
    trusting = [folder / AUTHORITY for folder in (layout.analyzer, layout.superlink)]
    for file in (*devices, *trusting, layout.invitation / AUTHORITY):
        write_bytes(file, both)


def _host(pair: Path) -> str:
    return str(read_certificates(pair)[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _end(pair: Path) -> str:
    return _said(_ends(read_certificates(pair)[0]))


def _said(end: datetime.datetime) -> str:
    return f"{end:%Y-%m-%d %H:%M}"


def _ends(certificate: x509.Certificate) -> datetime.datetime:
    return certificate.not_valid_after_utc
