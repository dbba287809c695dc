"""Durable records: SQLite databases whose commits survive a crash."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from apes.errors import DataError
from apes.storage.locks import lock

# For others who write to a shared one.
_SECONDS_TO_WAIT = 60.0


class _Owned(sqlite3.Connection):
    """A connection that holds a lock file for as long as it is open."""

    lock_file: int = -1

    def close(self) -> None:
        super().close()
        if self.lock_file >= 0:
            os.close(self.lock_file)
            self.lock_file = -1


def open_database(path: Path, tables: str, *, shared: bool = False) -> sqlite3.Connection:
    """Open a database, made if need be, for this process alone or, ``shared``, beside others.

    A commit returns once the log is on the disk (write-ahead log, synced in full).
    The file is readable by its owner only; ``tables`` is SQL that makes those that are not there yet.
    """
    # Others wait while one makes the tables.
    held = lock(path, wait=shared)
    try:
        with ExitStack() as undo:
            undo.callback(os.close, held)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(path, _SECONDS_TO_WAIT, check_same_thread=False, factory=_Owned)
            database = undo.enter_context(closing(connection))
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = full")
            database.executescript(tables)
            undo.pop_all()
    except (OSError, sqlite3.Error) as error:
        raise DataError(f"{path} cannot be used: {error}") from None
    if shared:
        os.close(held)
    else:
        database.lock_file = held
    return database


def read_database(path: Path, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Rows of a database that another process may have open; nothing is changed."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise DataError(f"{path} cannot be read: {error}") from None
