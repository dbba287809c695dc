"""A vault whose ledger is gone, another's or old does not answer: it would draw again what it answered before.

In this process, but for one case of each kind that only a process can show: that the command says so, and a kill.
"""

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
from local_vault import LocalVault
from parties import APES, OTHER_RUN, RUN, VaultProcess, agreed, apes

from apes.errors import DataError
from apes.federation.vault.ledger import Answer, VaultLedger
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.witness import LedgerLost, Seen, Witness, new_witness
from apes.storage.settings import read_settings

ID, OTHER_ID = 16 * "0a", 16 * "0b"


@pytest.fixture
def vault(small, tmp_path):
    """A vault that answered three rounds and stopped."""
    party = LocalVault(tmp_path / "v", agreed(rounds=1000), small.keys, small.shuffler)
    yield from stopped_after_three(party)


@pytest.fixture
def real_vault(small, tmp_path):
    """The same as a process."""
    party = VaultProcess(tmp_path / "v", agreed(rounds=1000), small.keys, small.shuffler)
    yield from stopped_after_three(party)


def stopped_after_three(party):
    party.start()
    party.answers = {number: party.sealed(number) for number in (1, 2, 3)}
    party.kill()
    yield party
    party.kill()


def refusal(vault):
    """The one line that the vault refuses to start with; `spent` says the same."""
    code, output, line = apes("vault", vault.folder / "vault.json")
    assert (code, output) == (2, "")
    assert apes("federation", "spent", vault.folder) == (2, "", line)
    assert line.count("\n") == 1
    return line


def put_away(vault, place):
    """Move the ledger's files to a folder, from where `put_back` takes them."""
    place.mkdir(exist_ok=True)
    for file in vault.folder.glob("ledger.sqlite*"):
        file.rename(place / file.name)


def put_back(vault, place):
    for file in vault.folder.glob("ledger.sqlite*"):
        file.unlink()
    for file in place.iterdir():
        shutil.copy2(file, vault.folder / file.name)


def goes_on(vault):
    """Whether the last round's answer is what it was, and there is a next one."""
    vault.start()
    same = vault.sealed(3) == vault.answers[3]
    return same and vault.sealed(4) != vault.answers[3]


def test_a_deleted_ledger_is_noticed(vault, tmp_path):
    """Finding 10 of the attack: a fresh draw for an answered round, and `spent` fell from 25 to 1."""
    put_away(vault, tmp_path / "away")
    line = refusal(vault)
    assert "ledger.sqlite is gone, which held 3 answers: put the newest copy back" in line
    assert not vault.ledger.exists()
    put_back(vault, tmp_path / "away")
    assert goes_on(vault)


