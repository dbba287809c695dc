"""Databases in the hands of one process or of several, and the ledgers on them."""

import json
import os
import sqlite3
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from parties import OTHER_RUN, RUN, rounds_of

from apes.accounting.cost import Cost
from apes.errors import DataError
from apes.federation.vault.charges import Charge, central_cost, local_epsilon
from apes.federation.vault.ledger import Answer, VaultLedger
from apes.federation.vault.lifetime import Lifetime
from apes.shuffler.service.ledger import Closed, RoundClosed, ShufflerLedger
from apes.shuffler.service.witness import Witness, new_witness
from apes.storage.database import open_database
from apes.storage.files import write_bytes, write_whole

TABLE = "create table if not exists t (x integer primary key)"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "ledger.sqlite"


def test_what_was_committed_is_there_again(file):
    for value in range(3):
        database = open_database(file, TABLE)
        with database:
            database.execute("insert into t values (?)", (value,))
        database.close()
    database = open_database(file, TABLE)
    assert database.execute("select x from t").fetchall() == [(0,), (1,), (2,)]
    database.close()


def test_commits_are_synced(file):
    database = open_database(file, TABLE)
    assert database.execute("pragma journal_mode").fetchone() == ("wal",)
    assert database.execute("pragma synchronous").fetchone() == (2,)
    database.close()


def test_only_its_owner_can_read_it(file):
    database = open_database(file, TABLE)
    with database:
        database.execute("insert into t values (1)")
    made = sorted(path.name for path in file.parent.iterdir())
    assert made == [f"ledger.sqlite{end}" for end in ("", "-shm", "-wal", ".lock")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()} == {0o600}
    database.close()


def test_a_file_is_on_the_disk_before_it_takes_anothers_place(tmp_path, monkeypatch):
    """Else a crash could leave neither the old nor the new; and nobody else may read what is secret on the way."""
    path, done = tmp_path / "secret", []
    path.write_bytes(b"old")
    permit, sync, move = os.fchmod, os.fsync, os.replace

    def permitted(number, mode):
        # Whoever opened it before goes on reading.
        done.append(("made", stat.S_IMODE(os.fstat(number).st_mode)))
        permit(number, mode)

    def synced(number):
        done.append(("synced", os.fstat(number).st_size, stat.S_IMODE(os.fstat(number).st_mode)))
        sync(number)

    def moved(part, place):
        assert path.read_bytes() == b"old"
        done.append(("moved", Path(part).parent == path.parent, place == path))
        move(part, place)

    monkeypatch.setattr(os, "fchmod", permitted)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", moved)
    write_bytes(path, b"the new one", 0o600)
    assert done == [("made", 0o600), ("synced", 11, 0o600), ("moved", True, True)]
    assert path.read_bytes() == b"the new one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("is_secret", [True, False])
def test_a_file_that_cannot_be_written_leaves_the_old_one_alone(tmp_path, is_secret):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file):
        is_open = bool(stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077)
        assert is_open != is_secret
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(path, fail, 0o600 if is_secret else None)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_a_witness_is_on_the_disk_and_in_its_folder_before_anything_leaves(tmp_path, monkeypatch):
    """A new file in the place of another may be lost in a crash until its folder is synced."""
    new_witness(tmp_path / "witness.json")
    witness, synced = Witness(tmp_path / "witness.json"), []
    monkeypatch.setattr("apes.shuffler.service.witness.sync_folder", synced.append)
    witness.cover(RUN, 3, bytes(32))
    assert synced == [tmp_path]
    # It never goes back, and what it has need not be written again.
    for number in (1, 3):
        witness.cover(RUN, number, bytes([9]) * 32)
    assert synced == [tmp_path]
    assert Witness(tmp_path / "witness.json").last(RUN) == (3, 64 * "0")


@pytest.mark.parametrize(
    "runs", [[], "x", {"a": 1}, {"a": [0, 64 * "0"]}, {"a": [1, "0"]}, {"a": [1, 64 * "0", 1]}, {"a": [True, 64 * "0"]}]
)
def test_what_is_no_witness_is_refused(tmp_path, runs):
    file = tmp_path / "witness.json"
    file.write_text(json.dumps({"ledger": 32 * "0", "runs": runs}))
    with pytest.raises(DataError, match=r"witness\.json: "):
        Witness(file)


def test_a_second_opener_is_refused(file):
    database = open_database(file, TABLE)
    with pytest.raises(DataError, match=r"ledger\.sqlite is in use"):
        open_database(file, TABLE)
    database.execute("insert into t values (1)")
    database.close()
    open_database(file, TABLE).close()


def test_a_folder_in_its_place(file):
    file.mkdir()
    with pytest.raises(DataError, match=r"ledger\.sqlite cannot be used"):
        open_database(file, TABLE)


