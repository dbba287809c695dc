"""A run's roster: the budgets of all who were enrolled when it began, without names; handed to the analyzer once.

As bytes: a frame of JSON with run, terms, number of users and the shuffler's signature, then the budgets in order of
size (little-endian float64). It never changes, so it tells nothing about who is in which round.
"""

import hashlib
import json
from dataclasses import dataclass, replace

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apes.checks import positive_array
from apes.errors import ParameterError, ProtocolError
from apes.mathematics.arrays import F64
from apes.wire.frames import first_frame, framed

ROSTER = "/v1/runs/{run}/roster"
"""Where it is to be had, by HTTP."""
_PURPOSE = b"apes roster 1\n"


@dataclass(frozen=True, eq=False)
class Roster:
    """Run and digest of the terms in hexadecimal; budgets as they are applied, in order of size."""

    run: str
    terms: str
    budgets: F64
    signature: bytes = b""

    def __post_init__(self) -> None:
        object.__setattr__(self, "budgets", np.sort(positive_array("budgets", self.budgets)))

    @property
    def digest(self) -> str:
        """SHA-256 of what is signed, in hexadecimal."""
        return hashlib.sha256(self._content()).hexdigest()

    def signed(self, key: Ed25519PrivateKey) -> "Roster":
        """The roster with the shuffler's signature."""
        return replace(self, signature=key.sign(self._content()))

    def check(self, shuffler: Ed25519PublicKey) -> None:
        """Raise unless the shuffler signed it."""
        try:
            shuffler.verify(self.signature, self._content())
        except InvalidSignature:
            raise ProtocolError("the roster is not signed by the shuffler") from None

    def encode(self) -> bytes:
        """The roster as bytes."""
        header = {"run": self.run, "terms": self.terms, "users": self.budgets.size, "signature": self.signature.hex()}
        return b"".join([*framed([json.dumps(header).encode()]), self.budgets.astype("<f8").tobytes()])

    @classmethod
    def decode(cls, data: bytes) -> "Roster":
        """Read a roster; whether it is signed is not checked yet."""
        text, numbers = first_frame(data)
        try:
            header = json.loads(text)
            budgets = np.frombuffer(numbers, "<f8").astype(np.float64)
            if budgets.size != header["users"] or (np.diff(budgets) < 0).any():
                raise ProtocolError("the roster is damaged: it has not as many budgets as users, in order of size")
            return cls(str(header["run"]), str(header["terms"]), budgets, bytes.fromhex(header["signature"]))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ParameterError) as error:
            raise ProtocolError(f"not a roster: {error}") from None

    def _content(self) -> bytes:
        return _PURPOSE + f"{self.run}\n{self.terms}\n".encode() + self.budgets.astype("<f8").tobytes()
