"""What is stored: for its owner's eyes, by one process at a time, whole, and read without running anything."""

import json
import logging
import os
from dataclasses import dataclass

import numpy as np
import pytest

from apes.errors import DataError
from apes.storage.arrays import read_all_arrays, read_arrays, write_arrays
from apes.storage.chain import LINK_BYTES, link
from apes.storage.database import open_database, read_database
from apes.storage.json_logs import RareLog, _Lines
from apes.storage.locks import lock
from apes.storage.settings import read_settings, read_token, write_settings

TABLES = "create table if not exists receipts (number integer primary key)"


def test_a_database_is_its_owners(tmp_path):
    before = os.umask(0)
    try:
        open_database(tmp_path / "ledger", TABLES).close()
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "ledger": 0o600,
        "ledger.lock": 0o600,
    }


def test_a_database_is_used_by_one_at_a_time(tmp_path):
    first = open_database(tmp_path / "ledger", TABLES)
    with pytest.raises(DataError, match="is in use by another process; stop it first"):
        open_database(tmp_path / "ledger", TABLES)
    with first:
        first.execute("insert into receipts values (7)")
    assert read_database(tmp_path / "ledger", "select number from receipts") == [(7,)]
    first.close()
    open_database(tmp_path / "ledger", TABLES).close()
    # Beside others where that is asked for.
    one, other = (open_database(tmp_path / "shared", TABLES, shared=True) for _ in range(2))
    one.close()
    other.close()


def test_a_database_brings_commits_to_the_disk(tmp_path):
    database = open_database(tmp_path / "ledger", TABLES)
    assert database.execute("pragma journal_mode").fetchone() == ("wal",)
    assert database.execute("pragma synchronous").fetchone() == (2,)
    database.close()


def test_a_lock_is_let_go_of(tmp_path):
    held = lock(tmp_path / "folder" / "file")
    with pytest.raises(DataError, match="is in use by another process"):
        lock(tmp_path / "folder" / "file")
    os.close(held)
    os.close(lock(tmp_path / "folder" / "file"))


def test_a_link_stands_for_everything_before_it():
    links = {
        link(None, b"ab", b"c"),
        link(None, b"a", b"bc"),
        link(None, b"abc"),
        link(None, b"abc", b""),
        link(bytes([1] * LINK_BYTES), b"abc"),
    }
    assert len(links) == 5
    assert {len(each) for each in links} == {LINK_BYTES}
    assert link(None, b"abc") == link(None, b"abc")


class Trap:
    """Runs something when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("trap",)


def test_nothing_is_run_of_what_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "x.npz", x=np.array([Trap()], dtype=object))
    for read in (read_all_arrays, lambda path: read_arrays(path, ("x",))):
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path / "x.npz")
    assert not (tmp_path / "trap").exists()


def test_arrays_come_back(tmp_path):
    write_arrays(tmp_path / "x.npz", {"a": np.arange(3), "b": np.zeros(0)}, mode=0o600)
    assert (tmp_path / "x.npz").stat().st_mode & 0o777 == 0o600
    assert read_arrays(tmp_path / "x.npz", ("a",), ("b", "c")).keys() == {"a", "b"}
    with pytest.raises(DataError, match="cannot be read"):
        read_arrays(tmp_path / "x.npz", ("a", "c"))
    content = (tmp_path / "x.npz").read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 1):
        (tmp_path / "x.npz").write_bytes(content[:size])
        with pytest.raises(DataError, match="cannot be read"):
            read_arrays(tmp_path / "x.npz", ("a",))


@dataclass(frozen=True)
class Setup:
    """Settings of something."""

    name: str
    hosts: tuple[str, ...] = ()


def test_settings_come_back_and_no_others(tmp_path):
    file = tmp_path / "setup.json"
    write_settings(file, Setup("a", ("b", "c")), 0o600)
    assert read_settings(file, Setup) == Setup("a", ("b", "c"))
    assert file.stat().st_mode & 0o777 == 0o600
    for content, said in (
        ('{"name": "a", "hots": []}', "unknown field 'hots'; known are name, hosts"),
        ('{"hosts": []}', "field 'name' is missing"),
        ('{"name": 3}', "field 'name' must be a text, got 3"),
        ("[]", "must hold an object with the fields of Setup, got list"),
        ("[" * 100_000, "cannot be read"),
        ("", "cannot be read"),
    ):
        file.write_text(content)
        with pytest.raises(DataError, match=said):
            read_settings(file, Setup)


def test_a_token_is_there(tmp_path):
    (tmp_path / "token").write_text(" secret\n")
    assert read_token(tmp_path / "token") == "secret"
    for content in (b"", b" \n", b"\xff"):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(DataError, match=r"is empty|cannot be read"):
            read_token(tmp_path / "token")


def test_what_libraries_were_sent_is_not_logged(capsys):
    logger = logging.getLogger("a.library.of.the.storage.tests")
    logger.handlers, logger.propagate = [_Lines()], False
    logger.warning("somebody said %s", "a secret")
    try:
        raise ValueError("a secret")
    except ValueError:
        logger.exception("it failed")
    said = capsys.readouterr().err
    assert [json.loads(line)["message"] for line in said.splitlines()] == ["somebody said %s", "it failed"]
    assert "a secret" not in said


def test_refusals_are_counted_and_told_when_their_count_doubles(capsys):
    refusals = RareLog("refused")
    for _ in range(100):
        refusals.count("too late")
    assert [json.loads(line)["count"] for line in capsys.readouterr().err.splitlines()] == [1, 2, 4, 8, 16, 32, 64]
