"""Fingerprints: what two people read to one another to see that both have the same invitation."""

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from apes.errors import DataError, ParameterError

BYTES = 16
"""Length of a fingerprint: nobody finds another invitation with the same one."""


def fingerprint(data: bytes) -> str:
    """The first 16 bytes of SHA-256, as groups of four hexadecimal digits.

    >>> fingerprint(b"")
    'e3b0 c442 98fc 1c14 9afb f4c8 996f b924'
    """
    digits = hashlib.sha256(data).hexdigest()[: 2 * BYTES]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def fingerprints(invitation: Any, terms: str, authority: Path) -> dict[str, str]:
    """Fingerprints of an invitation and of what it names: every key, and the certificate of the authority.

    That of the invitation covers all the others, and the digest of the terms.
    """
    try:
        certificate = x509.load_pem_x509_certificate(authority.read_bytes()).public_bytes(Encoding.DER)
    except (OSError, ValueError) as error:
        raise DataError(f"{authority} cannot be read: {error}") from None
    content = json.dumps([asdict(invitation), terms, certificate.hex()], sort_keys=True)
    found = {"invitation": fingerprint(content.encode()), "authority's certificate": fingerprint(certificate)}
    for name in (entry.name for entry in fields(invitation) if entry.name.endswith("_key")):
        found[f"{name.removesuffix('_key')}'s key"] = fingerprint(bytes.fromhex(getattr(invitation, name)))
    return found


def check_fingerprint(expected: str, found: str) -> None:
    """Raise unless somebody was told this fingerprint by another channel; spaces, colons and case do not matter."""
    told = "".join(expected.split()).replace(":", "").replace("-", "").lower()
    if len(told) != 2 * BYTES or not set(told) <= set("0123456789abcdef"):
        raise ParameterError(f"fingerprint must be {2 * BYTES} hexadecimal digits, got {expected!r}")
    if told != found.replace(" ", ""):
        raise DataError(f"the invitation's fingerprint is {found}, not the one that you were told: do not join")
