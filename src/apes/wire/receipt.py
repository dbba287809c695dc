"""Receipts: what the shuffler signs of every release, so that others can say what was released and what it cost.

A receipt names the round, what it answered (the announcement), how many reports are in it and the release before it.
Its digest is SHA-256 of all that is signed, hence of the release: the counts are in it by their own SHA-256. Receipts
of a run are a chain, in which nothing can be left out, put in or changed without the shuffler's key. The root of a hash
tree over the reports in it lets every sender check that theirs is among them (`apes.wire.inclusion`). Receipts of
version 1 have no root; they are read and checked as ever.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apes.checks import hex_names, whole
from apes.errors import ParameterError, ProtocolError
from apes.wire.announcement import DIGEST_BYTES, FIRST
from apes.wire.envelope import RUN_BYTES, TERMS_BYTES

_PURPOSE = b"apes receipt 2\n"
_PURPOSE_WITHOUT_ROOT = b"apes receipt 1\n"
_DIGESTS = ("announcement", "roster", "counts", "previous")


@dataclass(frozen=True)
class Receipt:
    """What a release is of; digests and names in hexadecimal."""

    run: str
    round: int  # from 1
    terms: str
    announcement: str  # digest of what the reports answer
    roster: str  # digest of the run's roster (`apes.wire.roster`)
    users: int  # whose reports counted, at least 1
    later: int  # members that were admitted after the roster was fixed, whether they are in it or not
    shape: tuple[int, int]  # coordinates and levels
    counts: str  # SHA-256 of the counts' bytes
    previous: str  # digest of the run's receipt before it; zeros where there is none
    refused: dict[str, int] = field(default_factory=dict)  # reports that did not count, by reason
    included: str = ""  # root of the tree over the reports in it; none in receipts of version 1
    signature: str = ""

    def __post_init__(self) -> None:
        hex_names("run", (self.run,), RUN_BYTES)
        hex_names("terms", (self.terms,), TERMS_BYTES)
        for name in _DIGESTS:
            hex_names(name, (getattr(self, name),), DIGEST_BYTES)
        if self.included != "":
            hex_names("included", (self.included,), DIGEST_BYTES)
        for name, least in (("round", 1), ("users", 1), ("later", 0)):
            whole(name, getattr(self, name), least)
        if not isinstance(self.refused, dict) or not isinstance(self.signature, str) or len(self.shape) != 2:
            raise ParameterError("refused must be counts by reason, signature a text, shape two numbers")
        for name, value in (*zip(("dimensions", "levels"), self.shape, strict=True), *self.refused.items()):
            whole(name, value, 0)

    @property
    def digest(self) -> str:
        """SHA-256 of what is signed, in hexadecimal."""
        return hashlib.sha256(self._content()).hexdigest()

    def signed(self, key: Ed25519PrivateKey) -> "Receipt":
        """The receipt with the shuffler's signature."""
        return replace(self, signature=key.sign(self._content()).hex())

    def check(self, shuffler: Ed25519PublicKey) -> None:
        """Raise unless the shuffler signed it."""
        try:
            shuffler.verify(bytes.fromhex(self.signature), self._content())
        except (InvalidSignature, ValueError):
            raise ProtocolError(f"the receipt of round {self.round} is not signed by the shuffler") from None

    def line(self) -> str:
        """The receipt as one line of JSON."""
        # Reasons in order of their names: the order in which they came must not show.
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, line: str | bytes) -> "Receipt":
        """Read a line back; whether it is signed is not checked yet."""
        try:
            plain: dict[str, Any] = json.loads(line)
            if {*plain} | {"included"} != {entry.name for entry in fields(cls)}:
                raise ProtocolError("not a receipt of this version")
            return cls(**{**plain, "shape": tuple(plain["shape"])})
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, ParameterError) as error:
            raise ProtocolError(f"not a receipt: {error}") from None

    def _content(self) -> bytes:
        plain = asdict(self)
        del plain["signature"]
        purpose = _PURPOSE
        if not self.included:
            del plain["included"]
            purpose = _PURPOSE_WITHOUT_ROOT
        return purpose + json.dumps(plain, sort_keys=True).encode()


def check_next(receipt: Receipt, previous: Receipt | None, shuffler: Ed25519PublicKey) -> None:
    """Raise unless the shuffler signed a receipt, and signed it as the next one after ``previous``, or the first."""
    receipt.check(shuffler)
    before = FIRST.hex() if previous is None else previous.digest
    is_later = previous is None or (receipt.run == previous.run and receipt.round > previous.round)
    if receipt.previous != before or not is_later:
        raise ProtocolError(f"the receipt of round {receipt.round} does not follow on the one before it")
