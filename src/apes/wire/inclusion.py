r"""Inclusion: a proof, for a report's sender and nobody else, that the report is among those that a receipt counts.

The shuffler puts the reports of a release into a hash tree (RFC 9162, 2.1) and its root into the receipt, which it
signs. A leaf is, hashed behind the byte 0::

    purpose        b"apes inclusion 1\n"
    run       16  which training run
    round      4  which round of it, little-endian
    announcement 32  digest of the announcement that the report answers
    blinding  32  a secret of the shuffler's for this report alone
    report    32  SHA-256 of the sealed report, as its sender sent it

A node is, behind the byte 1, its two children; so no node can pass for a leaf. Leaves stand in order of their hashes.
As these are blinded, neither the place of a leaf nor the hashes beside it tell anything about another's report, not
even to somebody who has all sealed reports: the relay, say. The tree has as many leaves as the receipt counts reports,
and every place takes one leaf's proof, so no more senders than that can be given one.

What is asked, byte after byte::

    magic      4  b"APEI"
    version    2  1
    run       16  which training run
    round      4  which round of it, from 1
    report    32  SHA-256 of the sealed report
    sender    32  Ed25519 public key of the user who sent it
    signature 64  Ed25519 over everything before it, by that key

The answer is a frame with the receipt's line, then one byte (whether it is included), the blinding, the leaf's place
(4 bytes) and the hashes beside its way up, filled with zeros. All answers about a release have the same size.
"""

import hashlib
import hmac
import struct
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apes.checks import whole
from apes.errors import ParameterError, ProtocolError
from apes.wire.envelope import RUN_BYTES, SENDER_BYTES, SIGNATURE_BYTES, Binding
from apes.wire.frames import first_frame, framed
from apes.wire.receipt import Receipt
from apes.wire.release import ROUND

INCLUSION = f"{ROUND}/inclusion"
"""Where a sender asks for the proof, by HTTP."""
HASH_BYTES = 32
_LEAF, _NODE = b"\x00", b"\x01"
_PURPOSE = b"apes inclusion 1\n"
_BLINDING = b"apes inclusion blinding 1\n"
_MAGIC, _VERSION = b"APEI", 1
_REQUEST = struct.Struct(f"<4sH{RUN_BYTES}sI{HASH_BYTES}s{SENDER_BYTES}s")
_PROOF = struct.Struct(f"<?{HASH_BYTES}sI")
_ROUND = struct.Struct("<I")
REQUEST_BYTES = _REQUEST.size + SIGNATURE_BYTES


def report_digest(report: bytes) -> bytes:
    """SHA-256 of a sealed report, as its sender sent it."""
    return hashlib.sha256(report).digest()


def leaf_of(binding: Binding, report: bytes, blinding: bytes) -> bytes:
    """The leaf of a sealed report with this digest."""
    bound = binding.run + _ROUND.pack(binding.round) + binding.announcement
    return hashlib.sha256(_LEAF + _PURPOSE + bound + blinding + report).digest()


def blinding_of(secret: bytes, binding: Binding, report: bytes) -> bytes:
    """What blinds the leaf of a report: the same every time, and unknown to everybody without the secret."""
    bound = binding.run + _ROUND.pack(binding.round) + binding.announcement
    key = hmac.digest(secret, _BLINDING + bound, "sha256")
    return hmac.digest(key, report, "sha256")


