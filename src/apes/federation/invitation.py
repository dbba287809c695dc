"""The invitation: all that a user needs to know to join, public, and signed by who invites.

A signature says that everything in it is from one hand; whose hand that is, the fingerprint says, if it is compared by
another channel: it covers the content, the key that signed it included.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from apes.checks import address, hex_names
from apes.errors import DataError
from apes.federation.fingerprints import fingerprint
from apes.federation.terms import FederationTerms
from apes.storage.certificates import parse_certificates
from apes.storage.settings import read_settings
from apes.wire.envelope import RUN_BYTES

INVITATION, TERMS, AUTHORITY = "invitation.json", "terms.json", "authority.pem"
_PURPOSE = b"apes invitation 1\n"


@dataclass(frozen=True)
class Invitation:
    """Who is who in a federation; keys and digests are 64 hexadecimal digits each."""

    run: str  # in hexadecimal
    superlink: str  # host and port
    terms: str  # digest of the terms beside it
    authority: str  # SHA-256 of the public key that certificates are signed with
    shuffler_key: str  # X25519 public key that reports are sealed to
    receipts_key: str  # Ed25519 public key that the shuffler signs receipts with
    analyzer_key: str  # Ed25519 public key that the analyzer signs announcements with
    organiser_key: str  # Ed25519 public key that this is signed with
    signature: str = ""  # by it, over everything before

    def __post_init__(self) -> None:
        hex_names("run", (self.run,), RUN_BYTES)
        address("superlink", self.superlink)
        for name in ("terms", "authority", "shuffler_key", "receipts_key", "analyzer_key", "organiser_key"):
            hex_names(name, (getattr(self, name),), 32)

    @property
    def fingerprint(self) -> str:
        """The content in 32 hexadecimal digits, in groups of 4: to be compared by another channel."""
        return fingerprint(self._content())

    def signed(self, organiser: Ed25519PrivateKey) -> "Invitation":
        """The invitation with the organiser's signature."""
        whole = replace(self, organiser_key=organiser.public_key().public_bytes_raw().hex())
        return replace(whole, signature=organiser.sign(whole._content()).hex())

    @property
    def is_signed(self) -> bool:
        """Whether the organiser that it names signed it."""
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.organiser_key))
        try:
            key.verify(bytes.fromhex(self.signature), self._content())
        except (InvalidSignature, ValueError):
            return False
        return True

    def _content(self) -> bytes:
        plain = asdict(self)
        del plain["signature"]
        return _PURPOSE + json.dumps(plain, sort_keys=True).encode()


class Received(NamedTuple):
    """An invitation with what is beside it, as it was read, once: all of it is what was signed.

    Attributes:
        invitation: Who is who.
        terms: What is agreed to.
        authority: The certificates to trust, PEM.
    """

    invitation: Invitation
    terms: FederationTerms
    authority: bytes


def read_invitation(folder: Path) -> Received:
    """Read an invitation and the files beside it, each once; refused unless all of it is what was signed."""
    invitation = read_settings(folder / INVITATION, Invitation)
    if not invitation.is_signed:
        raise DataError(f"{folder / INVITATION} is not signed by the organiser that it names: do not join")
    terms = FederationTerms.read(folder / TERMS)
    if terms.digest != invitation.terms:
        raise DataError(f"{folder / TERMS} are not the terms that the organiser signed: do not join")
    file = folder / AUTHORITY
    try:
        authority = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from None
    if authority_digest(authority, file) != invitation.authority:
        raise DataError(f"{file} is not the authority that the organiser signed: do not join")
    return Received(invitation, terms, authority)


def authority_digest(certificates: bytes, file: Path) -> str:
    """SHA-256 of an authority's public key, in hexadecimal: a renewed certificate of the same key has the same.

    All certificates (PEM) that are in its file are trusted, so all of them have to be of this one key.
    """
    keys = {
        found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for found in parse_certificates(certificates, file)
    }
    if len(keys) != 1:
        raise DataError(f"{file} holds certificates of {len(keys)} authorities, and has to be of one")
    return hashlib.sha256(keys.pop()).hexdigest()
