"""Members who are admitted and dismissed: a change of policy, cards and nodes is whole or not there."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from parties import agreed, apes, is_root, population, public, task_for_few

from apes import Examples
from apes.errors import DataError
from apes.federation.admission import admit, admit_more, dismiss
from apes.federation.card import Card
from apes.federation.invitation import read_invitation
from apes.federation.keys import node_key
from apes.federation.members import members
from apes.federation.parties import Consent, Servers, invite, join
from apes.federation.trial.layout import Layout
from apes.shuffler.service.policy import Policy
from apes.storage.settings import read_settings, write_settings


def first(policy, count):
    """The policy with the first members only."""
    return replace(policy, senders=policy.senders[:count], budgets=policy.budgets[:count])


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    """A federation, and the cards of six devices with one user each."""
    folder = tmp_path_factory.mktemp("org")
    test = Examples(np.zeros((1, 4), np.float32), np.zeros(1, np.uint8))
    invite(folder / "org", task_for_few(agreed(), test), Servers(("here", 1), ("there", 2), 1))
    everybody, found = population(), []
    for number in range(6):
        rows = slice(everybody["offsets"][number], everybody["offsets"][number + 1])
        own = {"features": everybody["features"][rows], "labels": everybody["labels"][rows]}
        own |= {"offsets": np.array([0, rows.stop - rows.start]), "budgets": np.array([0.5])}
        join(folder / f"d{number}", read_invitation(folder / "org" / "invitation"), own, Consent())
        (card,) = (folder / f"d{number}").rglob("card.json")
        found.append(card)
    return folder / "org", found


def senders(files):
    return {sender for file in files for sender in read_settings(file, Card).senders}


def read(files):
    """The cards in files, named by these."""
    return {read_settings(file, Card): str(file) for file in files}


def in_force(org):
    """Who may report, by the policy; fails unless the cards beside it say the same."""
    policy = read_settings(Layout(org).shuffler / "policy.json", Policy)
    kept = [sender for card in members(org, Card) for sender in card.senders]
    assert list(policy.senders) == kept
    return set(policy.senders)


def nodes(org):
    return {file.read_text() for file in (Layout(org).superlink / "nodes").iterdir()}


def node_keys(files):
    return {read_settings(file, Card).node for file in files}


def test_cards_are_added_and_taken_back(cards):
    org, files = cards
    assert apes("federation", "admit", org, *files[:4])[0] == 0
    assert in_force(org) == senders(files[:4])
    code, said, _ = apes("federation", "admit", org, "--add", files[4], files[5], "--json")
    assert (code, json.loads(said)["users"]) == (0, 6)
    assert in_force(org) == senders(files)
    assert nodes(org) == node_keys(files)
    code, said, _ = apes("federation", "dismiss", org, files[0], files[4], "--json")
    assert (code, json.loads(said)["users"]) == (0, 4)
    assert in_force(org) == senders([*files[1:4], files[5]])
    assert nodes(org) == node_keys([*files[1:4], files[5]])
    # Either again changes nothing.
    assert apes("federation", "dismiss", org, files[0])[0] == 0
    assert apes("federation", "admit", org, "--add", files[1])[0] == 0
    assert in_force(org) == senders([*files[1:4], files[5]])


def test_a_change_that_the_terms_do_not_allow_changes_nothing(cards):
    """Two cards where a round needs four senders, and nobody at all."""
    org, files = cards
    admit(org, read(files[:4]))
    for command in (["admit", org, *files[:2]], ["dismiss", org, *files[:4]]):
        code, _, errors = apes("federation", *command)
        assert code == 2
        assert errors
        assert in_force(org) == senders(files[:4])
        assert nodes(org) == node_keys(files[:4])


def test_a_stolen_key_can_be_dismissed_where_members_are_just_enough(cards):
    """The list shrinks below what a round needs; rounds wait until somebody else is admitted."""
    org, files = cards
    policy = admit(org, read(files[:3]))
    assert len(policy.senders) == policy.needed == 3
    code, told, _ = apes("federation", "dismiss", org, files[0])
    assert code == 0
    assert "a round needs 3, so the shuffler releases none until others are admitted" in " ".join(told.split())
    assert in_force(org) == senders(files[1:3])
    assert nodes(org) == node_keys(files[1:3])
    assert apes("federation", "admit", org, "--add", files[4])[0] == 0
    assert in_force(org) == senders([*files[1:3], files[4]])


def own_card(org, node, file):
    """A card that somebody makes without `join`, with a sender of their own."""
    invitation, *_ = read_invitation(Layout(org).invitation)
    write_settings(file, Card.of([Ed25519PrivateKey.generate()], np.array([0.5]), node, invitation))
    return file


def said(errors):
    """What a command says in its one line."""
    assert errors.startswith("apes: ")
    return " ".join(errors.split())


def test_a_card_with_anothers_node_is_not_added(cards, tmp_path):
    org, files = cards
    node = read_settings(files[0], Card).node
    forged = own_card(org, node, tmp_path / "card.json")
    admit(org, read(files[:4]))
    code, _, errors = apes("federation", "admit", org, "--add", forged)
    assert code == 2
    assert f"nodes of their own; {Layout(org).shuffler / 'cards'}, card 1 and {forged} share {node}" in said(errors)
    code, _, errors = apes("federation", "admit", org, *files[:4], forged)
    assert code == 2
    assert f"nodes of their own; {files[0]} and {forged} share {node}" in said(errors)
    assert in_force(org) == senders(files[:4])


def test_nobody_goes_for_a_card_that_somebody_else_made(cards, tmp_path):
    """It has the other's node; before, that was enough."""
    org, files = cards
    forged = own_card(org, read_settings(files[0], Card).node, tmp_path / "card.json")
    admit(org, read(files[:5]))
    code, _, errors = apes("federation", "dismiss", org, forged)
    assert (code, str(forged) in said(errors)) == (2, True)
    assert in_force(org) == senders(files[:5])
    assert nodes(org) == node_keys(files[:5])


