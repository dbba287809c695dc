"""Databases in the hands of one process, and the ledgers on them."""

import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest
from parties import OTHER_RUN, RUN, rounds_of

from apes.errors import DataError
from apes.federation.vault.ledger import VaultLedger
from apes.shuffler.service.ledger import Closed, ShufflerLedger
from apes.storage.database import open_database

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
    with pytest.raises(sqlite3.IntegrityError):
        ledger.close_round(RUN, 1, Closed(b"second", b"another"), [b"another"])
    assert ledger.find(RUN, 1) == Closed(b"first", b"release")
    assert (rounds_of(file, sender), rounds_of(file, b"another")) == (1, 0)
    ledger.close_round(OTHER_RUN, 1, Closed(b"first", b"release"), [sender])
    ledger.close_round(RUN, 2, Closed(b"first", b"release"), [])
    assert rounds_of(file, sender) == 2
    ledger.close()


def test_an_answer_is_recorded_once(file):
    ledger = VaultLedger(file, 2)
    ledger.record(RUN, 1, b"answer", {0: 0.1, 1: 0.3})
    with pytest.raises(sqlite3.IntegrityError):
        ledger.record(RUN, 1, b"another", {0: 0.1, 1: 0.3})
    assert ledger.find(RUN, 1) == b"answer"
    assert ledger.spent().tolist() == [0.1, 0.3]
    ledger.close()


def test_spending_is_counted_and_not_added_up(file):
    """Ten times 0.1 are 1, as they are not in floating point."""
    ledger = VaultLedger(file, 2)
    for number in range(1, 11):
        ledger.record(RUN, number, b"", {0: 0.1})
    assert sum(10 * [0.1]) != 1
    assert ledger.spent().tolist() == [1.0, 0.0]
    assert ledger.spent(np.array([0.1, 0.3])).tolist() == [11 * 0.1, 0.3]
    assert ledger.spent(np.array([0.5, 0.3])).tolist() == [1.5, 0.3]
    ledger.close()


def test_old_answers_are_forgotten_and_their_cost_is_not(file):
    ledger = VaultLedger(file, 1)
    for number in range(1, 5):
        ledger.record(RUN, number, b"%d" % number, {0: 1.0})
    assert [ledger.find(RUN, number) for number in range(1, 6)] == [None, None, b"3", b"4", None]
    assert (ledger.last_round(RUN), ledger.last_round(OTHER_RUN)) == (4, 0)
    assert ledger.spent().tolist() == [4.0]
    ledger.close()
