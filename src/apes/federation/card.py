"""The card: what a device or silo shows to be admitted. Public, since budgets are sealed to the shuffler.

Each sender signs its own budget together with the node: whoever changes senders, budgets or node of a card forges it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from apes.checks import hex_names
from apes.errors import ParameterError, ProtocolError
from apes.federation.invitation import Invitation
from apes.federation.keys import check_node
from apes.mathematics.arrays import F64
from apes.wire.enrolment import ENROLMENT_BYTES, Enrolment, open_budget, seal_budget
from apes.wire.envelope import SENDER_BYTES


@dataclass(frozen=True)
class Card:
    """A device's or silo's users and its node."""

    senders: tuple[str, ...]  # its users' signing keys, in hexadecimal
    budgets: tuple[str, ...]  # theirs, each sealed and signed (`apes.wire.enrolment`), in hexadecimal
    node: str  # its node's key, one line of OpenSSH's format

    def __post_init__(self) -> None:
        hex_names("senders", self.senders, SENDER_BYTES)
        hex_names("budgets", self.budgets, ENROLMENT_BYTES)
        check_node(self.node)
        if len(self.budgets) != len(self.senders):
            raise ParameterError(f"budgets must be one per sender, {len(self.senders)}, got {len(self.budgets)}")

    @classmethod
    def of(cls, keys: Sequence[Ed25519PrivateKey], budgets: F64, node: str, invitation: Invitation) -> "Card":
        """The card of users with these keys and budgets, as applied, for the run that they are invited to."""
        shuffler = X25519PublicKey.from_public_bytes(bytes.fromhex(invitation.shuffler_key))
        enrolment = _enrolment(invitation, node)
        sealed = (seal_budget(float(own), enrolment, key, shuffler) for key, own in zip(keys, budgets, strict=True))
        senders = tuple(key.public_key().public_bytes_raw().hex() for key in keys)
        return cls(senders, tuple(one.hex() for one in sealed), node)

    def opened(self, invitation: Invitation, shuffler: X25519PrivateKey) -> tuple[float, ...]:
        """The budgets, in the order of the senders; ParameterError if one is not its sender's for this run and node."""
        enrolment = _enrolment(invitation, self.node)
        try:
            return tuple(
                open_budget(bytes.fromhex(sealed), enrolment, bytes.fromhex(sender), shuffler)
                for sender, sealed in zip(self.senders, self.budgets, strict=True)
            )
        except ProtocolError as error:
            raise ParameterError(f"cards must be made for this invitation, and none changed since: {error}") from None


def _enrolment(invitation: Invitation, node: str) -> Enrolment:
    return Enrolment(bytes.fromhex(invitation.run), bytes.fromhex(invitation.terms), node)
