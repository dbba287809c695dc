"""Invitations and cards by the commands themselves: what is not signed as it stands is refused, in one line.

Before, the invitation was not signed: a swapped key of the shuffler, or other terms, were joined without a word; and a
card might bring any number of senders.
"""

import hashlib
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from parties import ANALYZER, BUDGETS, agreed, apes, joining, population, public, task_for_few

from apes import Examples
from apes.errors import ParameterError, ProtocolError
from apes.federation.admission import admit
from apes.federation.card import Card
from apes.federation.invitation import Invitation, read_invitation
from apes.federation.keys import Authority, node_key
from apes.federation.parties import Consent, Servers, invite, join
from apes.shuffler.service.policy import Limits
from apes.storage.settings import read_settings, write_settings
from apes.wire.enrolment import ENROLMENT_BYTES, Enrolment, open_budget, seal_budget

LIMITS = Limits(0.05, 1.0, 2, largest_card=4)


@pytest.fixture(scope="module")
def org(tmp_path_factory):
    """A federation that invites cards of up to four senders."""
    folder = tmp_path_factory.mktemp("i") / "org"
    test = Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 0]))
    invite(folder, task_for_few(agreed(limits=LIMITS), test), Servers(("here", 1), ("there", 2), 1))
    return folder


@pytest.fixture
def invitation(org, tmp_path):
    """A copy of the invitation, to be changed."""
    return shutil.copytree(org / "invitation", tmp_path / "invitation")


def people(first, count):
    """Some of the eight users."""
    arrays = population()
    offsets = arrays["offsets"][first : first + count + 1]
    rows = slice(offsets[0], offsets[-1])
    own = {name: arrays[name][rows] for name in ("features", "labels")}
    return {**own, "offsets": offsets - offsets[0], "budgets": BUDGETS[first : first + count]}


def joined(invitation, tmp_path, first=0, count=4):
    np.savez(tmp_path / "data.npz", **people(first, count))
    device = tmp_path / "device"
    return device, apes(*joining(device, invitation, tmp_path / "data.npz"))


def test_an_honest_invitation_is_joined_and_shows_its_fingerprint(invitation, tmp_path):
    device, (code, output, errors) = joined(invitation, tmp_path)
    assert code == 0, errors
    fingerprint = read_invitation(invitation)[0].fingerprint
    assert re.fullmatch("([0-9a-f]{4} ){7}[0-9a-f]{4}", fingerprint)
    assert fingerprint in " ".join(output.split())
    settings = json.loads((device / "vault" / "vault.json").read_text())
    signed = json.loads((invitation / "invitation.json").read_text())
    assert (settings["shuffler_key"], settings["analyzer_key"]) == (signed["shuffler_key"], signed["analyzer_key"])


FIELDS = ["run", "superlink", "terms", "authority", "shuffler_key", "receipts_key", "analyzer_key", "organiser_key"]


def is_refused(invitation, tmp_path, said):
    """Whether joining is refused in one line that says so, and nothing is made."""
    device, (code, output, errors) = joined(invitation, tmp_path)
    assert (code, output, device.exists()) == (2, "", False)
    (line,) = [line for line in errors.splitlines() if line]
    return said in line and line.endswith("do not join")


@pytest.mark.parametrize("field", FIELDS)
def test_whatever_of_it_is_changed_is_refused(invitation, tmp_path, field):
    file = invitation / "invitation.json"
    plain = json.loads(file.read_text())
    stranger = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    other = {"run": "ab" * 16, "superlink": "elsewhere:1"}.get(field, stranger)
    file.write_text(json.dumps(plain | {field: other}))
    assert is_refused(invitation, tmp_path, "invitation.json is not signed by the organiser that it names")


PLACES = ["nowhere", "host:", ":1", "host:0", "host:65536", "host:1\x1b[2J", "\x1b]0;t\x07:1", "a/b:1", "a@b:1", "h:²"]


