"""Sealed budgets: for one run, under its terms, by one node, from one user; nobody but the shuffler reads them."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from apes.errors import ProtocolError
from apes.wire.enrolment import ENROLMENT_BYTES, Enrolment, open_budget, seal_budget

USER, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
SENDER, STRANGER = (key.public_key().public_bytes_raw() for key in (USER, OTHER))
SHUFFLER = X25519PrivateKey.generate()
ENROLMENT = Enrolment(bytes(range(16)), bytes(range(32)), "ssh-ed25519 AAAA node")
SEALED = seal_budget(0.3, ENROLMENT, USER, SHUFFLER.public_key())


def refused(data, enrolment=ENROLMENT, sender=SENDER, key=SHUFFLER):
    with pytest.raises(ProtocolError, match=r"^a sealed budget"):
        open_budget(data, enrolment, sender, key)


def test_a_sealed_budget_is_opened():
    assert open_budget(SEALED, ENROLMENT, SENDER, SHUFFLER) == 0.3


@pytest.mark.parametrize("budget", [1e-300, 1.0, 1e300])
def test_size_says_nothing(budget):
    assert len(seal_budget(budget, ENROLMENT, USER, SHUFFLER.public_key())) == ENROLMENT_BYTES == 120


@pytest.mark.parametrize(
    "change",
    [{"run": bytes(16)}, {"terms": bytes(32)}, {"node": "ssh-ed25519 BBBB node"}],
    ids=["run", "terms", "node"],
)
def test_it_is_bound(change):
    """Not even the user's own signature on the same sealed part carries it elsewhere."""
    elsewhere = replace(ENROLMENT, **change)
    refused(SEALED, elsewhere)
    sealed = SEALED[:-64]
    refused(sealed + USER.sign(elsewhere.bound(SENDER) + sealed), elsewhere)


def test_nobody_gives_somebody_another_budget():
    """Nor takes somebody's for their own."""
    refused(seal_budget(9.0, ENROLMENT, OTHER, SHUFFLER.public_key()))
    refused(SEALED, sender=STRANGER)
    sealed = SEALED[:-64]
    refused(sealed + OTHER.sign(ENROLMENT.bound(STRANGER) + sealed), sender=STRANGER)


def test_only_the_shuffler_opens():
    refused(SEALED, key=X25519PrivateKey.generate())


def test_every_flipped_bit_is_seen():
    for place in range(len(SEALED)):
        changed = bytearray(SEALED)
        changed[place] ^= 1 << place % 8
        refused(bytes(changed))


@pytest.mark.parametrize("data", [b"", SEALED[:-1], SEALED + b"\0", bytes(ENROLMENT_BYTES)])
def test_what_is_no_sealed_budget(data):
    refused(data)
