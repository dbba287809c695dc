"""Announcements: what the analyzer signs before a round, and the only thing that vaults answer.

An announcement is, byte after byte::

    magic      4  b"APEA"
    version    2  1
    run       16  which training run
    round      4  which round of it, from 1
    terms     32  digest of the terms
    weights   32  SHA-256 of the weights, as little-endian float32 numbers
    previous  32  digest of the release before it (`apes.wire.receipt`); zeros where there is none
    signature 64  Ed25519 over everything before it, by the analyzer's key

Numbers are little-endian. Its digest is that of everything but the signature: who signs the same twice has announced it
once. Reports are bound to it, so reports on other weights, or on another history, never count together.
"""

import hashlib
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apes.checks import whole
from apes.errors import ParameterError, ProtocolError
from apes.wire.envelope import RUN_BYTES, SIGNATURE_BYTES, TERMS_BYTES, Binding

DIGEST_BYTES = 32
FIRST = bytes(DIGEST_BYTES)
"""What stands for the release before the first."""
_VERSION = 1
_MAGIC = b"APEA"
_CONTENT = struct.Struct(f"<4sH{RUN_BYTES}sI{TERMS_BYTES}s{DIGEST_BYTES}s{DIGEST_BYTES}s")
ANNOUNCEMENT_BYTES = _CONTENT.size + SIGNATURE_BYTES


@dataclass(frozen=True)
class Announcement:
    """One round, as the analyzer announces it; not signed."""

    run: bytes
    round: int  # in [1, 2^32)
    terms: bytes
    weights: bytes  # SHA-256
    previous: bytes  # digest of the release before it

    def __post_init__(self) -> None:
        sizes = {"run": RUN_BYTES, "terms": TERMS_BYTES, "weights": DIGEST_BYTES, "previous": DIGEST_BYTES}
        for name, size in sizes.items():
            if len(getattr(self, name)) != size:
                raise ParameterError(f"{name} must have {size} bytes, got {len(getattr(self, name))}")
        whole("round", self.round, 1, 2**32 - 1)

    @property
    def digest(self) -> bytes:
        """SHA-256 of what is announced."""
        return hashlib.sha256(self._content()).digest()

    @property
    def binding(self) -> Binding:
        """What reports in this round are good for."""
        return Binding(self.run, self.round, self.terms, self.digest)

    def is_of(self, weights: bytes) -> bool:
        """Whether these are the weights that are announced."""
        return hashlib.sha256(weights).digest() == self.weights

    def signed(self, key: Ed25519PrivateKey) -> bytes:
        """The announcement as bytes; the same ones every time."""
        return self._content() + key.sign(self._content())

    def _content(self) -> bytes:
        return _CONTENT.pack(_MAGIC, _VERSION, self.run, self.round, self.terms, self.weights, self.previous)


class Unsigned(ProtocolError):  # noqa: N818 - the name says what it is
    """What claims to be an announcement was not signed by the analyzer."""


def parse_announcement(data: bytes, analyzer: Ed25519PublicKey) -> Announcement:
    """Read an announcement of this version.

    Raises:
        Unsigned: If it has the form of one, but not the analyzer's signature.
        ProtocolError: If it has not even the form.
    """
    if len(data) != ANNOUNCEMENT_BYTES:
        raise ProtocolError(f"an announcement has {ANNOUNCEMENT_BYTES} bytes, got {len(data)}")
    magic, version, run, number, terms, weights, previous = _CONTENT.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or number == 0:
        raise ProtocolError("not an announcement of this version")
    try:
        analyzer.verify(data[_CONTENT.size :], data[: _CONTENT.size])
    except InvalidSignature:
        raise Unsigned("the announcement is not signed by the analyzer") from None
    return Announcement(run, number, terms, weights, previous)
