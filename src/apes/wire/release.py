"""What the shuffler hands to the analyzer for a round, as bytes: a receipt, which it signed, and counts. No budgets."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.errors import ProtocolError
from apes.mathematics.arrays import I64
from apes.wire.frames import first_frame, framed
from apes.wire.receipt import Receipt

ROUND = "/v1/runs/{run}/rounds/{number}"
"""Where a round is, by HTTP: a batch of framed reports is sent there, and the release is to be had."""
ANNOUNCEMENT = f"{ROUND}/announcement"
"""Where its announcement is sent first."""


@dataclass(frozen=True, eq=False)
class Release:
    """One round's answer of the shuffler."""

    receipt: Receipt
    counts: I64  # coordinates x levels; every row adds up to the users

    @classmethod
    def of(cls, receipt: Receipt, counts: I64, key: Ed25519PrivateKey) -> "Release":
        """A release of these counts, of which the receipt says the rest; shape and digest are filled in, and signed."""
        shape = counts.shape[0], counts.shape[1]
        sha256 = hashlib.sha256(_bytes(counts, receipt.users)).hexdigest()
        return cls(replace(receipt, shape=shape, counts=sha256).signed(key), counts)

    def encode(self) -> bytes:
        """The release as bytes: a frame with the receipt's line, then counts (uint16 or uint32)."""
        return b"".join([*framed([self.receipt.line().encode()]), _bytes(self.counts, self.receipt.users)])

    @classmethod
    def decode(cls, data: bytes) -> "Release":
        """Read a release, checking that it is whole and agrees with itself; who signed it is not checked yet."""
        receipt, numbers = receipt_of(data), first_frame(data)[1]
        if hashlib.sha256(numbers).hexdigest() != receipt.counts:
            raise ProtocolError("the shuffler's answer is damaged: its counts are not those of its receipt")
        try:
            counts = np.frombuffer(numbers, _kind(receipt.users)).reshape(receipt.shape).astype(np.int64)
        except ValueError as error:
            raise ProtocolError(f"the shuffler's answer is not a release: {error}") from None
        if not counts.size or (counts.sum(axis=1) != receipt.users).any():
            raise ProtocolError("the shuffler's answer is damaged: its counts do not add up to its users")
        return cls(receipt, counts)


def receipt_of(release: bytes) -> Receipt:
    """The receipt of an encoded release."""
    return Receipt.read(first_frame(release)[0])


def _bytes(counts: I64, users: int) -> bytes:
    return counts.astype(_kind(users)).tobytes()


def _kind(users: int) -> str:
    return "<u2" if users < 2**16 else "<u4"
