"""Proofs that a report counts: every leaf has one, whatever is changed has none, and no node passes for a leaf."""

import hashlib
import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apes.errors import ParameterError, ProtocolError
from apes.wire.announcement import FIRST
from apes.wire.envelope import Binding
from apes.wire.inclusion import (
    REQUEST_BYTES,
    Inclusion,
    InclusionRequest,
    ReportTree,
    blinding_of,
    leaf_of,
    report_digest,
    root_above,
)
from apes.wire.receipt import Receipt

SIZES = range(1, 34)
SECRET = bytes(range(32))
SHUFFLER, SENDER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
BINDING = Binding(bytes([1]) * 16, 3, bytes([2]) * 32, bytes([4]) * 32)


def digests(count):
    return [report_digest(f"report {number}".encode()) for number in range(count)]


def leaves(count):
    return [leaf_of(BINDING, report, blinding_of(SECRET, BINDING, report)) for report in digests(count)]


def root_by_the_book(ordered):
    """RFC 9162, 2.1.1, word for word: split at the largest power of two below the number of leaves."""
    if len(ordered) == 1:
        return ordered[0]
    split = 1
    while 2 * split < len(ordered):
        split *= 2
    parts = root_by_the_book(ordered[:split]) + root_by_the_book(ordered[split:])
    return hashlib.sha256(b"\x01" + parts).digest()


def receipt_of(tree, count, **changes):
    named = BINDING.run.hex(), BINDING.round, BINDING.terms.hex(), BINDING.announcement.hex()
    receipt = Receipt(*named, "23" * 32, count, 0, (3, 2), "00" * 32, FIRST.hex(), {"seal": 1}, tree.root.hex())
    return replace(receipt, **changes).signed(SHUFFLER)


def proof_of(count, which, **changes):
    """The answer about one of so many reports, and the report."""
    report, tree = digests(count)[which], ReportTree(leaves(count))
    blinding = blinding_of(SECRET, BINDING, report)
    place, path = tree.path(leaf_of(BINDING, report, blinding))
    return Inclusion(receipt_of(tree, count, **changes), True, blinding, place, tuple(path)), report


def holds(inclusion, report, binding=BINDING):
    """Whether a proof is taken; a refusal is none."""
    try:
        return inclusion.check(binding, report, SHUFFLER.public_key())
    except ProtocolError:
        return False


@pytest.mark.parametrize("count", SIZES)
def test_every_leaf_verifies_and_no_other(count):
    known = leaves(count)
    tree = ReportTree(known)
    assert tree.root == root_by_the_book(sorted(known)) == ReportTree(known[::-1]).root
    for leaf in known:
        place, path = tree.path(leaf)
        assert sorted(known)[place] == leaf
        assert root_above(leaf, place, count, path) == tree.root
        other = bytes([leaf[0] ^ 1]) + leaf[1:]
        assert root_above(other, place, count, path) != tree.root
        for at in range(len(path)):
            changed = [*path[:at], bytes(32), *path[at + 1 :]]
            assert root_above(leaf, place, count, changed) != tree.root
        for wrong in ([*path, bytes(32)], path[:-1]) if path else ([bytes(32)],):
            with pytest.raises(ProtocolError, match="as many leaves"):
                root_above(leaf, place, count, wrong)
    assert tree.path(bytes(32)) is None
    assert tree.path(b"\xff" * 32) is None


@pytest.mark.parametrize("count", SIZES)
def test_no_other_place_takes_the_same_proof(count):
    """As many places as leaves, each for one leaf: no more senders than the receipt counts can hold a proof."""
    known = leaves(count)
    tree = ReportTree(known)
    for leaf in known:
        place, path = tree.path(leaf)
        for other in range(-1, count + 2):
            if other == place:
                continue
            try:
                assert root_above(leaf, other, count, path) != tree.root
            except ProtocolError:
                continue


def test_leaves_and_nodes_are_hashed_apart():
    """Known by formulas of the test's own: a node that were hashed as a leaf is would have another root."""
    bound = b"apes inclusion 1\n" + BINDING.run + (3).to_bytes(4, "little") + BINDING.announcement
    report = report_digest(b"report 0")
    assert leaf_of(BINDING, report, SECRET) == hashlib.sha256(b"\x00" + bound + SECRET + report).digest()
    low, high = sorted(leaves(2))
    assert ReportTree([low, high]).root == hashlib.sha256(b"\x01" + low + high).digest()
    assert ReportTree([low, high]).root != hashlib.sha256(b"\x00" + low + high).digest()


@pytest.mark.parametrize("count", [4, 5, 8, 33])
def test_a_node_does_not_pass_for_a_report(count):
    """Somebody without a report claims a node: as the leaf of a smaller tree, or as what a leaf is made of."""
    inclusion, report = proof_of(count, 0)
    known = sorted(leaves(count))
    node = hashlib.sha256(b"\x01" + known[0] + known[1]).digest()
    place, path = ReportTree(known).path(known[0])
    # The path above the node does lead to the root, but in a tree of another size than the receipt says.
    assert place == 0
    with pytest.raises(ProtocolError, match="as many leaves"):
        root_above(node, 0, count, path[1:])
    # A "report" and a "blinding" that are two leaves: hashed as a leaf, they are not their node.
    for blinding, claimed in ((known[0], known[1]), (node, node)):
        assert not holds(replace(inclusion, blinding=blinding, place=0, path=tuple(path)), claimed)
        assert not holds(replace(inclusion, blinding=blinding, place=0, path=tuple(path[1:])), claimed)
    assert holds(inclusion, report)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 33])
