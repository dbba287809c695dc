"""Fingerprints: what two people read to one another to see that both have the same invitation."""

import hashlib
from typing import TYPE_CHECKING

from apes.errors import DataError, ParameterError

if TYPE_CHECKING:
    from apes.federation.invitation import Invitation

BYTES = 16
"""Length of a fingerprint: nobody finds another invitation with the same one."""


def fingerprint(data: bytes) -> str:
    """The first 16 bytes of SHA-256, as groups of four hexadecimal digits.

    >>> fingerprint(b"")
    'e3b0 c442 98fc 1c14 9afb f4c8 996f b924'
    """
    return grouped(hashlib.sha256(data).hexdigest())


def grouped(digest: str) -> str:
    """The fingerprint that a SHA-256 in hexadecimal makes."""
    digits = digest[: 2 * BYTES]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def fingerprints(invitation: "Invitation") -> dict[str, str]:
    """Fingerprints of an invitation and of the keys that it names; the first covers all the others, and the terms."""
    found = {"invitation": invitation.fingerprint, "authority's key": grouped(invitation.authority)}
    keys = {
        "shuffler's key": invitation.shuffler_key,
        "receipts' key": invitation.receipts_key,
        "analyzer's key": invitation.analyzer_key,
        "organiser's key": invitation.organiser_key,
    }
    return found | {name: fingerprint(bytes.fromhex(key)) for name, key in keys.items()}


def check_fingerprint(expected: str, found: str) -> None:
    """Raise unless somebody was told this fingerprint by another channel; spaces, colons and case do not matter."""
    told = "".join(expected.split()).replace(":", "").replace("-", "").lower()
    if len(told) != 2 * BYTES or not set(told) <= set("0123456789abcdef"):
        raise ParameterError(f"fingerprint must be {2 * BYTES} hexadecimal digits, got {expected!r}")
    if told != found.replace(" ", ""):
        raise DataError(f"the invitation's fingerprint is {found}, not the one that you were told: do not join")
