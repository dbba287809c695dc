from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from apes.errors import ParameterError, ProtocolError
from apes.wire.envelope import Binding, envelope_size, parse, seal

BINDING = Binding(bytes(range(16)), 7, bytes(range(32)), bytes(range(1, 33)))


@pytest.fixture(scope="module")
def user():
    return Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def shuffler():
    return X25519PrivateKey.generate()


def sealed(user, shuffler, levels, budget=0.5, binding=BINDING):
    return seal(bytes(levels), budget, binding, user, shuffler.public_key())


def test_what_was_sealed_is_opened(user, shuffler):
    envelope = parse(sealed(user, shuffler, [0, 255, 7], 0.25), 3, 256)
    assert envelope.binding == BINDING
    assert envelope.sender == user.public_key().public_bytes_raw()
    assert envelope.is_signed(user.public_key())
    assert envelope.open(shuffler) == (0.25, bytes([0, 255, 7]))


def test_a_million_coordinates(user, shuffler):
    report = np.random.default_rng(1).bytes(1_000_000)
    assert parse(sealed(user, shuffler, report), len(report), 256).open(shuffler) == (0.5, report)


@pytest.mark.parametrize("budget", [1e-300, 0.05, 1.0, 1e300])
def test_size_says_nothing(user, shuffler, budget):
    for levels in ([0] * 9, [255] * 9, list(range(9))):
        assert len(sealed(user, shuffler, levels, budget)) == envelope_size(9, 256) == 242 + 9


def test_the_same_report_never_looks_the_same(user, shuffler):
    one, other = (sealed(user, shuffler, [1, 2, 3]) for _ in range(2))
    body = slice(122, -64)
    assert one[body] != other[body]
    # No run of 8 bytes of the sealed part is common to both.
    pieces = {one[body][i : i + 8] for i in range(len(one[body]) - 8)}
    assert all(other[body][i : i + 8] not in pieces for i in range(len(other[body]) - 8))


def test_every_flipped_bit_is_seen(user, shuffler):
    data = sealed(user, shuffler, [1, 2, 3])
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        try:
            envelope = parse(bytes(changed), 3, 256)
        except ProtocolError:
            continue
        assert not envelope.is_signed(user.public_key())


@pytest.mark.parametrize(
    "other",
    [
        replace(BINDING, run=bytes(16)),
        replace(BINDING, round=8),
        replace(BINDING, terms=bytes(32)),
        replace(BINDING, announcement=bytes(32)),
    ],
    ids=["run", "round", "terms", "announcement"],
)
def test_a_seal_is_bound(user, shuffler, other):
    envelope = parse(sealed(user, shuffler, [1, 2, 3]), 3, 256)
    moved = type(envelope)(other, envelope.sender, envelope.sealed, envelope.signature)
    with pytest.raises(ProtocolError, match="does not open"):
        moved.open(shuffler)


def test_nobody_can_pass_off_anothers_report(user, shuffler):
    """The sealed part of one user under another's name and valid signature does not open."""
    envelope = parse(sealed(user, shuffler, [1, 2, 3]), 3, 256)
    thief = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    with pytest.raises(ProtocolError, match="does not open"):
        type(envelope)(BINDING, thief, envelope.sealed, envelope.signature).open(shuffler)


def test_only_the_shuffler_opens(user, shuffler):
    with pytest.raises(ProtocolError, match="does not open"):
        parse(sealed(user, shuffler, [1, 2, 3]), 3, 256).open(X25519PrivateKey.generate())


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"", lambda d: b"XPES" + d[4:]])
def test_not_an_envelope(user, shuffler, change):
    with pytest.raises(ProtocolError):
        parse(change(sealed(user, shuffler, [1, 2, 3])), 3, 256)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((bytes(15), 1, bytes(32), bytes(32)), "run"),
        ((bytes(16), 0, bytes(32), bytes(32)), "round"),
        ((bytes(16), 1, b"", bytes(32)), "terms"),
        ((bytes(16), 1, bytes(32), bytes(31)), "announcement"),
    ],
)
def test_bindings_are_checked(arguments, name):
    with pytest.raises(ParameterError, match=name):
        Binding(*arguments)
