"""A roster as bytes: budgets in order of size, as the shuffler signed them."""

import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.errors import ParameterError, ProtocolError
from apes.wire.roster import Roster

SHUFFLER = Ed25519PrivateKey.generate()
ROSTER = Roster("ab" * 16, "cd" * 32, np.array([0.5, 0.1, 0.9, 0.1])).signed(SHUFFLER)


def test_a_roster_comes_back_without_an_order():
    back = Roster.decode(ROSTER.encode())
    back.check(SHUFFLER.public_key())
    assert (back.run, back.terms, back.budgets.tolist()) == ("ab" * 16, "cd" * 32, [0.1, 0.1, 0.5, 0.9])
    assert back.digest == ROSTER.digest
    assert Roster("ab" * 16, "cd" * 32, np.array([0.1, 0.9, 0.1, 0.5])).signed(SHUFFLER).encode() == ROSTER.encode()


def test_whatever_is_changed_is_seen():
    data = ROSTER.encode()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(ProtocolError):
            Roster.decode(bytes(changed)).check(SHUFFLER.public_key())
    with pytest.raises(ProtocolError, match="not signed"):
        ROSTER.check(Ed25519PrivateKey.generate().public_key())


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"null", b"\xff", 10_000 * b"["])
def test_what_is_no_roster(text):
    with pytest.raises(ProtocolError):
        Roster.decode(struct.pack("<I", len(text)) + text + bytes(32))


@pytest.mark.parametrize("budgets", [[], [0.0], [-1.0], [np.nan], [np.inf]])
def test_budgets_are_budgets(budgets):
    with pytest.raises(ParameterError, match="budgets"):
        Roster("ab" * 16, "cd" * 32, np.array(budgets))
