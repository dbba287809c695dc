"""A release as bytes: comes back whole, and nothing else is taken for one."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parties import RECEIPTS, RUN, announced, is_of, patient, release_of

from apes.errors import ProtocolError
from apes.wire.release import Release

TERMS = "ab" * 32


def release(refused=None):
    return release_of(announced(TERMS, 3), refused={"seal": 2, "level": 1} if refused is None else refused)


def encoded(**changes):
    """A release whose header says otherwise."""
    data = release().encode()
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length]) | changes
    text = json.dumps({name: value for name, value in header.items() if value is not ...}).encode()
    return struct.pack("<I", len(text)) + text + data[4 + length :]


def test_a_release_comes_back():
    back = Release.decode(release().encode())
    back.receipt.check(RECEIPTS.public_key())
    receipt = back.receipt
    assert (receipt.run, receipt.round, receipt.terms, receipt.users) == (RUN, 3, TERMS, 8)
    assert receipt.announcement == announced(TERMS, 3).digest.hex()
    assert receipt.refused == {"seal": 2, "level": 1}
    assert is_of(back, range(8))
    assert back.counts.dtype == np.int64


@pytest.mark.parametrize("users", [1, 2**16 - 1, 2**16, 2**16 + 1])
def test_counts_that_need_more_bytes(users):
    counts = np.array([[users, 0], [users - 1, 1]])
    receipt = replace(release().receipt, users=users)
    back = Release.decode(Release.of(receipt, counts, RECEIPTS).encode())
    assert (back.counts == counts).all()
    assert (back.receipt.users, back.receipt.shape) == (users, (2, 2))


def test_the_order_of_refusals_does_not_show():
    assert release({"seal": 2, "level": 1}).encode() == release({"level": 1, "seal": 2}).encode()
    assert release({"seal": 2, "level": 1}).encode() != release({"seal": 1, "level": 2}).encode()


def test_unchanged_is_a_release():
    """The refusals below are due to the changes."""
    assert is_of(Release.decode(encoded()), range(8))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 1},
        {"signature": ...},
        {"announcement": None},
        {"announcement": "ab"},
        {"previous": ...},
        {"later": -1},
        {"later": 1.5},
        {"counts": "00" * 32},
        {"run": ...},
        {"refused": ...},
        {"users": 0},
        {"users": -1},
        {"users": 7},
        {"users": 9},
        {"users": 8.5},
        {"users": "8"},
        {"users": None},
        {"users": 2**16},
        {"users": 10**30},
        {"users": float("nan")},
        {"shape": [15]},
        {"shape": [15, 16, 1]},
        {"shape": [16, 15]},
        {"shape": [-15, -16]},
        {"shape": [-1, 16]},
        {"shape": [0, 16]},
        {"shape": [15, 0]},
        {"shape": [10**30, 16]},
        {"shape": ["15", 16]},
        {"shape": None},
        {"refused": []},
        {"refused": {"seal": "many"}},
        {"refused": {"seal": float("inf")}},
        {"refused": {"seal": None}},
    ],
    ids=str,
)
def test_headers_that_do_not_agree(changes):
    with pytest.raises(ProtocolError):
        Release.decode(encoded(**changes))


def test_counts_that_are_signed_and_do_not_add_up():
    counts = np.array([[3, 5], [4, 5]])
    with pytest.raises(ProtocolError, match="do not add up"):
        Release.decode(Release.of(release().receipt, counts, RECEIPTS).encode())


def test_cut_short_or_lengthened():
    data = release().encode()
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            Release.decode(data[:end])
    with pytest.raises(ProtocolError, match="damaged"):
        Release.decode(data + b"\0")


def test_counts_that_do_not_add_up():
    data = bytearray(release().encode())
    (length,) = struct.unpack_from("<I", data)
    for place in range(0, 2 * 15 * 16, 2):
        changed = bytearray(data)
        changed[4 + length + place] ^= 1
        with pytest.raises(ProtocolError, match="not those of its receipt"):
            Release.decode(bytes(changed))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b"null", b"\xff", 100_000 * b"["])
def test_headers_that_are_none(text):
    with pytest.raises(ProtocolError, match="not a receipt"):
        Release.decode(struct.pack("<I", len(text)) + text + bytes(500))


@settings(patient, max_examples=300)
@given(st.binary(max_size=60))
def test_rubbish_is_no_release(data):
    with pytest.raises(ProtocolError):
        Release.decode(data)


@settings(patient, max_examples=500)
@given(st.integers(0, 900), st.integers(1, 255))
def test_a_changed_byte_is_seen_or_harmless(place, change):
    """Whatever is taken is what the shuffler signed, or its signature does not hold."""
    data = bytearray(release().encode())
    data[place % len(data)] ^= change
    try:
        back = Release.decode(bytes(data))
    except ProtocolError:
        return
    assert is_of(back, range(8))
    with pytest.raises(ProtocolError, match="not signed by the shuffler"):
        back.receipt.check(RECEIPTS.public_key())