def test_an_answer_comes_back_and_none_of_it_can_be_changed(count):
    for which in {0, count // 2, count - 1}:
        inclusion, report = proof_of(count, which)
        data = inclusion.encode()
        assert Inclusion.decode(data) == inclusion
        assert holds(Inclusion.decode(data), report)
        for at in range(len(data)):
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            try:
                assert not holds(Inclusion.decode(changed), report), at
            except ProtocolError:
                continue
        for damaged in (data[:-1], data + b"\x00", b"", data[:3]):
            with pytest.raises(ProtocolError):
                Inclusion.decode(damaged)


@pytest.mark.parametrize("count", SIZES)
def test_all_answers_about_a_release_have_one_size(count):
    sizes = {len(proof_of(count, which)[0].encode()) for which in range(count)}
    sizes.add(len(Inclusion(proof_of(count, 0)[0].receipt).encode()))
    assert len(sizes) == 1


def test_a_proof_is_good_for_its_own_report_and_round_alone():
    inclusion, report = proof_of(9, 4)
    assert holds(inclusion, report)
    assert not holds(inclusion, digests(9)[5])
    for name, other in (("run", bytes(16)), ("round", 4), ("terms", bytes(32)), ("announcement", bytes(32))):
        assert not holds(inclusion, report, replace(BINDING, **{name: other}))
    assert not holds(replace(inclusion, is_included=False), report)
    # Neither with a receipt of another hand, nor with one that says less or more.
    assert not holds(replace(inclusion, receipt=inclusion.receipt.signed(SENDER)), report)
    for changes in ({"users": 8}, {"users": 17}, {"included": "11" * 32}, {"included": ""}):
        assert not holds(proof_of(9, 4, **changes)[0], report), changes
    fewer = replace(inclusion, receipt=receipt_of(ReportTree(leaves(9)), 8))
    with pytest.raises(ProtocolError, match="as many leaves as the receipt has reports"):
        fewer.check(BINDING, report, SHUFFLER.public_key())


def test_leaves_are_blinded():
    """Whoever has all sealed reports finds no leaf among them: it takes the shuffler's secret."""
    report = report_digest(b"report 0")
    blinding = blinding_of(SECRET, BINDING, report)
    assert blinding == blinding_of(SECRET, BINDING, report)
    others = [
        blinding_of(bytes(32), BINDING, report),
        blinding_of(SECRET, BINDING, report_digest(b"report 1")),
        *(
            blinding_of(SECRET, replace(BINDING, **change), report)
            for change in ({"run": bytes(16)}, {"round": 4}, {"announcement": bytes(32)})
        ),
    ]
    assert len({blinding, *others}) == 6


def test_questions_are_the_senders_own():
    data = InclusionRequest.signed(BINDING.run, 3, report_digest(b"report"), SENDER)
    assert len(data) == REQUEST_BYTES
    request = InclusionRequest.parse(data)
    assert (request.run, request.round, request.report) == (BINDING.run, 3, report_digest(b"report"))
    assert request.sender == SENDER.public_key().public_bytes_raw()
    for at in range(len(data)):
        with pytest.raises(ProtocolError):
            InclusionRequest.parse(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    other = Ed25519PrivateKey.generate()
    with pytest.raises(ProtocolError, match="is not signed by its sender"):
        InclusionRequest.parse(data[:-64] + other.sign(data[:-64]))
    for damaged in (b"", data[:-1], data + b"\x00"):
        with pytest.raises(ProtocolError, match="bytes"):
            InclusionRequest.parse(damaged)


@pytest.mark.parametrize(
    ("choices", "name"),
    [
        ({"run": bytes(15)}, "run"),
        ({"round": 0}, "round"),
        ({"round": 2**32}, "round"),
        ({"report": bytes(31)}, "report"),
        ({"sender": b""}, "sender"),
    ],
)
def test_a_question_is_of_the_right_sizes(choices, name):
    with pytest.raises(ParameterError, match=f"^{name} must"):
        InclusionRequest(**{"run": bytes(16), "round": 1, "report": bytes(32), "sender": bytes(32), **choices})
    with pytest.raises(ParameterError, match="leaves must be at least one"):
        ReportTree([])


def test_receipts_of_an_earlier_version_are_verified_as_ever():
    """As version 1 wrote and signed them: without a root, under another purpose."""
    plain = {
        "run": "ab" * 16,
        "round": 4,
        "terms": "cd" * 32,
        "announcement": "01" * 32,
        "roster": "23" * 32,
        "users": 8,
        "later": 1,
        "shape": [3, 2],
        "counts": "00" * 32,
        "previous": FIRST.hex(),
        "refused": {"seal": 2},
    }
    content = b"apes receipt 1\n" + json.dumps(plain, sort_keys=True).encode()
    line = json.dumps({**plain, "signature": SHUFFLER.sign(content).hex()}, sort_keys=True)
    receipt = Receipt.read(line)
    receipt.check(SHUFFLER.public_key())
    assert receipt.digest == hashlib.sha256(content).hexdigest()
    assert Receipt.read(receipt.line()) == receipt
    # A root that is put in or taken away is seen.
    with pytest.raises(ProtocolError, match="is not signed"):
        replace(receipt, included="11" * 32).check(SHUFFLER.public_key())
    inclusion, report = proof_of(3, 0)
    with pytest.raises(ProtocolError, match="is not signed"):
        replace(inclusion.receipt, included="").check(SHUFFLER.public_key())
    old = receipt_of(ReportTree(leaves(3)), 3, included="")
    with pytest.raises(ProtocolError, match="has no root"):
        replace(inclusion, receipt=old).check(BINDING, report, SHUFFLER.public_key())
    with pytest.raises(ProtocolError, match="not a receipt"):
        Receipt.read(line.replace('"users"', '"included": "xy", "users"'))