class ReportTree:
    """The hash tree over the leaves of a release, at least one of them; the order in which they come is forgotten."""

    def __init__(self, leaves: Iterable[bytes]) -> None:
        self._rows = [sorted(leaves)]
        if not self._rows[0]:
            raise ParameterError("leaves must be at least one, got none")
        while len(self._rows[-1]) > 1:
            row = self._rows[-1]
            above = [_node(*row[place : place + 2]) for place in range(0, len(row) - 1, 2)]
            # One without a neighbour goes up as it is.
            self._rows.append(above + row[len(row) // 2 * 2 :])

    @property
    def root(self) -> bytes:
        """The hash that stands for all leaves."""
        return self._rows[-1][0]

    def path(self, leaf: bytes) -> tuple[int, list[bytes]] | None:
        """A leaf's place, and the hashes beside its way up to the root; None if it is not there."""
        row = self._rows[0]
        place = bisect_left(row, leaf)
        if place == len(row) or row[place] != leaf:
            return None
        path, here = [], place
        for row in self._rows[:-1]:
            beside = here ^ 1
            if beside < len(row):
                path.append(row[beside])
            here //= 2
        return place, path


def root_above(leaf: bytes, place: int, leaves: int, path: list[bytes]) -> bytes:
    """The root of a tree of so many leaves, one of which is known by its place and the hashes beside its way up.

    Raises:
        ProtocolError: If there are more or fewer hashes than such a tree has beside this way.
    """
    if not 0 <= place < leaves or len(path) != _path_length(place, leaves):
        raise ProtocolError("the proof is not of a tree with as many leaves as the receipt has reports")
    node, last, beside = leaf, leaves - 1, iter(path)
    while last > 0:
        if place % 2:
            node = _node(next(beside), node)
        elif place < last:
            node = _node(node, next(beside))
        place, last = place // 2, last // 2
    return node


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


def _path_length(place: int, leaves: int) -> int:
    last, length = leaves - 1, 0
    while last > 0:
        length += place % 2 or place < last
        place, last = place // 2, last // 2
    return length


@dataclass(frozen=True)
class InclusionRequest:
    """A sender's question whether a report counted; digests and keys as bytes."""

    run: bytes
    round: int
    report: bytes
    sender: bytes

    def __post_init__(self) -> None:
        for name, size in (("run", RUN_BYTES), ("report", HASH_BYTES), ("sender", SENDER_BYTES)):
            if len(getattr(self, name)) != size:
                raise ParameterError(f"{name} must have {size} bytes, got {len(getattr(self, name))}")
        whole("round", self.round, 1, 2**32 - 1)

    @classmethod
    def signed(cls, run: bytes, number: int, report: bytes, key: Ed25519PrivateKey) -> bytes:
        """The question of the sender with this key, as bytes."""
        request = cls(run, number, report, key.public_key().public_bytes_raw())
        return request._content() + key.sign(request._content())

    @classmethod
    def parse(cls, data: bytes) -> "InclusionRequest":
        """Read a question; ProtocolError unless its sender signed it."""
        if len(data) != REQUEST_BYTES:
            raise ProtocolError(f"a question about a report has {REQUEST_BYTES} bytes, got {len(data)}")
        magic, version, run, number, report, sender = _REQUEST.unpack_from(data)
        if magic != _MAGIC or version != _VERSION or number == 0:
            raise ProtocolError("not a question about a report, of this version")
        try:
            Ed25519PublicKey.from_public_bytes(sender).verify(data[_REQUEST.size :], data[: _REQUEST.size])
        except InvalidSignature:
            raise ProtocolError("the question about a report is not signed by its sender") from None
        return cls(run, number, report, sender)

    def _content(self) -> bytes:
        return _REQUEST.pack(_MAGIC, _VERSION, self.run, self.round, self.report, self.sender)


@dataclass(frozen=True)
class Inclusion:
    """The answer: a release's receipt, and the proof that a report is in it, or that there is none.

    Attributes:
        receipt: What the shuffler signed of the release.
        is_included: Whether the shuffler says that the report counted.
        blinding: That of the report's leaf.
        place: Of the leaf among all of them.
        path: The hashes beside its way up to the root.
    """

    receipt: Receipt
    is_included: bool = False
    blinding: bytes = bytes(HASH_BYTES)
    place: int = 0
    path: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """The answer as bytes, of one size for all reports of the release."""
        proof = _PROOF.pack(self.is_included, self.blinding, self.place) + b"".join(self.path)
        longest = _PROOF.size + HASH_BYTES * _depth(self.receipt.users)
        return b"".join(framed([self.receipt.line().encode()])) + proof.ljust(longest, b"\x00")

    @classmethod
    def decode(cls, data: bytes) -> "Inclusion":
        """Read an answer; nothing of it is checked yet but its form."""
        line, rest = first_frame(data)
        receipt = Receipt.read(line)
        proof = bytes(rest)
        if len(proof) != _PROOF.size + HASH_BYTES * _depth(receipt.users):
            raise ProtocolError("the answer about a report is damaged: it has not the size of its receipt's")
        is_included, blinding, place = _PROOF.unpack_from(proof)
        hashes = proof[_PROOF.size :]
        length = HASH_BYTES * (_path_length(place, receipt.users) if is_included and place < receipt.users else 0)
        if any(hashes[length:]):
            raise ProtocolError("the answer about a report is damaged: it is not filled with zeros")
        path = tuple(hashes[start : start + HASH_BYTES] for start in range(0, length, HASH_BYTES))
        return cls(receipt, is_included, blinding, place, path)

    def check(self, binding: Binding, report: bytes, shuffler: Ed25519PublicKey) -> bool:
        """Whether it proves that the sealed report with this digest is among those that the receipt counts.

        Guarantee:
            True only if the shuffler signed the receipt, the receipt is of the round, terms and announcement that the
            report was made for, and its root is above the report's leaf in a tree of as many leaves as it counts
            reports. That the counts are the sum of these reports is not proved.

        Raises:
            ProtocolError: If the answer is not the shuffler's, is about another round, or claims a proof that is none.
        """
        self.receipt.check(shuffler)
        named = self.receipt.run, self.receipt.round, self.receipt.terms, self.receipt.announcement
        if named != (binding.run.hex(), binding.round, binding.terms.hex(), binding.announcement.hex()):
            raise ProtocolError("the answer about a report has the receipt of another round, or of other terms")
        if not self.is_included:
            return False
        if not self.receipt.included:
            raise ProtocolError(f"the receipt of round {self.receipt.round} has no root: an earlier version made it")
        leaf = leaf_of(binding, report, self.blinding)
        if root_above(leaf, self.place, self.receipt.users, list(self.path)).hex() != self.receipt.included:
            raise ProtocolError("the proof does not hold: the report is not below the root that the shuffler signed")
        return True


def _depth(leaves: int) -> int:
    """Most hashes beside a way up."""
    return (leaves - 1).bit_length()
