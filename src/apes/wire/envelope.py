"""Sealed reports: what leaves a vault, what an untrusted relay carries, what only the shuffler can open.

An envelope is, byte after byte::

    magic     4  b"APES"
    version   2  3
    run      16  which training run
    round     4  which round of it, from 1
    terms    32  digest of the terms under which the report was made
    announcement 32  digest of the announcement that it answers (`apes.wire.announcement`)
    sender   32  Ed25519 public key of the user
    sealed   48 + 8 + d   HPKE (RFC 9180, base mode): the budget as float64, then a level per coordinate;
                          ceil(d / 8) in place of d where there are two levels (`apes.wire.packing`)
    signature 64  Ed25519 over everything before it

Numbers are little-endian. HPKE runs X25519, HKDF-SHA256 and AES-128-GCM; everything before ``sealed`` is its ``info``,
so a sealed report opens only under the run, round, terms, announcement and sender that it was made for: nobody can pass
it off as another's, as one on other weights, or replay it elsewhere. All envelopes under the same terms have the same
size, whatever is in them.
"""

import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from apes.checks import whole
from apes.errors import ParameterError, ProtocolError
from apes.wire.packing import packed_size

VERSION = 3
RUN_BYTES = 16
TERMS_BYTES = 32
ANNOUNCEMENT_DIGEST_BYTES = 32
SENDER_BYTES = 32
_MAGIC = b"APES"
_HEADER = struct.Struct(f"<4sH{RUN_BYTES}sI{TERMS_BYTES}s{ANNOUNCEMENT_DIGEST_BYTES}s{SENDER_BYTES}s")
_BUDGET = struct.Struct("<d")
SIGNATURE_BYTES = 64
# X25519's encapsulated key and AES-GCM's tag.
SEAL_BYTES = 32 + 16
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


@dataclass(frozen=True)
class Binding:
    """What a report is good for, and nothing else."""

    run: bytes
    round: int  # in [1, 2^32)
    terms: bytes
    announcement: bytes  # digest

    def __post_init__(self) -> None:
        sizes = {"run": RUN_BYTES, "terms": TERMS_BYTES, "announcement": ANNOUNCEMENT_DIGEST_BYTES}
        for name, size in sizes.items():
            if len(getattr(self, name)) != size:
                raise ParameterError(f"{name} must have {size} bytes, got {len(getattr(self, name))}")
        whole("round", self.round, 1, 2**32 - 1)


@dataclass(frozen=True)
class Envelope:
    """A report that nobody but the shuffler can open."""

    binding: Binding
    sender: bytes
    sealed: bytes
    signature: bytes

    def is_signed(self, key: Ed25519PublicKey) -> bool:
        """Whether the holder of ``key`` signed exactly this envelope."""
        try:
            key.verify(self.signature, _header(self.binding, self.sender) + self.sealed)
        except InvalidSignature:
            return False
        return True

    def open(self, key: X25519PrivateKey) -> tuple[float, bytes]:
        """Open what was sealed to this key, by this sender, for this binding: budget and report, not checked yet."""
        try:
            plain = SUITE.decrypt(self.sealed, key, _header(self.binding, self.sender))
        except InvalidTag:
            raise ProtocolError("a sealed report does not open") from None
        (budget,) = _BUDGET.unpack_from(plain)
        return budget, plain[_BUDGET.size :]


def envelope_size(dimensions: int, levels: int) -> int:
    """Bytes of an envelope with a report on ``dimensions`` coordinates, of ``levels`` levels each."""
    return _HEADER.size + SEAL_BYTES + _BUDGET.size + packed_size(dimensions, levels) + SIGNATURE_BYTES


def seal(report: bytes, budget: float, binding: Binding, key: Ed25519PrivateKey, shuffler: X25519PublicKey) -> bytes:
    """Seal one user's report, packed, for the shuffler and sign it; the key's public half names the sender.

    The budget has to be the one that the user enrolled with; nobody but the shuffler sees it.
    """
    header = _header(binding, key.public_key().public_bytes_raw())
    sealed = SUITE.encrypt(_BUDGET.pack(budget) + report, shuffler, header)
    return header + sealed + key.sign(header + sealed)


def parse(data: bytes, dimensions: int, levels: int) -> Envelope:
    """Take an envelope of this version and size apart without opening it."""
    size = envelope_size(dimensions, levels)
    if len(data) != size:
        raise ProtocolError(f"an envelope has {size} bytes here, got {len(data)}")
    magic, version, run, number, terms, announcement, sender = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != VERSION or number == 0:
        raise ProtocolError("not an envelope of this version")
    sealed, signature = data[_HEADER.size : -SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    return Envelope(Binding(run, number, terms, announcement), sender, sealed, signature)


def _header(binding: Binding, sender: bytes) -> bytes:
    bound = binding.run, binding.round, binding.terms, binding.announcement
    return _HEADER.pack(_MAGIC, VERSION, *bound, sender)


def written_sender(data: bytes) -> bytes:
    """Whom an envelope says that it is from, not checked; fewer bytes than a key's if it is too short to say."""
    return data[_HEADER.size - SENDER_BYTES : _HEADER.size]
