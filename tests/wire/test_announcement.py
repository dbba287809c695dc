"""Announcements as bytes: one form for one round, which nobody but the analyzer can make."""

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.errors import ParameterError, ProtocolError
from apes.wire.announcement import ANNOUNCEMENT_BYTES, FIRST, Announcement, Unsigned, parse_announcement

ANALYZER = Ed25519PrivateKey.generate()
WEIGHTS = bytes(range(60))
ROUND = Announcement(bytes(range(16)), 7, bytes(range(32)), hashlib.sha256(WEIGHTS).digest(), FIRST)


def test_what_was_announced_comes_back():
    data = ROUND.signed(ANALYZER)
    assert len(data) == ANNOUNCEMENT_BYTES == 186
    assert parse_announcement(data, ANALYZER.public_key()) == ROUND
    assert ROUND.is_of(WEIGHTS)
    assert not ROUND.is_of(WEIGHTS[:-1])


def test_the_same_round_is_announced_in_the_same_bytes():
    """After a crash, say: nothing of it is random."""
    assert ROUND.signed(ANALYZER) == replace(ROUND).signed(ANALYZER)


@pytest.mark.parametrize(
    "change",
    [{"run": bytes(16)}, {"round": 8}, {"terms": bytes(32)}, {"weights": bytes(32)}, {"previous": b"9" * 32}],
    ids=lambda change: next(iter(change)),
)
def test_another_round_has_another_digest_and_binding(change):
    other = replace(ROUND, **change)
    assert other.digest != ROUND.digest
    assert other.binding != ROUND.binding


def test_every_flipped_bit_is_seen():
    data = ROUND.signed(ANALYZER)
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(ProtocolError):
            parse_announcement(bytes(changed), ANALYZER.public_key())


def test_a_stranger_cannot_announce():
    with pytest.raises(Unsigned):
        parse_announcement(ROUND.signed(Ed25519PrivateKey.generate()), ANALYZER.public_key())


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"", lambda d: b"XPEA" + d[4:]])
def test_not_an_announcement(change):
    with pytest.raises(ProtocolError):
        parse_announcement(change(ROUND.signed(ANALYZER)), ANALYZER.public_key())


@pytest.mark.parametrize("version", [0, 2, 2**16 - 1])
def test_an_announcement_of_another_version_is_none_though_it_is_signed(version):
    """What its bytes mean is not known here."""
    content = ROUND.signed(ANALYZER)[:-64]
    other = content[:4] + version.to_bytes(2, "little") + content[6:]
    with pytest.raises(ProtocolError, match="not an announcement of this version"):
        parse_announcement(other + ANALYZER.sign(other), ANALYZER.public_key())


@pytest.mark.parametrize(
    ("change", "name"),
    [({"run": b""}, "run"), ({"round": 0}, "round"), ({"round": 2**32}, "round"), ({"previous": b""}, "previous")],
)
def test_announcements_are_checked(change, name):
    with pytest.raises(ParameterError, match=name):
        replace(ROUND, **change)
