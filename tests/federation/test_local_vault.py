"""The vault in this process answers as the real one does, and fails where it is told to."""

import pytest
from local_vault import POINTS, Crash, LocalVault
from parties import BUDGETS, agreed, opened

from apes.federation.vault.witness import Seen
from apes.storage.settings import read_settings

# Once the ledger has an answer, it is the only one that ever leaves.
KEPT = POINTS[POINTS.index("after the ledger's commit") :]


@pytest.fixture
def vault(small, tmp_path):
    party = LocalVault(tmp_path / "v", agreed(rounds=1000), small.keys, small.shuffler)
    party.start()
    yield party
    party.kill()


def kept_of(vault, number):
    """The answer in the ledger, as a list of none or one."""
    return [answer for (answer,) in vault.rows("select answer from answers where round = ?", number)]


def rounds_spent(vault):
    """In how many rounds each user was, by the ledger."""
    return [rounds for (rounds,) in vault.rows("select rounds from spent order by user")]


def test_it_answers_in_bytes(vault, small):
    answer = vault.ask(vault.request(1))
    assert answer[:1] == b"\0"
    _, budgets, senders = opened(answer[1:], small.shuffler)
    assert (budgets == BUDGETS).all()
    assert [sender.hex() for sender in senders] == list(small.policy.senders)
    vault.restart()
    assert vault.ask(vault.request(1)) == answer
    assert vault.ask(b"GET / HTTP/1.1\r\n\r\n") == b"\1request"
    assert vault.ask(vault.request(2, bytes(61))) == b"\1request"
    told = [event["event"] for event in vault.events() if event["event"] != "late"]
    assert told == ["vault", "answered", "vault", "answered", "refused", "refused"]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_one_answer_or_none(vault, point):
    """Whatever the ledger holds when the vault dies is charged once, and is what every later request is answered."""
    first = vault.sealed(1)
    vault.fail(point)
    with pytest.raises(Crash):
        vault.ask(vault.request(2))
    kept = kept_of(vault, 2)
    assert len(kept) == (point in KEPT)
    assert rounds_spent(vault) == 8 * [1 + len(kept)]
    vault.restart()
    assert vault.sealed(1) == first
    second = vault.sealed(2)
    assert kept in ([], [second])
    assert kept_of(vault, 2) == [second]
    assert rounds_spent(vault) == 8 * [2]
    assert read_settings(vault.folder / "witness.json", Seen).answers == 2


@pytest.mark.parametrize("point", POINTS[:-1])
def test_an_error_of_the_disk_keeps_the_answer_inside(vault, point):
    """Not a byte of a report leaves while it lasts; afterwards, what the ledger holds is the answer."""
    vault.fail(point, OSError(28, "No space left on device"))
    told = [vault.ask(vault.request(1)) for _ in range(3)]
    # In the last place, the witness has it, so that the next request may be answered from the ledger.
    assert told[0] == b"\1ledger"
    kept = kept_of(vault, 1)
    assert len(kept) == (point in KEPT)
    assert set(told[1:]) <= {b"\1ledger", *(b"\0" + answer for answer in kept)}
    vault.heal()
    assert kept in ([], [vault.sealed(1)])
    assert rounds_spent(vault) == 8 * [1]
