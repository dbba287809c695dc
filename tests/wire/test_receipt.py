"""Receipts and releases as bytes: a chain that the shuffler signs, and counts that belong to it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.errors import ParameterError, ProtocolError
from apes.wire.announcement import FIRST
from apes.wire.receipt import Receipt, check_next
from apes.wire.release import Release

SHUFFLER = Ed25519PrivateKey.generate()
COUNTS = np.array([[3, 5], [8, 0], [1, 7]])
# What a release fills in itself is left at zeros.
BLANK = Receipt(
    run="ab" * 16,
    round=4,
    terms="cd" * 32,
    announcement="01" * 32,
    roster="23" * 32,
    users=8,
    later=1,
    shape=(3, 2),
    counts="00" * 32,
    previous=FIRST.hex(),
    refused={"seal": 2, "level": 1},
)
RELEASE = Release.of(BLANK, COUNTS, SHUFFLER)
OTHER_CHOICES = {
    "run": "ac" * 16,
    "round": 5,
    "terms": "ce" * 32,
    "announcement": "02" * 32,
    "roster": "24" * 32,
    "users": 9,
    "later": 0,
    "shape": (2, 3),
    "counts": "11" * 32,
    "previous": "11" * 32,
    "refused": {"seal": 2},
}


def test_a_release_comes_back():
    back = Release.decode(RELEASE.encode())
    back.receipt.check(SHUFFLER.public_key())
    assert back.receipt == RELEASE.receipt
    assert (back.counts == COUNTS).all()
    assert Receipt.read(back.receipt.line()) == back.receipt


@pytest.mark.parametrize("name", OTHER_CHOICES)
def test_whatever_is_changed_is_seen(name):
    changed = replace(RELEASE.receipt, **{name: OTHER_CHOICES[name]})
    assert changed.digest != RELEASE.receipt.digest
    with pytest.raises(ProtocolError, match="is not signed by the shuffler"):
        changed.check(SHUFFLER.public_key())


def test_only_the_shuffler_signs():
    with pytest.raises(ProtocolError, match="the receipt of round 4 is not signed by the shuffler"):
        RELEASE.receipt.check(Ed25519PrivateKey.generate().public_key())
    for signature in ("", "zz", "00" * 64):
        with pytest.raises(ProtocolError, match="is not signed by the shuffler"):
            replace(RELEASE.receipt, signature=signature).check(SHUFFLER.public_key())


def next_one(**changes):
    choices = {"round": 5, "previous": RELEASE.receipt.digest} | changes
    return replace(BLANK, **choices).signed(SHUFFLER)


def test_receipts_follow_on_one_another():
    check_next(RELEASE.receipt, None, SHUFFLER.public_key())
    check_next(next_one(), RELEASE.receipt, SHUFFLER.public_key())
    check_next(next_one(round=9), RELEASE.receipt, SHUFFLER.public_key())
    wrong = [
        (next_one(), None),
        (RELEASE.receipt, RELEASE.receipt),
        (next_one(previous=FIRST.hex()), RELEASE.receipt),
        (next_one(previous="11" * 32), RELEASE.receipt),
        (next_one(round=4), RELEASE.receipt),
        (next_one(run="ac" * 16), RELEASE.receipt),
    ]
    for receipt, previous in wrong:
        with pytest.raises(ProtocolError, match="does not follow on the one before it"):
            check_next(receipt, previous, SHUFFLER.public_key())
    with pytest.raises(ProtocolError, match="is not signed by the shuffler"):
        check_next(replace(next_one(), later=0), RELEASE.receipt, SHUFFLER.public_key())


def test_counts_are_those_of_the_receipt():
    """Even if they add up to as many users."""
    data, numbers = RELEASE.encode(), COUNTS.astype("<u2").tobytes()
    assert data.endswith(numbers)
    for changed in (COUNTS[::-1], COUNTS[:, ::-1], COUNTS[:2]):
        with pytest.raises(ProtocolError, match="its counts are not those of its receipt"):
            Release.decode(data[: -len(numbers)] + changed.astype("<u2").tobytes())
    for others in (data + b"\0", data[:-1]):
        with pytest.raises(ProtocolError, match="its counts are not those of its receipt"):
            Release.decode(others)


def test_counts_add_up_to_the_users_in_every_coordinate():
    short = np.array([[3, 5], [8, 0], [1, 6]])
    with pytest.raises(ProtocolError, match="its counts do not add up to its users"):
        Release.decode(Release.of(BLANK, short, SHUFFLER).encode())


@pytest.mark.parametrize(
    "change", [{"more": 1}, {"users": ...}, {"round": 0}, {"run": "zz"}, {"refused": {"seal": -1}}]
)
def test_what_is_no_receipt(change):
    plain = json.loads(RELEASE.receipt.line()) | change
    line = json.dumps({name: value for name, value in plain.items() if value is not ...})
    with pytest.raises(ProtocolError, match="not a receipt"):
        Receipt.read(line)


@pytest.mark.parametrize("change", [{"users": 0}, {"later": -1}, {"round": 1.5}, {"previous": ""}, {"counts": "0"}])
def test_receipts_are_checked(change):
    with pytest.raises(ParameterError, match=next(iter(change))):
        replace(BLANK, **change)