@pytest.mark.parametrize("folder", ["/proc", "/proc/self"])
def test_a_folder_that_cannot_be_written(folder):
    """Nobody, not even root, makes files there."""
    with pytest.raises(DataError, match=r"/proc.*ledger\.sqlite cannot be opened"):
        open_database(Path(folder) / "ledger.sqlite", TABLE)


def test_a_file_in_the_folders_place(file):
    file.write_bytes(b"")
    with pytest.raises(DataError, match="cannot be opened"):
        open_database(file / "ledger.sqlite", TABLE)


def test_not_a_database(file):
    file.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(DataError, match=r"ledger\.sqlite cannot be used"):
        open_database(file, TABLE)
    assert file.read_bytes() == bytes(range(256)) * 40
    file.unlink()
    open_database(file, TABLE).close()


def test_a_round_is_closed_once(file):
    ledger, sender = ShufflerLedger(file), bytes(32)
    assert ledger.find(RUN, 1) is None
    ledger.close_round(RUN, 1, Closed(b"first", b"release"), [sender])
    with pytest.raises(RoundClosed):
        ledger.close_round(RUN, 1, Closed(b"second", b"another"), [b"another"])
    assert ledger.find(RUN, 1) == Closed(b"first", b"release")
    assert (rounds_of(file, sender), rounds_of(file, b"another")) == (1, 0)
    ledger.close_round(OTHER_RUN, 1, Closed(b"first", b"release"), [sender])
    ledger.close_round(RUN, 2, Closed(b"first", b"release"), [])
    assert rounds_of(file, sender) == 2
    ledger.close()


ONE, OTHER = Charge(0.1, 0.5, 1e-15), Charge(0.3, 2.0, 1e-15)


def record(ledger, number, answer, charges):
    with ledger.transaction():
        ledger.record(RUN, number, Answer(b"announced", answer), charges)


def test_an_answer_is_recorded_once(file):
    ledger = VaultLedger(file, 2, Lifetime())
    record(ledger, 1, b"answer", {0: ONE, 1: OTHER})
    with pytest.raises(sqlite3.IntegrityError):
        record(ledger, 1, b"another", {0: ONE, 1: OTHER})
    assert ledger.find(RUN, 1) == Answer(b"announced", b"answer")
    assert ledger.spending() == [{ONE: 1}, {OTHER: 1}]
    ledger.close()


def test_spending_is_counted_and_not_added_up(file):
    """Ten times 0.1 are 1, as they are not in floating point."""
    ledger = VaultLedger(file, 2, Lifetime())
    for number in range(1, 11):
        record(ledger, number, b"", {0: ONE})
    assert sum(10 * [0.1]) != 1
    assert ledger.spending() == [{ONE: 10}, {}]
    assert local_epsilon(ledger.spending()[0]) == 1
    assert central_cost(ledger.spending()[0]) == Cost(5.0, 10 * 1e-15)
    ledger.close()


def test_old_answers_are_forgotten_and_their_cost_is_not(file):
    ledger = VaultLedger(file, 1, Lifetime())
    for number in range(1, 5):
        record(ledger, number, b"%d" % number, {0: ONE})
    found = [ledger.find(RUN, number) for number in range(1, 6)]
    assert found == [*(Answer(b"announced", answer) for answer in (None, None, b"3", b"4")), None]
    assert (ledger.last_round(RUN), ledger.last_round(OTHER_RUN)) == (4, 0)
    assert ledger.spending() == [{ONE: 4}]
    ledger.close()


def test_a_vaults_ledger_of_an_earlier_version_is_refused(file):
    open_database(file, "create table spent (user integer, epsilon real, rounds integer)").close()
    with pytest.raises(DataError, match=r"ledger\.sqlite cannot be used: no such column"):
        VaultLedger(file, 1, Lifetime())


def test_a_vaults_ledger_is_shared_and_one_waits_for_the_other(file):
    """What a transaction reads, nobody changes before it ends; one that fails leaves nothing."""
    first, second = VaultLedger(file, 1, Lifetime()), VaultLedger(file, 1, Lifetime())
    with ThreadPoolExecutor(1) as other:
        with first.transaction():
            assert first.spending() == [{}]
            waiting = other.submit(record, second, 2, b"second", {0: ONE})
            time.sleep(0.2)
            assert not waiting.done()
            first.record(RUN, 1, Answer(b"announced", b"first"), {0: ONE})
        waiting.result(timeout=60)
    with pytest.raises(sqlite3.Error):
        record(first, 3, b"third", {0: ONE, 1: ("no", "charge")})
    assert first.spending() == second.spending() == [{ONE: 2}]
    assert second.last_round(RUN) == 2
    first.close()
    second.close()