def test_a_card_with_anothers_senders_is_forged(cards, tmp_path):
    """What is public of a victim's card, with the attacker's node: it was admitted, and then the victim was not."""
    org, files = cards
    stolen = tmp_path / "stolen.json"
    write_settings(stolen, replace(read_settings(files[0], Card), node=node_key()[1].decode()))
    code, _, errors = apes("federation", "admit", org, *files[1:5], stolen)
    assert (code, f"{stolen}: cards must be made for this invitation" in said(errors)) == (2, True)
    admit(org, read(files[1:5]))
    assert apes("federation", "admit", org, "--add", stolen)[0] == 2
    assert apes("federation", "admit", org, "--add", files[0])[0] == 0
    assert in_force(org) == senders(files[:5])


def test_two_cards_with_one_sender_are_both_named(cards, tmp_path):
    org, files = cards
    invitation, *_ = read_invitation(Layout(org).invitation)
    twice, key = [tmp_path / "one.json", tmp_path / "two.json"], Ed25519PrivateKey.generate()
    for file in twice:
        write_settings(file, Card.of([key], np.array([0.5]), node_key()[1].decode(), invitation))
    code, _, errors = apes("federation", "admit", org, *files, *twice)
    assert code == 2
    assert f"senders of their own; {twice[0]} and {twice[1]} share {public(key)}" in said(errors)


NODE = node_key()[1].decode()
OTHER_CURVE = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


NO_NODES = {
    "empty": "",
    "junk": "junk 1",
    "no key": "ssh-ed25519 AAAA",
    "cut short": NODE[:-5],
    "comment": f"{NODE} mine",
    "line's end": f"{NODE}\n",
    "two": f"{NODE}\n{NODE}",
    "space": f" {NODE}",
    "other name": NODE.replace("nistp384", "nistp256", 1),
    "other curve": OTHER_CURVE.decode(),
    "no text": "\ud800",
    "long": "ecdsa-sha2-nistp384 " + 10**6 * "A",
}


@pytest.mark.parametrize("node", NO_NODES.values(), ids=list(NO_NODES))
def test_a_card_whose_node_is_no_key_is_named(cards, tmp_path, node):
    """One of these kept everybody out of the SuperLink."""
    org, files = cards
    admit(org, read(files[:4]))
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(json.loads(files[4].read_text()) | {"node": node}))
    code, _, errors = apes("federation", "admit", org, "--add", bad)
    assert (code, f"{bad}: node must be one line" in said(errors), len(errors) < 1000) == (2, True, True)
    assert in_force(org) == senders(files[:4])


def test_a_card_of_many_senders_one_of_whom_comes_twice_is_refused_at_once(cards, tmp_path):
    """Each was compared with every other, for hours: whoever hands in a card could keep the operator from admitting."""
    org, files = cards
    many = [f"{number:064x}" for number in range(100_000)]
    plain = json.loads(files[4].read_text()) | {"senders": [*many, many[7]]}
    (tmp_path / "many.json").write_text(json.dumps(plain))
    code, _, errors = apes("federation", "admit", org, "--add", tmp_path / "many.json")
    assert code == 2
    assert f"many.json: senders must differ, got '{many[7]}' more than once" in said(errors)


def test_a_files_name_does_nothing_to_the_terminal(cards, tmp_path):
    """Cards come from anybody, and so do their files' names."""
    org, files = cards
    bad = tmp_path / "\x1b]0;title\x07\x9b2J\u202ecard.json"
    bad.write_text(json.dumps(json.loads(files[4].read_text()) | {"node": "none"}))
    code, _, errors = apes("federation", "admit", org, "--add", bad)
    assert code == 2
    assert "\\x1b]0;title\\x07\\x9b2J\\u202ecard.json: node must be one line" in errors
    assert errors.removesuffix("\n").isprintable()


