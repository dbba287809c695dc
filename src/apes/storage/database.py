"""Durable records: SQLite databases whose commits survive a crash, each in the hands of one process."""

import fcntl
import os
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from apes.errors import DataError


class _Owned(sqlite3.Connection):
    """A connection that holds a lock file for as long as it is open."""

    lock_file: int = -1

    def close(self) -> None:
        super().close()
        if self.lock_file >= 0:
            os.close(self.lock_file)
            self.lock_file = -1


def open_database(path: Path, tables: str) -> sqlite3.Connection:
    """Open a database, made if need be, for this process alone.

    A commit returns once the log is on the disk (write-ahead log, synced in full).
    The file is readable by its owner only; ``tables`` is SQL that makes those that are not there yet.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error}") from None
    try:
        with ExitStack() as undo:
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            database = undo.enter_context(closing(sqlite3.connect(path, check_same_thread=False, factory=_Owned)))
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = full")
            database.executescript(tables)
            undo.pop_all()
    except BlockingIOError:
        raise DataError(f"{path} is in use by another process; stop it first") from None
    except (OSError, sqlite3.Error) as error:
        raise DataError(f"{path} cannot be used: {error}") from None
    database.lock_file = lock
    return database


def read_database(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of a database that another process may have open; nothing is changed."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"{path} cannot be read: {error}") from None