@pytest.mark.process
def test_a_real_vault_says_in_one_line_that_its_ledger_is_gone(real_vault, tmp_path):
    put_away(real_vault, tmp_path / "away")
    command = [APES, "vault", real_vault.folder / "vault.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "ledger.sqlite is gone, which held 3 answers: put the newest copy back" in done.stderr
    assert not real_vault.ledger.exists()
    put_back(real_vault, tmp_path / "away")
    assert goes_on(real_vault)


def test_an_older_copy_is_noticed(vault, tmp_path):
    put_away(vault, tmp_path / "backup")
    put_back(vault, tmp_path / "backup")
    vault.start()
    fourth = vault.sealed(4)
    vault.kill()
    put_away(vault, tmp_path / "newest")
    put_back(vault, tmp_path / "backup")
    assert "it is older than this vault's last answer, it holds 3 answers, 4 were given" in refusal(vault)
    put_back(vault, tmp_path / "newest")
    vault.start()
    assert vault.sealed(4) == fourth


def test_anothers_ledger_is_noticed(vault, small, tmp_path):
    other = LocalVault(tmp_path / "w", agreed(rounds=1000), small.keys, small.shuffler)
    other.start()
    for number in range(1, 6):
        other.sealed(number)
    other.kill()
    put_away(vault, tmp_path / "away")
    put_away(other, tmp_path / "others")
    put_back(vault, tmp_path / "others")
    assert "it is not the ledger that this vault has answered by" in refusal(vault)


@pytest.mark.process
def test_killed_after_the_ledger_knows_and_before_the_witness_does(real_vault):
    """The witness cannot be written, the ledger can; there it is killed. It starts, and the answer is the same."""
    vault, witness = real_vault, real_vault.folder / "witness.json"
    vault.start()
    before = witness.read_bytes()
    witness.unlink()
    # Nobody, not even root, puts a file in the place of a folder that is not empty.
    (witness / "in the way").mkdir(parents=True)
    # The answer stays inside.
    assert vault.ask(vault.request(4)) == b"\1ledger"
    assert vault.ask(vault.request(4)) == b"\1ledger"
    ((kept,),) = vault.rows("select answer from answers where run = ? and round = 4", RUN)
    vault.kill()
    shutil.rmtree(witness)
    witness.write_bytes(before)
    vault.start()
    assert vault.sealed(4) == kept
    assert read_settings(witness, Seen).answers == 4


def test_nothing_leaves_before_the_witness_knows(vault):
    """The witness cannot be written, the ledger can: the answer stays inside, and is the same when it can again."""
    vault.start()
    vault.fail("before the witness is written", PermissionError(13, "Permission denied"))
    assert [vault.ask(vault.request(4)) for _ in range(3)] == 3 * [b"\1ledger"]
    ((kept,),) = vault.rows("select answer from answers where run = ? and round = 4", RUN)
    assert read_settings(vault.folder / "witness.json", Seen).answers == 3
    vault.heal()
    assert vault.sealed(4) == kept
    assert read_settings(vault.folder / "witness.json", Seen).answers == 4


def test_two_vaults_share_a_ledger_and_notice_when_it_is_gone(small, tmp_path):
    """Also the one that never answered itself: what its users spent at the other's is in there."""
    shared = {"ledger": "../person/ledger.sqlite"}
    one, two = (
        LocalVault(tmp_path / name, agreed(rounds=1000), small.keys, small.shuffler, runs=(run,), **shared)
        for name, run in (("one", RUN), ("two", OTHER_RUN))
    )
    try:
        for vault in (one, two):
            vault.start()
        assert one.sealed(1)
        assert read_settings(one.folder / "witness.json", Seen).answers == 1
        two.kill()
        two.start()
        for vault in (one, two):
            vault.kill()
        shutil.rmtree(tmp_path / "person")
        assert "is gone, which held 1 answers" in refusal(one)
        assert "is gone, which held 1 answers" in refusal(two)
    finally:
        for vault in (one, two):
            vault.kill()


def test_an_old_copy_that_another_vault_went_on_from_is_noticed(small, tmp_path):
    """An attack: the other's answers made up the number, and this vault drew a second report for an answered round."""
    shared = {"ledger": "../person/ledger.sqlite"}
    one, two = (
        LocalVault(tmp_path / name, agreed(rounds=1000), small.keys, small.shuffler, runs=(run,), **shared)
        for name, run in (("one", RUN), ("two", OTHER_RUN))
    )
    try:
        for vault, run in ((one, RUN), (two, OTHER_RUN)):
            vault.start()
            assert vault.sealed(1, run=run)
            vault.kill()
        shutil.copytree(tmp_path / "person", tmp_path / "backup")
        one.start()
        assert one.sealed(2)
        one.kill()
        shutil.rmtree(tmp_path / "person")
        shutil.copytree(tmp_path / "backup", tmp_path / "person")
        two.start()
        assert two.sealed(2, run=OTHER_RUN)
        assert two.sealed(3, run=OTHER_RUN)
        two.kill()
        assert "it does not have this vault's last answer or start, it went on from an old copy" in refusal(one)
    finally:
        for vault in (one, two):
            vault.kill()


def ledger(path, name, file):
    return VaultLedger(path, 2, Lifetime(), Witness(file, name))


def test_a_new_vault_may_enter_a_ledger_that_is_there(tmp_path):
    path = tmp_path / "ledger.sqlite"
    for name in (ID, OTHER_ID):
        new_witness(tmp_path / name)
        ledger(path, name, tmp_path / name).close()
    # Both are known from now on.
    for name in (ID, OTHER_ID):
        ledger(path, name, tmp_path / name).close()


def test_a_witness_that_is_gone_is_no_permission(tmp_path):
    with pytest.raises(DataError, match=r"there is no .*witness\.json"):
        Witness(tmp_path / "witness.json", ID)


def test_a_witness_never_forgets_an_answer(tmp_path):
    """Whoever tells it of fewer answers than it has seen has an old ledger."""
    file = tmp_path / "witness.json"
    new_witness(file)
    witness = Witness(file, ID)
    witness.cover(2, b"2" * 32)
    witness.cover(1, b"1" * 32)
    assert read_settings(file, Seen) == Seen(2, (b"2" * 32).hex())
    assert witness.answers == 2


def test_what_is_refused_leaves_no_ledger_behind(tmp_path):
    file, path = tmp_path / "witness.json", tmp_path / "ledger.sqlite"
    file.write_text(json.dumps({"answers": 0}))
    with pytest.raises(DataError, match="is gone"):
        ledger(path, ID, file)
    assert not path.exists()


def answer(kept, run, number, drawn):
    with kept.transaction():
        kept.record(run, number, Answer(b"announced", drawn), {})


def test_a_copy_that_grew_in_another_way_is_not_the_ledger(tmp_path):
    """By as many answers, of the same rounds; when it is opened, and when it comes in the place of one that is open."""
    path, file = tmp_path / "ledger.sqlite", tmp_path / "witness.json"
    new_witness(file)
    with closing(ledger(path, ID, file)) as kept:
        answer(kept, RUN, 1, b"first")
    backup = shutil.copy(path, tmp_path / "backup.sqlite")
    with closing(ledger(path, ID, file)) as kept:
        answer(kept, RUN, 2, b"second")
        with closing(sqlite3.connect(backup)) as old, closing(sqlite3.connect(path)) as now:
            old.backup(now)
        for act in (lambda: kept.find(RUN, 2), lambda: answer(kept, RUN, 2, b"again")):
            with pytest.raises(LedgerLost, match="it holds 1 answers, 2 were given"):
                act()
    with closing(VaultLedger(path, 2, Lifetime())) as unseen:
        answer(unseen, RUN, 2, b"again")
    with pytest.raises(DataError, match="it went on from an old copy"):
        ledger(path, ID, file)


def test_vaults_that_share_a_ledger_go_on_with_each_others_answers(tmp_path):
    path = tmp_path / "ledger.sqlite"
    for name in (ID, OTHER_ID):
        new_witness(tmp_path / name)
    with closing(ledger(path, ID, tmp_path / ID)) as one, closing(ledger(path, OTHER_ID, tmp_path / OTHER_ID)) as two:
        for number in (1, 2, 3):
            answer(one, RUN, number, b"one")
            answer(two, OTHER_RUN, number, b"two")
    for name in (ID, OTHER_ID):
        ledger(path, name, tmp_path / name).close()
        assert read_settings(tmp_path / name, Seen).answers == 6
