"""Enrolment: a user's budget, sealed to the shuffler for one run, on the card that asks to be admitted.

It is HPKE's (`apes.wire.envelope`) ``sealed``, 48 + 8 bytes with the budget as float64, and the user's signature, 64
bytes, over what it is bound to (magic, run, terms, SHA-256 of the node's key, sender) and the sealed part. So the card
is public, whoever carries it can neither read a budget, nor give somebody another one, nor bring somebody with a node
of their own, and all sealed budgets have the same size.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from apes.errors import ProtocolError
from apes.wire.envelope import RUN_BYTES, SEAL_BYTES, SENDER_BYTES, SIGNATURE_BYTES, SUITE, TERMS_BYTES

_MAGIC = b"APEB"
_VERSION = 2
_BOUND = struct.Struct(f"<4sH{RUN_BYTES}s{TERMS_BYTES}s32s{SENDER_BYTES}s")
_BUDGET = struct.Struct("<d")
ENROLMENT_BYTES: Final = SEAL_BYTES + _BUDGET.size + SIGNATURE_BYTES


@dataclass(frozen=True)
class Enrolment:
    """What users enrol for, and the node by which their reports come."""

    run: bytes
    terms: bytes  # digest
    node: str  # public key, one line of OpenSSH's format

    def bound(self, sender: bytes) -> bytes:
        """What a sender's budget is bound to."""
        node = hashlib.sha256(self.node.encode()).digest()
        return _BOUND.pack(_MAGIC, _VERSION, self.run, self.terms, node, sender)


def seal_budget(budget: float, enrolment: Enrolment, key: Ed25519PrivateKey, shuffler: X25519PublicKey) -> bytes:
    """Seal a user's budget for the shuffler and sign it; the key's public half names the user."""
    bound = enrolment.bound(key.public_key().public_bytes_raw())
    sealed = SUITE.encrypt(_BUDGET.pack(budget), shuffler, bound)
    return sealed + key.sign(bound + sealed)


def open_budget(data: bytes, enrolment: Enrolment, sender: bytes, key: X25519PrivateKey) -> float:
    """Open a sealed budget that this sender enrolled with; whether it is taken is not checked yet."""
    bound = enrolment.bound(sender)
    sealed, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    if len(data) != ENROLMENT_BYTES:
        raise ProtocolError(f"a sealed budget has {ENROLMENT_BYTES} bytes, got {len(data)}")
    try:
        Ed25519PublicKey.from_public_bytes(sender).verify(signature, bound + sealed)
        (budget,) = _BUDGET.unpack(SUITE.decrypt(sealed, key, bound))
    except (InvalidSignature, InvalidTag):
        raise ProtocolError("a sealed budget is not this sender's for this run, this shuffler and this node") from None
    return float(budget)