@pytest.mark.parametrize("place", PLACES)
def test_a_superlink_that_is_no_place_on_the_network_is_refused(invitation, tmp_path, place):
    """The organiser's own signature is on it: it would have been said on the terminal, and asked over the network."""
    file = invitation / "invitation.json"
    plain = json.loads(file.read_text()) | {"superlink": place}
    content = json.dumps({name: plain[name] for name in FIELDS} | {"organiser_key": public(ANALYZER)}, sort_keys=True)
    signature = ANALYZER.sign(b"apes invitation 1\n" + content.encode()).hex()
    file.write_text(json.dumps(json.loads(content) | {"signature": signature}))
    device, (code, output, errors) = joined(invitation, tmp_path)
    assert (code, output, device.exists()) == (2, "", False)
    assert "superlink must be HOST:PORT" in errors
    assert "\x1b" not in errors


@pytest.mark.parametrize("signature", ["", "00" * 64, "no hexadecimal digits"])
def test_without_a_signature_it_is_refused(invitation, tmp_path, signature):
    file = invitation / "invitation.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"signature": signature}))
    assert is_refused(invitation, tmp_path, "invitation.json is not signed by the organiser that it names")


def test_other_terms_beside_it_are_refused(invitation, tmp_path):
    agreed(rounds=100_000, limits=LIMITS).write(invitation / "terms.json")
    assert is_refused(invitation, tmp_path, "terms.json are not the terms that the organiser signed")


def test_another_authority_beside_it_is_refused(invitation, tmp_path):
    (invitation / "authority.pem").write_bytes(Authority().certificate())
    assert is_refused(invitation, tmp_path, "authority.pem is not the authority that the organiser signed")


def test_who_signs_it_anew_has_another_fingerprint(invitation):
    """That is what to compare by another channel: a stranger can sign, but not as the organiser."""
    honest, *_ = read_invitation(invitation)
    stranger = Ed25519PrivateKey.generate()
    for forged in (honest.signed(stranger), Invitation(**{**vars(honest), "run": "ab" * 16}).signed(stranger)):
        write_settings(invitation / "invitation.json", forged)
        assert read_invitation(invitation)[0].fingerprint == forged.fingerprint != honest.fingerprint


def test_the_organisers_key_is_secret_and_in_nobodys_folder(org):
    key = (org / "organiser.key").read_bytes()
    assert (org / "organiser.key").stat().st_mode & 0o777 == 0o600
    for file in (file for file in org.rglob("*") if file.is_file() and file.parent != org):
        assert key not in file.read_bytes()


@pytest.fixture
def cards(org, tmp_path):
    """Two cards of four users each."""
    received = read_invitation(org / "invitation")
    return {join(tmp_path / f"d{first}", received, people(first, 4), Consent()): f"d{first}" for first in (0, 4)}


def test_admission_opens_budgets_for_the_policy_alone(org, cards):
    policy = admit(org, cards)
    assert policy.budgets == tuple(BUDGETS.tolist())
    assert (org / "shuffler" / "policy.json").stat().st_mode & 0o777 == 0o600
    assert (policy.smallest_cohort, policy.distrusted, policy.needed) == (2, 4, 6)
    # Nothing of a card tells which budget is in it: they all have one size, and never look the same.
    assert {len(sealed) for card in cards for sealed in card.budgets} == {2 * ENROLMENT_BYTES}
    text = json.dumps([vars(card) for card in cards])
    assert not any(np.float64(budget).tobytes().hex() in text for budget in BUDGETS)


def test_a_card_of_more_senders_than_agreed_is_neither_made_nor_admitted(org, cards, tmp_path, invitation):
    """Thirty senders of one hand, say, who would hide one another's victim."""
    said = "a card must have at most 4 senders (largest_card), got "
    device, (code, _, errors) = joined(invitation, tmp_path, count=5)
    assert (code, said + "5" in errors, device.exists()) == (2, True, False)
    signed, *_ = read_invitation(org / "invitation")
    keys = [Ed25519PrivateKey.generate() for _ in range(30)]
    write_settings(tmp_path / "card.json", Card.of(keys, np.full(30, 0.05), node_key()[1].decode(), signed))
    code, output, errors = apes("federation", "admit", org, tmp_path / "card.json")
    assert (code, output, errors) == (2, "", f"apes: {tmp_path / 'card.json'}: {said}30\n")
    assert not (org / "shuffler" / "policy.json").exists() or admit(org, cards).senders