def test_a_policy_that_nobody_admitted_has_no_cards(cards):
    org, files = cards
    policy = admit(org, read(files[:4]))
    write_settings(Layout(org).shuffler / "policy.json", first(policy, 3))
    with pytest.raises(DataError, match="admit all cards again"):
        members(org, Card)
    assert apes("federation", "admit", org, *files[:4])[0] == 0
    assert in_force(org) == senders(files[:4])


class Killed(BaseException):
    """Whoever changes the members was killed."""


MOMENTS = [(1, "before", False), (1, "after", False), (2, "before", False), (2, "after", True), (4, "before", True)]


@pytest.mark.parametrize("what", ["admit", "dismiss"])
@pytest.mark.parametrize(("at", "when", "is_new"), MOMENTS)
def test_killed_on_the_way_it_is_the_old_or_the_new(cards, monkeypatch, what, at, when, is_new):
    """The first file that is replaced is the cards', the second the policy's, then the nodes' keys."""
    org, files = cards
    real, done = os.replace, []

    def counted(*places):
        done.append(places)
        if (len(done), when) == (at, "before"):
            raise Killed
        real(*places)
        if (len(done), when) == (at, "after"):
            raise Killed

    def change():
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", counted)
            with pytest.raises(Killed):
                {"admit": admit_more, "dismiss": dismiss}[what](org, read(files[4:]))

    check_old_or_new(org, files, what, is_new, change)


# A real change, in a process that kills itself as it is about to replace its N-th file, or has just done it.
KILLED = """
import os, signal, sys
from pathlib import Path
from apes.federation.admission import admit_more
from apes.federation.card import Card
from apes.storage.settings import read_settings
org, *files = sys.argv[1:]
replace, done = os.replace, 0
def counted(*places):
    global done
    done += 1
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*places)
os.replace = counted
admit_more(Path(org), {read_settings(Path(file), Card): file for file in files})
"""


@pytest.mark.process
def test_killed_on_the_way_it_is_the_old(cards):
    """As it is about to replace the policy; who is killed holds no lock, and leaves a file that is in nobody's way."""
    org, files = cards

    def change():
        died = subprocess.run([sys.executable, "-c", KILLED, org, *files[4:]], capture_output=True)
        assert died.returncode == -signal.SIGKILL, died.stderr

    check_old_or_new(org, files, "admit", False, change)


def check_old_or_new(org, files, what, is_new, change):
    """A change that ends on the way leaves the old members or the new; once more, and it is done."""
    few, many = files[:4], files
    old, new = (few, many) if what == "admit" else (many, few)
    admit(org, read(old))
    change()
    assert in_force(org) == senders(new if is_new else old)
    # All nodes of the members who are in both are there at every moment.
    assert nodes(org) >= node_keys(few)
    command = ["admit", org, "--add"] if what == "admit" else ["dismiss", org]
    assert apes("federation", *command, *files[4:])[0] == 0
    assert in_force(org) == senders(new)
    assert nodes(org) == node_keys(new)
    assert len(list((Layout(org).shuffler / "cards").iterdir())) == 1


@pytest.mark.skipif(not is_root(), reason="only root works in another account's folder")
def test_root_changes_nothing_in_a_folder_of_another_account(cards):
    """Its owner could not have read the new policy; and root removed whatever the owner had made a link to."""
    org, files = cards
    admit(org, read(files[:4]))
    shuffler = Layout(org).shuffler
    before = {path: path.read_bytes() for path in shuffler.rglob("*") if path.is_file()}
    os.chown(shuffler, 61236, 61236)
    try:
        for command in (["admit", org, "--add", files[4]], ["dismiss", org, files[0]], ["renew", org]):
            code, _, errors = apes("federation", *command)
            assert code == 2
            assert "shuffler belongs to account number 61236: do this under that account" in said(errors)
    finally:
        os.chown(shuffler, 0, 0)
    assert {path: path.read_bytes() for path in before} == before
    assert apes("federation", "admit", org, "--add", files[4])[0] == 0


def test_nothing_is_removed_that_is_not_a_nodes_key(cards, tmp_path):
    """The SuperLink's folder may be another account's, too: a link in there led to whatever it named."""
    org, files = cards
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("theirs")
    admit(org, read(files[:4]))
    place = Layout(org).superlink / "nodes"
    shutil.rmtree(place)
    place.symlink_to(tmp_path / "elsewhere")
    assert apes("federation", "dismiss", org, files[0])[0] == 0
    assert (tmp_path / "elsewhere" / "precious").read_text() == "theirs"
    assert node_keys(files[1:4]) == nodes(org) - {"theirs"}


def test_a_policy_is_for_its_owner_alone(cards):
    org, files = cards
    admit(org, read(files))
    kept = [Layout(org).shuffler / "policy.json", *(Layout(org).shuffler / "cards").iterdir()]
    assert {file.stat().st_mode & 0o777 for file in kept} == {0o600}