def swapped(card):
    return (card.budgets[1], card.budgets[0], *card.budgets[2:])


@pytest.mark.parametrize(
    "change", [swapped, lambda card: ("00" * ENROLMENT_BYTES, *card.budgets[1:])], ids=["another's budget", "no budget"]
)
def test_a_card_with_other_budgets_is_not_admitted(org, cards, tmp_path, change):
    card, other = cards
    write_settings(tmp_path / "card.json", Card(card.senders, change(card), card.node))
    write_settings(tmp_path / "other.json", other)
    code, _, errors = apes("federation", "admit", org, tmp_path / "card.json", tmp_path / "other.json")
    assert code == 2
    assert f"{tmp_path / 'card.json'}: cards must be made for this invitation" in errors


def test_a_card_for_another_run_is_not_admitted(org, cards, tmp_path):
    test = Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 0]))
    task, servers = (task_for_few(agreed(limits=LIMITS), test), Servers(("here", 1), ("there", 2), 1))
    invite(tmp_path / "other", task, servers)
    with pytest.raises(ParameterError, match="cards must be made for this invitation"):
        admit(tmp_path / "other", cards)


def test_a_budget_that_is_not_taken_is_not_admitted(org, cards):
    signed, *_ = read_invitation(org / "invitation")
    loud = Card.of([Ed25519PrivateKey.generate()], np.array([5.0]), node_key()[1].decode(), signed)
    with pytest.raises(ParameterError, match=r"^loud: budgets must be in \[0\.05, 1\]"):
        admit(org, {**cards, loud: "loud"})


def test_a_card_comes_back(cards, tmp_path):
    for card in cards:
        write_settings(tmp_path / "card.json", card)
        assert read_settings(tmp_path / "card.json", Card) == card


def test_a_sealed_budget_is_bound(small):
    enrolment, key = Enrolment(bytes(16), bytes(32), "a node"), small.keys[0]
    sealed = seal_budget(0.3, enrolment, key, small.shuffler.public_key())
    sender = key.public_key().public_bytes_raw()
    assert open_budget(sealed, enrolment, sender, small.shuffler) == 0.3
    other = small.keys[1].public_key().public_bytes_raw()
    changes = {"run": b"9" * 16}, {"terms": b"9" * 32}, {"node": "another node"}
    for bound in ((enrolment, other), *((replace(enrolment, **change), sender) for change in changes)):
        with pytest.raises(ProtocolError, match="not this sender's"):
            open_budget(sealed, *bound, small.shuffler)
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(ProtocolError, match="not this sender's"):
            open_budget(changed, enrolment, sender, small.shuffler)
    with pytest.raises(ProtocolError, match="bytes"):
        open_budget(sealed[:-1], enrolment, sender, small.shuffler)
    weak, node = bytes(32) + sealed[32:-64], hashlib.sha256(b"a node").digest()
    signed = weak + key.sign(b"APEB" + (2).to_bytes(2, "little") + bytes(16 + 32) + node + sender + weak)
    with pytest.raises(ProtocolError, match="not this sender's"):
        open_budget(signed, enrolment, sender, small.shuffler)


def test_another_authority_after_it_in_the_same_file_is_refused(invitation, tmp_path):
    """All certificates in the file are trusted, so one that is appended would be an authority too."""
    with (invitation / "authority.pem").open("ab") as file:
        file.write(Authority().certificate())
    _, (code, _, errors) = joined(invitation, tmp_path)
    assert (code, "holds certificates of 2 authorities" in " ".join(errors.split())) == (2, True)
